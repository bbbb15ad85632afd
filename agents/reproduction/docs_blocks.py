"""The computed blocks of a page of the documentation: costs, and scores and findings of the recorded runs.

A block is the text between two comments. The first comment is the command that prints the text:

    <!-- alma reproduce fig7 --scale cpu --recorded -->
    <!-- end -->

``python -m agents.reproduction.docs_blocks docs/reproduction.md`` computes the blocks of a page again.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

from agents.reproduction import report
from agents.reproduction.cost import cost_of
from agents.reproduction.outcome import Outcome, judge_outcomes, recorded_runs, select
from agents.reproduction.plans import NAMES, SCALES, read
from agents.reproduction.tables import cer_by_wait

_BLOCK = re.compile(r"<!-- alma reproduce (?P<arguments>[^>]*?) -->\n.*?<!-- end -->", re.DOTALL)
_RECORDED = re.compile(rf"({'|'.join(NAMES)}) --scale ({'|'.join(SCALES)}) --recorded")
COSTS = "all --dry-run"


def fill(text: str) -> str:
    """Return a page with all of its blocks computed.

    Raises:
        ValueError: no block is computed for the command of a comment.
    """
    return _BLOCK.sub(
        lambda found: f"<!-- alma reproduce {found['arguments']} -->\n\n{_block(found['arguments'])}\n<!-- end -->",
        text,
    )


def commands(text: str) -> list[str]:
    """Return the arguments of the commands of all blocks of a page."""
    return [found["arguments"] for found in _BLOCK.finditer(text)]


def _block(arguments: str) -> str:
    if arguments == COSTS:
        return report.costs_table(
            [(name, scale, cost_of(read(name).specs(scale))) for name in NAMES for scale in SCALES]
        )
    found = _RECORDED.fullmatch(arguments)
    if found is None:
        raise ValueError(
            f"<!-- alma reproduce {arguments} -->: no block is computed for this command; write {COSTS!r}, or "
            f"NAME --scale SCALE --recorded with one of {', '.join(NAMES)} and one of {', '.join(SCALES)}"
        )
    return _scores_and_findings(*found.groups())


def _scores_and_findings(name: str, scale: str) -> str:
    plan = read(name)
    specs = plan.specs(scale)
    outcome = Outcome(plan, scale, specs, select(specs, _recorded_runs()), recorded=True)
    if not outcome.runs:
        return "No runs are recorded yet.\n"
    judged = [one for one in judge_outcomes([outcome], scale) if one.finding.id in plan.findings]
    scores = "" if plan.text else cer_by_wait(outcome.runs)
    return "\n".join(filter(None, [f"{outcome.coverage}.\n", scores, report.findings_table(judged)]))


_recorded_runs = cache(recorded_runs)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
