"""The documentation shows the results of the recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.reproduction import docs_blocks, plans
from agents.reproduction.outcome import recorded_files
from agents.runs import archive

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")}
WITH_BLOCKS = [name for name, text in PAGES.items() if docs_blocks.commands(text)]


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_the_computed_blocks_of_the_pages_are_up_to_date(page):
    """After a change, run ``python -m agents.reproduction.docs_blocks docs/*.md``."""
    assert docs_blocks.fill(PAGES[page]) == PAGES[page]


def test_the_pages_show_the_costs_and_on_the_front_page_how_many_findings_hold():
    assert docs_blocks.COSTS in docs_blocks.commands(PAGES["reproduction.md"])
    assert "all --scale cpu --recorded --print summary" in docs_blocks.commands(PAGES["index.md"])


@pytest.mark.parametrize("file", recorded_files(), ids=lambda file: file.name)
def test_the_pages_show_the_findings_of_each_recorded_file(file):
    name, _, scale = file.name.removesuffix(archive.SUFFIX).partition("-")
    assert name in plans.NAMES
    assert scale in plans.SCALES
    shown = [command.split() for page in WITH_BLOCKS for command in docs_blocks.commands(PAGES[page])]
    with_findings = [words[0] for words in shown if {scale, "--recorded", "findings"} < set(words)]
    assert set(plans.read(name).findings) <= {id for plan in with_findings for id in plans.read(plan).findings}


def test_a_block_with_an_unknown_command_is_refused():
    with pytest.raises(ValueError, match="fig9 --recorded -->: no block.*write"):
        docs_blocks.fill("<!-- alma reproduce fig9 --recorded -->\n<!-- end -->")
