"""The documentation shows the results of the recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.cli import docs_blocks
from agents.reproduction import plans
from agents.reproduction.outcome import recorded_files
from agents.runs import archive

ROOT = Path(__file__).parents[3]
PAGES = [
    page
    for page in sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
    if docs_blocks.commands(page.read_text(encoding="utf-8"))
]
COMMANDS = [command for page in PAGES for command in docs_blocks.commands(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_computed_blocks_of_a_page_are_up_to_date(page):
    """After a change, run ``python -m agents.cli.docs_blocks docs/reproduction.md``."""
    text = page.read_text(encoding="utf-8")
    assert docs_blocks.fill(text) == text


def test_the_documentation_shows_the_costs_and_how_many_findings_hold():
    assert "reproduce all emnist cifar100 --print costs" in COMMANDS
    assert "reproduce all --scale cpu --recorded --print summary" in COMMANDS


@pytest.mark.parametrize("file", recorded_files(), ids=lambda file: file.name)
def test_the_documentation_shows_the_findings_of_each_recorded_file(file):
    name, _, scale = file.name.removesuffix(archive.SUFFIX).rpartition("-")
    assert name in plans.NAMES
    assert scale in plans.SCALES
    own = [command for command in COMMANDS if command.startswith(f"reproduce {name} --scale {scale} --recorded")]
    assert [command for command in own if "--print findings" in command]


def test_a_block_whose_command_fails_is_refused(capsys):
    failing = ("plot errors --recorded --print", "plot savings --print", "reproduce fig7 --print findings")
    for words in (*failing, "reproduce fig9 --recorded"):
        with pytest.raises(ValueError, match=f"alma {words} -->: the command failed"):
            docs_blocks.fill(f"<!-- alma {words} -->\n<!-- end -->")
    message = capsys.readouterr().err
    assert "--print with errors: its figure has no table; choose one of best-wait-by-width, savings, " in message
    assert "no PATH: give folders" in message
    assert "--print findings: it shows finished runs" in message
    assert "did you mean fig8 or fig7?" in message


def test_a_block_of_a_figure_has_its_table_of_the_recorded_runs():
    text = docs_blocks.fill("<!-- alma plot best-wait-by-width --recorded --print -->\n<!-- end -->")
    assert "| MNIST-ALMA-v0 | SM | " in text
    assert "| CIFAR10-ALMA-v0, ticks=100 | SM" in text  # the ablation has 50
    chosen = "best-wait-by-width --recorded --where env=MNIST-ALMA-v0 width=4 --print"
    narrow = docs_blocks.fill(f"<!-- alma plot {chosen} -->\n<!-- end -->")
    assert "| stream | method | width 4 |\n" in narrow
    assert "CIFAR10" not in narrow
    one = docs_blocks.fill("<!-- alma plot savings --recorded --where env=MNIST-ALMA-v0 --print -->\n<!-- end -->")
    assert "CER saved per doubling" in one
    assert docs_blocks.fill(one) == one
