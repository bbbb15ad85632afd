"""The computed blocks of a page of the documentation: costs, and scores and findings of the recorded runs.

A block is the text between two comments. The first comment is the command that prints the text:

    <!-- alma reproduce fig7 --scale cpu --recorded --print findings -->
    <!-- end -->

``python -m agents.reproduction.docs_blocks docs/reproduction.md`` computes the blocks of a page again. Without
``--print``, a block has the scores and the findings of a plan. ``all --dry-run`` has the costs of all scales.

``alma plot KIND --recorded --where KEY=VALUE`` has the table of a figure; without ``--where`` it shows all streams.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

from agents import figures
from agents.analysis.measures import measure_of
from agents.policies.validation import key_values
from agents.reproduction import report
from agents.reproduction.cost import cost_of
from agents.reproduction.outcome import Outcome, recorded_runs
from agents.reproduction.plans import BY_NAME, NAMES, SCALES, Request, read
from agents.reproduction.printed import PARTS, printed

_BLOCK = re.compile(r"<!-- alma (?P<command>reproduce|plot) (?P<arguments>[^>]*?) -->\n.*?<!-- end -->", re.DOTALL)
_RECORDED = re.compile(
    rf"({'|'.join(NAMES)}|all) --scale ({'|'.join(SCALES)}) --recorded"
    rf"(?: --print ({'|'.join(PARTS)}))?(?: --set (\S+(?: \S+)*))?"
)
_TABLE = re.compile(r"(\S+) --recorded(?: --where (\S+(?: \S+)*))?")
COSTS = "all --dry-run"


def fill(text: str) -> str:
    """Return a page with all of its blocks computed.

    Raises:
        ValueError: no block is computed for the command of a comment.
    """

    def filled(found: re.Match[str]) -> str:
        command, arguments = found["command"], found["arguments"]
        block = _table(arguments) if command == "plot" else _block(arguments)
        return f"<!-- alma {command} {arguments} -->\n\n{block}\n<!-- end -->"

    return _BLOCK.sub(filled, text)


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
    request = Request(scale, settings=given)
    return "\n".join(
        printed(one, outcomes, _recorded_runs(), request) for one in ([part] if part else ["scores", "findings"])
    )


@cache
def _table(arguments: str) -> str:
    """Return the table of a figure of the recorded runs."""
    found = _TABLE.fullmatch(arguments)
    with_table = [name for name, kind in figures.KINDS.items() if kind.has_table]
    if found is None or found[1] not in with_table:
        raise ValueError(
            f"<!-- alma plot {arguments} -->: no block is computed for this command; write KIND --recorded "
            f"[--where KEY=VALUE ...] with one of {', '.join(with_table)}"
        )
    kind, where = found.groups()
    values = key_values((where or "").split(), "--where", "width=64")
    configs = [(run, run.run_config) for run in _recorded_runs()]
    configs = [(run, config) for run, config in configs if measure_of(config.protocol) in figures.KINDS[kind].measures]
    chosen = [run for run, config in configs if all(config.get(key, None) == value for key, value in values.items())]
    return figures.draw(kind, chosen).table


_recorded_runs = cache(recorded_runs)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
