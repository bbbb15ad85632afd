"""A check reports every problem that it can find without executing the submission."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agents
import alma_env
from leaderboard.errors import SubmissionError
from leaderboard.submission import manifest as manifests
from leaderboard.submission import static_check
from leaderboard.submission import static_check as checks
from leaderboard.submission.package import Package
from leaderboard.submission.static_check import check, check_path
from leaderboard.submission.template import init

from ..conftest import manifest_text, package_of

ENV = "Digits-ALMA-v0"


def with_files(**files: str | bytes) -> Package:
    """Return the valid package with changed files; a double underscore in a name means a slash."""
    changed = {
        name.replace("__", "/"): content.encode() if isinstance(content, str) else content
        for name, content in files.items()
    }
    return Package({**package_of().files, **changed})


def test_a_valid_submission_has_no_errors_and_no_warnings(package):
    report = check(package)
    assert report.ok
    assert (report.errors, report.warnings, dict(report.claims)) == ((), (), {})
    assert report.manifest.name == "A"
    assert report.package is package


def test_hidden_files_are_named_and_the_cache_of_python_is_not(tmp_path):
    init(tmp_path / "mine")
    for folder, name in (("__pycache__", "agent.pyc"), ("parts/__pycache__", "part.pyc"), (".git", "config")):
        (tmp_path / "mine" / folder).mkdir(parents=True)
        (tmp_path / "mine" / folder / name).write_text("")
    report = check_path(tmp_path / "mine")
    assert (report.errors, report.warnings) == ((), ("'.git': hidden or compiled; it is left out",))


def test_the_template_passes_the_check_and_its_agent_runs(tmp_path):
    init(tmp_path / "mine")
    report = check_path(tmp_path / "mine")
    assert (report.errors, report.warnings) == ((), ())
    namespace = {}
    exec(compile(report.package.files["agent.py"], "agent.py", "exec"), namespace)
    env = alma_env.make(report.manifest.env, ticks=3)
    env.run_seed = 0  # set by a verification
    # The waiting time of the template is longer than this stream.
    with pytest.raises(ValueError, match="the stream has only 3 mega-batches"):
        namespace["make_agent"](env)
    env = alma_env.make(report.manifest.env)
    env.run_seed = 0
    agent = namespace["make_agent"](env)
    assert isinstance(agent, agents.AnytimeAgent)
    assert agent.config["width"] == report.manifest.hyperparameters["width"]
    assert agent.config["policy"]["wait"] == report.manifest.waiting_time
    with pytest.raises(SubmissionError, match="nothing is overwritten"):
        init(tmp_path / "mine")


def test_an_environment_that_cannot_be_verified_is_refused():
    report = check(package_of(env="Text-ALMA-v0"))
    (error,) = report.errors
    assert error.startswith("env = 'Text-ALMA-v0': runs on text cannot be verified yet; choose an environment")


def test_all_missing_files_are_reported():
    report = check(Package({"readme.md": b""}))
    assert [error.split(":")[0] for error in report.errors] == ["submission.toml", "agent.py"]
    assert not report.ok


def test_errors_of_package_manifest_and_agent_are_all_reported(tmp_path):
    (tmp_path / "agent.py").symlink_to("/etc/passwd")
    assert "symbolic link" in check_path(tmp_path).errors[0]
    report = check(Package({"agent.py": b"x = (", "submission.toml": b"name = 3"}))
    assert any(error.startswith("agent.py, line 1: not valid Python") for error in report.errors)
    assert any(error.startswith("name = 3") for error in report.errors)
    assert any(error.startswith("seeds: missing") for error in report.errors)


@pytest.mark.parametrize(
    "source",
    [
        "def make_agent(env): ...",
        "def make_agent(env, /): ...",
        "def make_agent(environment, width=3, *rest, seed=0, **more): ...",
        "def make_agent(): ...\ndef make_agent(env): ...",
        "def make_agent(env=None): ...",
        "@staticmethod\ndef make_agent(env): ...",
    ],
)
def test_a_function_of_the_environment_passes(source):
    assert check(package_of(source)).ok


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "no function make_agent"),
        ("make_agent = print", "no function make_agent"),
        ("if True:\n    def make_agent(env): ...", "no function make_agent"),
        ("class A:\n    def make_agent(env): ...", "no function make_agent"),
        ("from x import make_agent", "no function make_agent"),
        ("def make_agent(): ...", "the environment as its only argument"),
        ("def make_agent(env, seed): ...", "the environment as its only argument"),
        ("def make_agent(*, env): ...", "the environment as its only argument"),
        ("def make_agent(env, *, seed): ...", "the environment as its only argument"),
        ("def make_agent(*env): ...", "the environment as its only argument"),
        ("async def make_agent(env): ...", "not a plain function"),
        ("class make_agent: ...", "not a plain function"),
        ("def make_agent(env:", "not valid Python"),
        ("x = " + "(" * 300 + ")" * 300, "agent.py"),
        ("x = " + "-" * 100_000 + "1", "agent.py"),
        ("x = 1\0", "agent.py"),
        ("def make_agent(env): ...\n# \u202e", "U\\+202E"),
        ("#" * (checks.MAXIMUM_SOURCE_BYTES + 1), "move data to other files"),
    ],
)
def test_an_invalid_agent_file_is_refused(source, message):
    report = check(package_of(source))
    assert len(report.errors) == 1
    with pytest.raises(ValueError, match=message):
        raise ValueError(report.errors[0])


def test_source_that_is_not_utf8_is_refused():
    assert "not UTF-8" in check(with_files(**{"agent.py": b"# \xff"})).errors[0]


@pytest.mark.parametrize(
    ("source", "encoding"),
    [
        (b"# coding: unicode_escape\n# a comment \\u000aHIDDEN = 1\n", "unicode_escape"),
        (b"#!/usr/bin/python\n# -*- coding: utf-7 -*-\n# a comment +AAo-import os\n", "utf-7"),
        (b"# coding: latin-1\n", "latin-1"),
        (b"# coding: nonsense\n", "nonsense"),
        (b"\r# coding: utf-7\r# a comment +AAo-import os\n", "utf-7"),
        (b"#!/usr/bin/python\r\n\t# vim: set fileencoding=utf-7 :\r\n", "utf-7"),
    ],
)
def test_source_that_python_reads_in_another_encoding_is_refused(source, encoding):
    source += b"def make_agent(env): ...\n"
    (problem,) = check(with_files(**{"agent.py": source})).errors
    assert problem == f"agent.py: declares the encoding {encoding!r}: must be UTF-8; remove the declaration"


@pytest.mark.parametrize(
    "line", ["# coding: utf-8", "# -*- coding: utf8 -*-", "\n\n# coding: latin-1", "x = 1  # coding"]
)
def test_source_may_declare_utf8_and_mention_encodings_elsewhere(line):
    source = f"{line}\n# B\u00fccher\ndef make_agent(env): ...\n".encode()
    assert check(with_files(**{"agent.py": source})).ok


def test_nothing_of_a_submission_is_executed(tmp_path):
    trap = f"open({str(tmp_path / 'trap')!r}, 'w')\n"
    before, paths = set(sys.modules), list(sys.path)
    package = Package(
        {
            **package_of(trap + "def make_agent(env=" + trap.strip() + "): ...").files,
            "sitecustomize.py": trap.encode(),
            "conftest.py": trap.encode(),
        }
    )
    package.write(tmp_path / "submission")
    assert check_path(tmp_path / "submission").ok
    assert not (tmp_path / "trap").exists()
    assert sys.path == paths
    assert not {name for name in set(sys.modules) - before if name in ("agent", "sitecustomize", "conftest")}


def test_an_import_that_a_verification_does_not_have_gives_a_warning():
    source = "import jax, os, torch.nn\nfrom parts import net\nfrom . import x\ndef make_agent(env): import keras\n"
    report = check(with_files(**{"agent.py": source, "parts__net.py": "import tensorflow"}))
    assert report.ok
    assert [warning.split(",")[0] for warning in report.warnings] == [
        "agent.py: imports 'jax'",
        "agent.py: imports 'keras'",
        "parts/net.py: imports 'tensorflow'",
    ]


@settings(max_examples=100)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_bytes_in_a_file_give_a_report(manifest, agent):
    report = check(Package({"submission.toml": manifest, "agent.py": agent}))
    assert all(": " in error for error in report.errors)


def test_sources_that_take_minutes_to_parse_are_refused():
    fields = b"x = f'" + b"{x}" * 40_000 + b"'\n"
    files = {f"m{number}.py": fields for number in range(100)} | {"agent.py": b"def make_agent(env): pass\n"}
    report = static_check.check(Package(files))
    assert any("bytes of Python; the maximum is" in error for error in report.errors)
    report = static_check.check(Package({"agent.py": b"def make_agent(env): pass\n" + fields * 2}))
    assert any("bytes of Python; the maximum is" in error for error in report.errors)
    report = static_check.check(Package({"agent.py": b"def make_agent(env): pass\n" + fields}))
    assert "agent.py: 40000 braces {; the maximum is 3000; move data to other files" in report.errors


def named(name: str, author: str = "Ada") -> Package:
    files = dict(package_of(name="NAME", authors=["AUTHOR"]).files)
    files["submission.toml"] = (
        files["submission.toml"].replace(b"NAME", name.encode()).replace(b"AUTHOR", author.encode())
    )
    return Package(files)


@pytest.mark.parametrize(
    "name",
    [
        *("b\u00a0ob", "b\u2009ob", "b\u3164ob", "b\u2800ob"),
        *("b\u043eb", "\u0410da", "N\u03bf-net", "\uff42ob", "\U0001d41b"),
        *(
            "bob\u200d",
            "b\u200cob",
            "bob\ufe0e",
            "bob\u034f",
            "bob\U000e0100",
            "bob\u180b",
            "bob\u17b4",
            "bob\U000e0fff",
        ),
        *("\u2764\ufe0f", "\u0643\u0627\u0631\u200c\u0647\u0627", "bo" + "\u0301" * 4),
    ],
)
def test_names_that_look_like_other_names_are_refused(name):
    (problem,) = check(named(name)).errors
    assert problem.startswith("name = ")
    assert "write it with plain characters" in problem
    (problem,) = check(named("A", name)).errors
    assert problem.startswith("authors = ")
    assert manifests.parse(named(name).files["submission.toml"]).name == name  # one from before the rule is read


@pytest.mark.parametrize(
    "name",
    [
        *("R\u00e9my", "\u00d8rsted", "\u0411\u043e\u0440\u0438\u0441", "\u674e \u96f7"),
        *("\u03b2-VAE", "\u03c3MoE", "L\u00b2"),
        # Joiners that change what a reader sees: Persian, Devanagari, Sinhala, Bengali; and marks: Hebrew, Vietnamese.
        *("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937"),
        *("\u0dc1\u0dca\u200d\u0dbb\u0dd3", "\u09b0\u200d\u09cd\u09af\u09be"),
        *("\u05e9\u05c1\u05b8\u05bc\u05dc\u05d5\u05b9\u05dd", "Nguye\u0302\u0303n"),
    ],
)
def test_names_of_every_alphabet_are_accepted(name):
    assert check(named(name, name)).errors == ()


HIDDEN = ["\u200b", "\u200d", "\u200c", "\ufe0e", "\ufe0f", "\u034f", "\U000e0101", "\u180f", "\u17b5", "\u3164"]


@pytest.mark.parametrize("character", HIDDEN)
def test_a_source_with_an_invisible_character_is_refused(character):
    (problem,) = check(package_of(f"X = 'a{character}'\ndef make_agent(env): ...\n")).errors
    assert problem.startswith(f"agent.py: contains U+{ord(character):04X}")


@pytest.mark.parametrize("character", HIDDEN)
def test_a_text_with_an_invisible_character_is_refused(character):
    wrong = f"'a{character}b'\n"
    description = manifest_text().replace("'d'\n", wrong)
    setting = manifest_text() + "[hyperparameters]\nkind = " + wrong
    for text, key in ((description, "description"), (setting, "hyperparameters.kind")):
        (problem,) = check(with_files(**{"submission.toml": text})).errors
        assert problem.startswith(f"{key} = ")
        assert f"contains U+{ord(character):04X}" in problem


def test_emoji_are_accepted_in_texts_and_in_sources():
    woman, heart = "\U0001f469", "\u2764\ufe0f"
    symbols = "\u2139\ufe0f 1\ufe0f\u20e3 #\ufe0f\u20e3 \u2935\ufe0f \u25fe\ufe0f"
    emoji = f"{heart} {symbols} {woman}\U0001f3fd\u200d\U0001f680 {woman}\u200d{heart}\u200d{woman}"
    text = manifest_text().replace("'d'", f"'{emoji}'")
    source = f"X = '{emoji}'\ndef make_agent(env): ...\n"
    assert check(with_files(**{"agent.py": source, "submission.toml": text})).errors == ()


def test_a_path_that_cannot_be_read_is_an_error_of_the_submission(tmp_path, monkeypatch):
    def closed(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(static_check.zip_archive, "read", closed)
    (problem,) = check_path(tmp_path).errors
    assert problem == f"{tmp_path}: cannot be read (Permission denied); make it readable"
