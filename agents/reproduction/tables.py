"""How long to wait, by method and width: CER of the runs of a plan, a column for each waiting time."""

from __future__ import annotations

from collections.abc import Sequence

from agents.cells import cells_of, sized, streams
from agents.finished import FinishedRun
from agents.reproduction import report
from agents.statistics import Interval


def cer_by_wait(runs: Sequence[FinishedRun]) -> str:
    """A Markdown table for each stream that was run with several waiting times; the lowest mean of a line in bold.

    Empty where there is no such stream. Runs whose policy decides when to wait are left out.
    """
    return "\n".join(table for alike in streams(runs).values() if (table := _table(alike)))


def _table(runs: Sequence[FinishedRun]) -> str:
    lines: dict[str, dict[int, Interval]] = {}
    for cell in cells_of(runs)[0]:
        if cell.wait is not None:
            name = sized(cell) + ", replay" * cell.replay
            lines.setdefault(name, {})[cell.wait] = cell.interval(lambda score: score.cer)
    intervals = [interval for line in lines.values() for interval in line.values()]
    waits = sorted({wait for line in lines.values() for wait in line})
    if len(waits) < 2:
        return ""
    seeds = max(interval.n for interval in intervals)
    rows = [(name, *_texts(line, waits, seeds)) for name, line in lines.items()]
    numbers = range(1, len(waits) + 1)
    caption = f"CER, mean ± 95 % interval over {seeds} {'seeds' if seeds > 1 else 'seed'}"
    if any(interval.n < seeds for interval in intervals):
        caption += ", or over as many as stand in brackets"
    return (
        report.table(("method and width", *(f"w = {wait}" for wait in waits)), rows, right=numbers)
        + f"\n{caption}. Bold: the lowest of several in a line.\n"
    )


def _texts(line: dict[int, Interval], waits: Sequence[int], seeds: int) -> list[str]:
    lowest = min(interval.mean for interval in line.values()) if len(line) > 1 else None
    out = []
    for interval in map(line.get, waits):
        if interval is None:
            out.append("–")
            continue
        text = f"**{interval.text('.1f')}**" if interval.mean == lowest else interval.text(".1f")
        out.append(text if interval.n == seeds else f"{text} ({interval.n})")
    return out
