"""Tables of a reproduction as Markdown: CER by waiting time, and perplexities next to the paper's tables 1 and 2.

The paper gives numbers only for text. Its figures have no tables, and their CER has an unknown unit, so images are
compared by order only.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from statistics import median
from typing import NamedTuple

from agents.analysis.markdown import table
from agents.analysis.seed_groups import find_seed_groups, streams
from agents.analysis.statistics import Interval
from agents.catalogue.run_config import RunConfig
from agents.runs.load import FinishedRun


def cer_by_wait(runs: Sequence[FinishedRun]) -> str:
    """Return a Markdown table for each stream that was run with several waiting times; empty if there is none.

    The lowest mean of a line is bold. Runs whose policy decides when to wait are left out.
    """
    return "\n".join(text for of_stream in streams(runs).values() if (text := _cer_table(of_stream)))


def _cer_table(runs: Sequence[FinishedRun]) -> str:
    lines: dict[str, dict[int, Interval]] = {}
    for group in find_seed_groups(runs)[0]:
        if group.wait is not None:
            name = group.sized_name + ", replay" * group.replay
            lines.setdefault(name, {})[group.wait] = group.interval(lambda score: score.cer)
    intervals = [interval for line in lines.values() for interval in line.values()]
    waits = sorted({wait for line in lines.values() for wait in line})
    if len(waits) < 2:
        return ""
    seeds = max(interval.n for interval in intervals)
    rows = [(name, *_cer_texts(line, waits, seeds)) for name, line in lines.items()]
    caption = f"CER, mean ± 95 % interval over {seeds} {'seeds' if seeds > 1 else 'seed'}"
    if any(interval.n < seeds for interval in intervals):
        caption += ", or over the number of seeds in brackets"
    caption += ". Bold: the lowest mean of a line."
    halves = [interval.half / interval.mean for interval in intervals if interval.half is not None and interval.mean]
    if halves:
        caption += f" Over {len(halves)} settings, the median of ± is {100 * median(halves):.1f} % of the CER."
    headings = ("method and width", *(f"w = {wait}" for wait in waits))
    return table(headings, rows, right=range(1, len(headings))) + f"\n{caption}\n"


def _cer_texts(line: Mapping[int, Interval], waits: Sequence[int], seeds: int) -> list[str]:
    lowest = min(interval.mean for interval in line.values()) if len(line) > 1 else None
    texts = []
    for interval in map(line.get, waits):
        if interval is None:
            texts.append("–")
            continue
        text = f"**{interval.text('.1f')}**" if interval.mean == lowest else interval.text(".1f")
        texts.append(text if interval.n == seeds else f"{text} ({interval.n})")
    return texts


class Row(NamedTuple):
    """A row of a table of perplexities; the numbers of experts and members are those before growth."""

    size: str  # of the network, in the paper base or large
    agent: str
    experts: int  # of each Switch layer
    members: int  # networks of an ensemble
    wait: int
    updates: int  # of a stage


@cache
def published(updates: int) -> dict[Row, tuple[float | None, ...]]:
    """Return the paper's table 2 by row: perplexities after each mega-batch, None where the paper has none.

    Args:
        updates: updates of a stage on one mega-batch.
    """
    found = {}
    for line in csv.DictReader((files(__package__) / "published.csv").read_text(encoding="utf-8").splitlines()):
        experts, members, wait, times = (int(line[name]) for name in ("experts", "members", "wait", "times"))
        row = Row(line["size"], line["agent"], experts, members, wait, times * updates)
        texts = [line[f"t{tick}"] for tick in range(1, 5)]
        found[row] = tuple(float(text) if text else None for text in texts)
    return found


def perplexities(runs: Sequence[FinishedRun], updates: int) -> str:
    """Return a Markdown table of the perplexities of runs on text: mean ± 95 % interval over seeds at each tick.

    A row that the paper has, too, shows the perplexity of the paper in brackets; ``updates`` as for `published`.
    """
    groups: dict[Row, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(_row(run.run_config), []).append(run)
    ticks = range(1, max((len(run.columns) for run in runs), default=1))
    headings = ("agent", "experts", "w", "updates", "seeds", "|θ|, M", *(f"t={tick}" for tick in ticks))
    rows = [_texts(row, of_row, ticks, published(updates).get(row, ())) for row, of_row in groups.items()]
    caption = "Test perplexity, mean ± 95 % interval over seeds. \\*: not trained yet."
    caption += " In brackets: the paper's." if any(row in published(updates) for row in groups) else ""
    return table(headings, rows, right=range(2, len(headings))) + f"\n{caption}\n"


def _row(config: RunConfig) -> Row:
    names = ("size", "agent", "width", "members", "wait", "updates")
    return Row(*(config.get(name, 1) for name in names))


def _texts(row: Row, runs: Sequence[FinishedRun], ticks: Sequence[int], of_paper: Sequence[float | None]) -> list[str]:
    sizes = sorted(set(runs[0].columns.parameters[row.wait :]))
    members = {"ens": f"@{row.members}", "gens": "@1…"}.get(row.agent, "")
    return [
        f"{row.agent} ({row.size})",
        f"{row.experts}{members}",
        str(row.wait),
        f"{row.updates:,}",
        str(len(runs)),
        " to ".join(f"{number / 1e6:.2f}" for number in dict.fromkeys((sizes[0], sizes[-1]))),
        *("\\*" if tick < row.wait else _perplexity(runs, tick, of_paper[tick - 1 : tick]) for tick in ticks),
    ]


def _perplexity(runs: Sequence[FinishedRun], tick: int, of_paper: Sequence[float | None]) -> str:
    mean = Interval.of([run.columns.error[tick] for run in runs]).text(".2f")
    return mean + "".join(f" ({value:.2f})" for value in of_paper if value is not None)
