"""The code of the documentation runs, its commands and names exist, and its pages are complete."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import itertools
import re
import sys
import tomllib
from collections.abc import Sequence
from types import ModuleType

import nbformat
import pytest

import agents.cli
import alma_env
import leaderboard.cli
from agents.catalogue import backbones
from agents.catalogue.methods import methods_for
from agents.catalogue.own_code import is_own
from agents.catalogue.recipes import recipe_for
from agents.catalogue.spec import RunSpec, resolve
from agents.cli.options.parser import DEFAULT_ENV, build_parser
from agents.policies.specs import policy_from
from agents.policies.validation import key_values
from agents.training.settings import StageSettings
from alma_env.data.datasets import TEXT
from alma_env.registration import PROTOCOLS, TEXT_ID, keywords_of

from .documentation import EXECUTED, NOT_RUN, PAGES, ROOT, SHOWN, Block, blocks, commands, inline_code, prose
from .tutorials import notebook, output_of, same_words

PROGRAMS = {"alma": agents.cli, "alma-leaderboard": leaderboard.cli}
PARSERS = {"alma": build_parser, "alma-leaderboard": leaderboard.cli._parser}
PACKAGES = ("alma_env", "agents", "leaderboard")
PLACEHOLDERS = ("STEM",)  # names in capitals that stand for a name of the user
# What a page computes for long, with fewer epochs, steps and seeds: a test compares words, and no numbers.
SHORTER = {
    "tutorials/data.md": {
        "epochs=20 --out tumours": "epochs=2 --out tumours",
        "epochs=20 --out images": "epochs=2 --out images",
    },
    "tutorials/growing.md": {'"epochs": 20': '"epochs": 1', "range(3)": "range(2)"},
    "tutorials/waiting.md": {"learn(500_000)": "learn(20_480)", "range(5)": "range(2)", "* 5, saved": "* 2, saved"}
    | {"width=4, pass_price=price": "width=4, epochs=2, pass_price=price"},
    "tutorials/learner.md": {"epochs=50": "epochs=2"},
    "tutorials/submission.md": {"seed=0, steps=10": "seed=0, steps=1"},
    "arena.md": {"make_agent:wait=2 sm": "make_agent:wait=2,epochs=1 sm"},
    "experiments.md": {"--engine plain --out": "--engine plain --set epochs=2 --out"},
    "learner.md": {
        "make_agent --wait 5 --seeds 0 1 --set epochs=5": "make_agent --wait 5 --seeds 0 1 --set epochs=1",
        '"epochs": 20': '"epochs": 2',
        "--wait 2 5 --set epochs=20": "--wait 2 5 --set epochs=2",
    },
    "waiting.md": {"--seeds 0 1 --policy": "--seeds 0 1 --set epochs=1 --policy"},
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    module = ModuleType("page_" + re.sub(r"\W", "_", page.removesuffix(".md")))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(tmp_path)
    found = [_shorter(block, SHORTER.get(page, {})) for block in blocks(PAGES[page])]
    for block in found:
        capsys.readouterr()
        if block.is_file:
            path = tmp_path / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
        elif block.is_run and block.language == "python":
            exec(compile(block.code, str(block), "exec"), vars(module))
        elif block.is_run:
            for name, *words in commands(block.code, tmp_path):
                assert name in PROGRAMS, f"{block}: a test cannot run {name}; say {{data-test=…}} with one of {NOT_RUN}"
                status = PROGRAMS[name].main(words)
                assert status == 0, f"{block}: {name} {' '.join(words)}\n{capsys.readouterr().err}"
        if block.is_run and page.startswith("tutorials/") and (shown := output_of(found, block)):
            printed = capsys.readouterr().out
            assert same_words(printed, shown.code), f"{shown} shows\n{shown.code}\nand {block} prints\n{printed}"


def _shorter(block: Block, texts: dict[str, str]) -> Block:
    code = block.code
    for long, short in texts.items():
        code = code.replace(long, short)
    return dataclasses.replace(block, code=code)


@pytest.mark.parametrize(("page", "text"), [(page, text) for page, texts in SHORTER.items() for text in texts])
def test_what_is_computed_for_a_shorter_time_is_on_its_page(page, text):
    assert sum(block.code.count(text) for block in blocks(PAGES[page])) == 1


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("tutorials/")])
def test_the_notebook_of_a_tutorial_is_that_of_the_page(page):
    file = PAGES[page].with_suffix(".ipynb")
    assert nbformat.read(file, 4) == notebook(PAGES[page]), f"{file.name}: run `python -m tests.tutorials {file.stem}`"


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_options_and_modules_of_blocks_that_are_not_executed_exist(page, tmp_path):
    for block in blocks(PAGES[page]):
        if block.reason and block.language == "python":
            _check_imports(block)
        elif block.reason and block.language == "sh":
            for name, *words in commands(block.code, tmp_path):
                _check_command(f"{block}: {name} {' '.join(words)}", name, words)


@pytest.mark.parametrize("page", PAGES)
def test_the_fence_of_every_block_determines_its_treatment(page):
    for block in blocks(PAGES[page]):
        assert not block.reason or block.reason in NOT_RUN, f"{block}: {block.reason!r} is not one of {NOT_RUN}"
        treated = block.language in SHOWN or block.reason or block.is_file
        assert treated or (block.language in EXECUTED and not block.title), (
            f"{block}: {block.language} with the title {block.title!r}, which is not the name of a file; a block "
            f"that a test cannot execute has {{data-test=…}} with one of {NOT_RUN}"
        )


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_in_a_pages_prose_exist(page, capsys):
    for code in inline_code(PAGES[page]):
        name, *words = code.split()
        if (name == "pytest" and words) or name == "-k":
            _check_pytest(f"{page}: {code}", code.split())
        elif name in PROGRAMS and words:
            command = itertools.takewhile(lambda word: word.islower() and not word.startswith("-"), words)
            with pytest.raises(SystemExit) as end:
                PARSERS[name]().parse_args([*command, "--help"])
            assert end.value.code == 0, f"{page}: {code}"
            printed = capsys.readouterr().out
            options = [word.partition("=")[0] for word in words if word.startswith("--")]
            assert all(option in printed for option in options), f"{page}: {code}"


@pytest.mark.parametrize("page", [ROOT / "CHANGELOG.md", *PAGES.values()], ids=lambda page: page.name)
def test_a_line_of_prose_has_at_most_140_characters(page):
    written = re.sub(r"<!-- alma .*?<!-- end -->", "", prose(page), flags=re.DOTALL)  # the other lines are generated
    unwrapped = "![" if page.name == "architecture.md" else ("![", "|")  # pictures, and tables except the map's
    assert [line for line in written.splitlines() if len(line) > 140 and not line.startswith(unwrapped)] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_placeholder_of_a_text_to_come(page):
    assert re.findall(r"@@\w*|TODO|FIXME", PAGES[page].read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_links_to_exist(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGES[page].read_text()):
        assert (PAGES[page].parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if page != "architecture.md"])
def test_the_paths_and_names_in_a_pages_prose_exist(page):
    for code in inline_code(PAGES[page]):
        if re.fullmatch(rf"({'|'.join(PACKAGES)}|docs|tests)/[\w./-]*", code):
            assert (ROOT / code).exists(), f"{page}: {code}"
        elif re.fullmatch(rf"({'|'.join(PACKAGES)})(\.\w+)+", code):
            assert _exists(code), f"{page}: {code}"


def test_the_options_of_the_differences_from_the_paper_exist():
    """Each option is resolved like that of a run, which checks names and types."""
    options = [code for code in inline_code(PAGES["differences.md"]) if " --" in f" {code}"]
    for code in options:
        words = code.removeprefix("alma run ").split()
        env = [] if words[0].endswith("-v0") else ["CIFAR10-ALMA-v0"]
        given = build_parser().parse_args(["run", *env, *words])
        spec = RunSpec(given.env, given.agent, replay=given.replay, settings=key_values(given.set))
        assert resolve(spec, spec.known_facts()).agent.id == given.agent, code
    assert len(options) > 15


def test_no_file_cites_a_document_outside_of_the_repository():
    """Documents have names in capitals here, and a citation has the end of a file name or a section, as in B.2."""
    files = [
        file
        for folder in (*PACKAGES, "docs", "tests")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".md", ".toml", ".html")
    ]
    for file in [*files, *ROOT.glob("*.toml"), *ROOT.glob("*.yml"), *ROOT.glob("*.md")]:
        for name in re.findall(r"\b([A-Z]{4,})(?:\.md\b| [A-Z]\.\d)", file.read_text(encoding="utf-8")):
            assert name in PLACEHOLDERS or (ROOT / f"{name}.md").exists(), f"{file.relative_to(ROOT)}: {name}"


def test_the_glossary_defines_each_term_once():
    text = PAGES["concepts.md"].read_text().partition("## Glossary")[2]
    terms = [term for line in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)[2:] for term in line.split(", ")]
    assert len(terms) > 50
    assert len(set(terms)) == len(terms)


def test_the_reference_has_every_public_name_of_the_environment():
    listed = re.findall(r"^ +- (\w+)$", (ROOT / "docs/reference/alma_env.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(alma_env.__all__)


def test_the_readme_prints_a_score(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = next(block for block in blocks(PAGES["README.md"]) if block.language == "python")
    exec(compile(first.code, str(first), "exec"), {})
    assert re.search(r"CER \d+\.\d\d, Mem \d+, Comp \d+, final error 0\.\d+", capsys.readouterr().out)


def _exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or an attribute of a module or class."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name, None)
        return found is not None
    return False


def _check_command(where: str, name: str, words: Sequence[str]) -> None:
    if name == "torchrun":
        at = words.index("-m")
        assert words[at + 1] == "agents", where
        name, words = "alma", words[at + 2 :]
    if name in PROGRAMS:
        try:
            options = PARSERS[name]().parse_args(words)
        except SystemExit:
            pytest.fail(f"{where}\nthe parser refuses this command")
        if (name, options.name) == ("alma", "run"):
            _check_run(where, options)
    elif name == "pip":
        for extra in re.findall(r"\.\[([\w,]+)\]", " ".join(words)):
            assert set(extra.split(",")) <= EXTRAS.keys(), where
    elif name == "pytest":
        _check_pytest(where, words)


def _check_run(where: str, options: object) -> None:
    """Check environment, agent, policies and the keys of --set, which the parser does not check."""
    if is_own(options.agent) or options.data is not None:
        return  # a file of the user, which the page writes: its blocks are executed
    env = options.env or DEFAULT_ENV
    recipe = recipe_for(TEXT if env == TEXT_ID else PROTOCOLS[env]["data"])
    method = methods_for(recipe.backbone)[options.agent]
    known = {*keywords_of(env), *method.keywords, *backbones.own_keywords(recipe.backbone), "growth"}
    known |= set(StageSettings.__dataclass_fields__)
    assert key_values(options.set).keys() <= known, where
    for policy in options.policy:
        if not policy.partition(":")[0].endswith((".zip", ".npz")):
            policy_from(policy, grows=method.grows)


def _check_pytest(where: str, words: Sequence[str]) -> None:
    """Check that the files exist, and that a test function in them has the word after -k in its name."""
    paths = [ROOT / word for word in words if "/" in word or word.endswith(".py")]
    assert all(path.exists() for path in paths), where
    if "-k" in words:
        searched = paths or [ROOT / "tests"]
        files = [file for path in searched for file in ([path] if path.is_file() else path.rglob("test_*.py"))]
        chosen = words[list(words).index("-k") + 1]
        assert any(re.search(rf"def test_\w*{chosen}", file.read_text()) for file in files), where


def _check_imports(block: Block) -> None:
    for node in ast.walk(ast.parse(block.code)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block}: {node.module} has no {alias.name}"
