"""The documentation shows the results of the recorded runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.reproduction import docs_blocks, plans
from agents.reproduction.outcome import recorded_files
from agents.runs import archive

PAGE = Path(__file__).parents[3] / "docs/reproduction.md"


def test_the_computed_blocks_of_the_page_are_up_to_date():
    """After a change, run ``python -m agents.reproduction.docs_blocks docs/reproduction.md``."""
    text = PAGE.read_text(encoding="utf-8")
    assert docs_blocks.COSTS in docs_blocks.commands(text)
    assert docs_blocks.fill(text) == text


@pytest.mark.parametrize("file", recorded_files(), ids=lambda file: file.name)
def test_the_page_shows_the_findings_of_each_recorded_file(file):
    name, _, scale = file.name.removesuffix(archive.SUFFIX).partition("-")
    assert name in plans.NAMES
    assert scale in plans.SCALES
    assert f"{name} --scale {scale} --recorded" in docs_blocks.commands(PAGE.read_text(encoding="utf-8"))


def test_a_block_with_an_unknown_command_is_refused():
    with pytest.raises(ValueError, match="fig9 --recorded -->: no block.*write"):
        docs_blocks.fill("<!-- alma reproduce fig9 --recorded -->\n<!-- end -->")
