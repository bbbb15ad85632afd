"""The computed blocks of a page of the documentation: costs, and scores and findings of the recorded runs.

A block is the text between two comments. The first comment is the command that prints the text:

    <!-- alma reproduce fig7 --scale cpu --recorded --print findings -->
    <!-- end -->

``python -m agents.reproduction.docs_blocks docs/reproduction.md`` computes the blocks of a page again. Without
``--print``, a block has the scores and the findings of a plan. ``all --dry-run`` has the costs of all scales.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

from agents.policies.validation import key_values
from agents.reproduction import report
from agents.reproduction.cost import cost_of
from agents.reproduction.outcome import Outcome, recorded_runs
from agents.reproduction.plans import BY_NAME, NAMES, SCALES, read
from agents.reproduction.printed import PARTS, printed

_BLOCK = re.compile(r"<!-- alma reproduce (?P<arguments>[^>]*?) -->\n.*?<!-- end -->", re.DOTALL)
_RECORDED = re.compile(
    rf"({'|'.join(NAMES)}|all) --scale ({'|'.join(SCALES)}) --recorded"
    rf"(?: --print ({'|'.join(PARTS)}))?(?: --set (\S+(?: \S+)*))?"
)
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


@cache
def _block(arguments: str) -> str:
    if arguments == COSTS:
        return report.costs_table(
            [(name, scale, cost_of(read(name).specs(scale))) for name in NAMES for scale in SCALES]
        )
    found = _RECORDED.fullmatch(arguments)
    if found is None:
        raise ValueError(
            f"<!-- alma reproduce {arguments} -->: no block is computed for this command; write {COSTS!r}, or "
            f"NAME --scale SCALE --recorded [--print PART] [--set KEY=VALUE ...] with one of {', '.join(NAMES)}, all; "
            f"of {', '.join(SCALES)}; and of {', '.join(PARTS)}"
        )
    name, scale, part, settings = found.groups()
    plans = [read(one) for one in NAMES if one == name or (name == "all" and one not in BY_NAME)]
    given = key_values((settings or "").split())
    outcomes = [
        Outcome.of(plan, scale, plan.specs(scale, settings=given), _recorded_runs(), recorded=True) for plan in plans
    ]
    return "\n".join(printed(one, outcomes) for one in ([part] if part else ["scores", "findings"]))


_recorded_runs = cache(recorded_runs)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
