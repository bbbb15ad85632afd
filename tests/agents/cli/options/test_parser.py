"""The parsers of ``alma`` load nothing that their commands need, and know the names that other rooms define."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agents import figures
from agents.analysis import tables, tables_text
from agents.cli import main
from agents.cli.options import decision_parser, parser
from agents.reproduction import plans, printed
from agents.rl.learning import train
from agents.runs import archive

HEAVY = ("torch", "scipy", "matplotlib", "sklearn", "agents.learners", "agents.figures", "agents.catalogue")


def parsers(of: argparse.ArgumentParser) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Every command, as its words and its parser."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                below = [([name, *words], own) for words, own in parsers(command)]
                yield from below or [([name], command)]


COMMANDS = list(parsers(parser.build_parser()))


def test_help_of_every_command_loads_none_of_the_heavy_modules():
    script = (
        "import sys\nfrom agents.cli import main\n"
        f"for words in {[[], *(words for words, _ in COMMANDS)]!r}:\n"
        "    try: main([*words, '--help'])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_every_command_names_a_function(words, command):
    module, _, function = command.get_default("command").partition(":")
    assert callable(getattr(importlib.import_module(f"agents.cli.{module}"), function))


@pytest.mark.parametrize(("words", "paths"), [("table", "[PATH ...]"), ("plot", "KIND [PATH ...]")])
def test_the_usage_shows_that_paths_may_be_left_out_and_repeated(words, paths, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([words, "--help"])
    usage, _, text = capsys.readouterr().out.partition("\n\n")
    assert usage.split("\n")[-1].strip() == paths
    assert "; may be left out with --recorded" in " ".join(text.split())


def test_repeated_names_equal_the_names_of_the_rooms_that_define_them():
    assert list(parser.FIGURES) == list(figures.KINDS)
    assert parser.PICTURE_FORMATS == figures.FORMATS
    assert list(parser.TABLE_FORMATS) == list(tables_text.ENDINGS)
    assert parser.TABLE_KEYS == tables.KEYS
    assert (parser.PLANS, parser.SCALES) == (plans.NAMES, plans.SCALES)
    assert parser.PARTS == printed.PARTS
    assert decision_parser.ALGORITHMS == train.ALGORITHMS
    assert parser.PACKED_SUFFIX == archive.SUFFIX
