"""The paper's tables 1 and 2 from runs: perplexity after each mega-batch, ``*`` while a learner still waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.finished import FinishedRun
from agents.reproduction.report import table
from agents.statistics import Interval

HEADINGS = ("agent", "experts", "w", "updates", "seeds", "|θ|, M")


def perplexities(runs: Sequence[FinishedRun]) -> str:
    """A Markdown table with a line for each setting: mean ± 95 % interval over its seeds at each tick.

    Args:
        runs: of text, with fixed waiting times.
    """
    groups: dict[tuple[Any, ...], list[FinishedRun]] = {}
    for run in runs:
        agent = run.config["agent"]
        key = (
            agent.get("size", ""),
            agent["id"],
            agent["width"],
            agent.get("members", 1),
            agent["policy"]["wait"],
            agent["stage"]["updates"],
        )
        groups.setdefault(key, []).append(run)
    ticks = max((len(run.columns) - 1 for run in runs), default=0)
    rows = [_row(key, alike, ticks) for key, alike in groups.items()]
    headings = (*HEADINGS, *(f"t={tick}" for tick in range(1, ticks + 1)))
    return table(headings, rows, right=range(2, len(headings)))


def _row(key: tuple[Any, ...], runs: Sequence[FinishedRun], ticks: int) -> list[str]:
    size, agent, width, members, wait, updates = key
    sizes = sorted(set(runs[0].columns.parameters[wait:]))
    experts = str(width) if agent in ("sm", "gmoe") else f"{width}@{'1…' if agent == 'gens' else members}"
    return [
        f"{agent} ({size})",
        experts,
        str(wait),
        f"{updates:,}" if updates is not None else "–",
        str(len(runs)),
        " to ".join(f"{number / 1e6:.2f}" for number in dict.fromkeys((sizes[0], sizes[-1]))),
        *(
            "\\*" if tick < wait else Interval.of([run.columns.error[tick] for run in runs]).text(".2f")
            for tick in range(1, ticks + 1)
        ),
    ]
