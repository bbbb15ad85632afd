"""What of a page of the documentation is computed: costs, and scores and findings of the recorded runs.

It stands between two comments, of which the first is the command that prints it:

    <!-- alma reproduce fig7 --scale cpu --recorded -->
    <!-- end -->

``python -m agents.reproduction.page docs/reproduction.md`` writes it anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from agents.finished import FinishedRun
from agents.reproduction import report
from agents.reproduction.cer_by_wait import cer_by_wait
from agents.reproduction.cost import cost_of
from agents.reproduction.outcome import Outcome, judged
from agents.reproduction.plan import NAMES, SCALES, read
from agents.reproduction.recorded import recorded_runs

_BLOCK = re.compile(r"<!-- alma reproduce (?P<words>[^>]*?) -->\n.*?<!-- end -->", re.DOTALL)
COSTS = "all --dry-run"


def fill(text: str) -> str:
    """A page with all of these blocks as they are now.

    Raises:
        ValueError: a block's comment is no such command.
    """
    return _BLOCK.sub(
        lambda found: f"<!-- alma reproduce {found['words']} -->\n{_of(found['words'])}<!-- end -->", text
    )


def commands(text: str) -> list[str]:
    """The words of the blocks of a page."""
    return [found["words"] for found in _BLOCK.finditer(text)]


def _of(words: str) -> str:
    if words == COSTS:
        costs = [(name, scale, cost_of(read(name).specs(scale))) for name in NAMES for scale in SCALES]
        return f"\n{report.costs_table(costs)}\n"
    name, *rest = words.split()
    if name not in NAMES or len(rest) != 3 or (rest[0], rest[2]) != ("--scale", "--recorded") or rest[1] not in SCALES:
        raise ValueError(
            f"<!-- alma reproduce {words} -->: nothing stands for this; write {COSTS!r}, or NAME --scale SCALE "
            f"--recorded with one of {', '.join(NAMES)} and of {', '.join(SCALES)}"
        )
    return _scores_and_findings(name, rest[1], _runs())


def _scores_and_findings(name: str, scale: str, runs: Sequence[FinishedRun]) -> str:
    plan = read(name)
    outcome = Outcome.of(plan, scale, plan.specs(scale), runs, recorded=True)
    if not outcome.runs:
        return "\nNo runs are recorded yet.\n\n"
    own = [one for one in judged([outcome], scale) if one.finding.id in plan.findings]
    scores = "" if plan.text else cer_by_wait(outcome.runs)
    parts = [
        f"{outcome.coverage[0].upper()}{outcome.coverage[1:]}.\n",
        *filter(None, [scores]),
        report.findings_table(own),
    ]
    return "\n" + "\n".join(parts) + "\n"


@cache
def _runs() -> list[FinishedRun]:
    return recorded_runs()


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
