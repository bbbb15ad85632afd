"""A check reports every problem that it can find without executing the submission."""

from __future__ import annotations

import contextlib
import json
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agents
import alma_env
from alma_env.ledger import row_to_json
from leaderboard.errors import SubmissionError
from leaderboard.submission import manifest as manifests
from leaderboard.submission import static_check
from leaderboard.submission import static_check as checks
from leaderboard.submission.claims import read_claim
from leaderboard.submission.package import Package
from leaderboard.submission.static_check import check, check_path
from leaderboard.submission.template import init

from ..conftest import ledger_of, manifest_text, package_of

ENV = "Digits-ALMA-v0"


def with_files(**files: str | bytes) -> Package:
    """Return the valid package with changed files; a double underscore in a name means a slash."""
    changed = {
        name.replace("__", "/"): content.encode() if isinstance(content, str) else content
        for name, content in files.items()
    }
    return Package({**package_of().files, **changed})


def claimed(seeds=(0, 1, 2), **changes: bytes) -> Package:
    files = {f"ledgers/seed-{seed}.jsonl": ledger_of(seed).to_json().encode() for seed in seeds}
    return Package({**package_of().files, **files, **changes})


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


# Claimed ledgers.


def test_claimed_ledgers_of_every_seed_are_read():
    report = check(claimed())
    assert report.ok
    assert {seed: ledger.score() for seed, ledger in report.claims.items()} == {
        seed: ledger_of(seed).score() for seed in (0, 1, 2)
    }


def test_the_ledger_of_a_real_run_is_a_valid_claim():
    env = alma_env.make(ENV)
    ledger = agents.run(env, agents.make("sm", env, width=4, epochs=1, wait=20), seed=0)
    assert read_claim(ledger.to_json().encode(), ENV) == ledger


def test_claims_must_match_the_seeds_of_the_manifest():
    assert "no ledger of seed 2" in check(claimed(seeds=(0, 1))).errors[0]
    too_many = check(claimed(seeds=(0, 1, 2, 3)))
    assert "'ledgers/seed-3.jsonl': not a ledger of the manifest's seeds" in too_many.errors[0]
    for name in ("ledgers/seed-00.jsonl", "ledgers/notes.txt", "ledgers/a/seed-0.jsonl", "ledgers"):
        files = {**package_of().files, name: b""}
        assert "not a ledger of the manifest's seeds" in check(Package(files)).errors[0]


def spoiled(**changes) -> bytes:
    """Return the ledger of seed 0 with changed values in the row of tick 1."""
    lines = ledger_of(0).to_json().splitlines()
    values = json.loads(lines[1])
    values.update(changes)
    values = {name: value for name, value in values.items() if value is not ...}
    return "\n".join([lines[0], json.dumps(values), *lines[2:]]).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"error": float("nan")},
        {"error": float("inf")},
        {"error": -0.1},
        {"error": 1.5},
        {"error": "0"},
        {"error": True},
        {"error": 10**400},
        {"seconds": 10**400},
        {"inference_flops": 10**4000},
        {"error": None},
        {"tick": 2},
        {"tick": 1.0},
        {"tick": True},
        {"parameters": -1},
        {"parameters": 1.5},
        {"parameters": 10**30},
        {"flops": []},
        {"flops": {"training": -1}},
        {"flops": {"training": 0.5}},
        {"flops": {"\u202e": 1}},
        {"declared": "abc"},
        {"declared": [1]},
        {"declared": ["x" * 501]},
        {"digest": 1},
        {"digest": "<script>"},
        {"refused": 0},
        {"seconds": -1.0},
        {"seconds": float("inf")},
        {"inference_flops": "many"},
        {"extra": 1},
        {"seconds": ...},
    ],
)
def test_an_impossible_row_is_refused(changes):
    report = check(claimed(**{"ledgers/seed-0.jsonl": spoiled(**changes)}))
    assert len(report.errors) == 1
    assert report.errors[0].startswith("ledgers/seed-0.jsonl: line 2: ")
    assert set(report.claims) == {1, 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 rows: must be 21, for ticks 0 to 20 of Digits-ALMA-v0"),
        (ledger_of(0).to_json().encode() * 2, "42 rows"),
        (b"\xff", "not UTF-8"),
        (b"[]\n" * 21, "line 1: 'not a JSON object'"),
        (b"[" * 100_000 + b"\n" * 21, "line 1: "),
        (b"9" * 5000 + b"\n" * 21, "line 1: "),
        (b"{}\n" * 21, "line 1: "),
    ],
)
def test_bytes_that_are_not_a_ledger_are_refused(content, message):
    with pytest.raises(SubmissionError, match=message):
        read_claim(content, ENV)


def test_a_perplexity_above_one_is_accepted():
    rows = ledger_of(0, "Text-ALMA-v0").rows
    high = "\n".join(json.dumps(json.loads(row_to_json(row)) | {"error": 900.0}) for row in rows)
    assert read_claim(high.encode(), "Text-ALMA-v0").score().cer == 4500.0


_json = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.none(), max_size=2)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(list(json.loads(row_to_json(ledger_of(0)[0])))), _json | st.just({"a": 1})))
def test_a_row_with_any_values_gives_a_score_or_a_submission_error(changes):
    with contextlib.suppress(SubmissionError):
        assert read_claim(spoiled(**changes), ENV).score().ticks == 20


@settings(max_examples=100)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_random_bytes_in_a_file_give_a_report(manifest, agent):
    report = check(Package({"submission.toml": manifest, "agent.py": agent}))
    assert all(": " in error for error in report.errors)


def test_markup_and_sql_are_kept_as_text():
    name = "<script>alert(1)</script>'; DROP TABLE submissions; --"
    report = check(Package({**package_of().files, "submission.toml": manifest_text(name=name).encode()}))
    assert report.ok
    assert report.manifest.name == name


def test_sources_that_take_minutes_to_parse_are_refused():
    fields = b"x = f'" + b"{x}" * 40_000 + b"'\n"
    began = time.process_time()
    files = {f"m{number}.py": fields for number in range(100)} | {"agent.py": b"def make_agent(env): pass\n"}
    report = static_check.check(Package(files))
    assert any("bytes of Python; the maximum is" in error for error in report.errors)
    report = static_check.check(Package({"agent.py": b"def make_agent(env): pass\n" + fields * 2}))
    assert any("bytes of Python; the maximum is" in error for error in report.errors)
    assert time.process_time() - began < 1


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
    ],
)
def test_names_of_every_alphabet_are_accepted(name):
    assert check(named(name, name)).errors == ()
