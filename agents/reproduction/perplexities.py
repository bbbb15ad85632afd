"""The paper's tables 1 and 2 from runs: perplexity after each mega-batch, ``*`` while a learner still waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agents.finished import FinishedRun
from agents.reproduction.published import published
from agents.reproduction.report import table
from agents.statistics import Interval

HEADINGS = ("agent", "experts", "w", "updates", "seeds", "|θ|, M")


class _Setting(NamedTuple):
    size: str
    agent: str
    experts: int
    members: int
    wait: int
    updates: int


def perplexities(runs: Sequence[FinishedRun], updates: int) -> str:
    """A Markdown table with a line for each setting: mean ± 95 % interval over its seeds at each tick.

    Where a setting is one of the paper's, of size base or large, its perplexity there stands in brackets.

    Args:
        runs: of text, with fixed waiting times.
        updates: of a stage on one mega-batch.
    """
    groups: dict[_Setting, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(_setting(run.config["agent"]), []).append(run)
    ticks = max((len(run.columns) - 1 for run in runs), default=0)
    headings = (*HEADINGS, *(f"t={tick}" for tick in range(1, ticks + 1)))
    rows = [_row(setting, alike, ticks, updates) for setting, alike in groups.items()]
    return table(headings, rows, right=range(2, len(headings)))


def _setting(agent: dict[str, Any]) -> _Setting:
    members, stage = agent.get("members", 1), agent["stage"]
    return _Setting(agent["size"], agent["id"], agent["width"], members, agent["policy"]["wait"], stage["updates"])


def _row(setting: _Setting, runs: Sequence[FinishedRun], ticks: int, updates: int) -> list[str]:
    sizes = sorted(set(runs[0].columns.parameters[setting.wait :]))
    members = {"ens": f"@{setting.members}", "gens": "@1…"}.get(setting.agent, "")
    there = _published(setting, updates)
    return [
        f"{setting.agent} ({setting.size})",
        f"{setting.experts}{members}",
        str(setting.wait),
        f"{setting.updates:,}",
        str(len(runs)),
        " to ".join(f"{number / 1e6:.2f}" for number in dict.fromkeys((sizes[0], sizes[-1]))),
        *(
            "\\*" if tick < setting.wait else _perplexity(runs, tick, there[tick - 1 : tick])
            for tick in range(1, ticks + 1)
        ),
    ]


def _perplexity(runs: Sequence[FinishedRun], tick: int, there: Sequence[float | None]) -> str:
    here = Interval.of([run.columns.error[tick] for run in runs]).text(".2f")
    return here + "".join(f" ({value:.2f})" for value in there if value is not None)


def _published(setting: _Setting, updates: int) -> tuple[float | None, ...]:
    for line in published():
        key = _Setting(line.size, line.agent, line.experts, line.members, line.wait, line.times * updates)
        if key == setting:
            return line.perplexities
    return ()
