"""Which setting is better, and is that more than the luck of the seeds? Comparison tables of finished runs.

Settings are compared seed by seed, since the stream of a seed is the same for all: Student's paired t-test, against the
best line or a named one, with Holm's correction: for the lines that are compared with a named one in a column, or for
all pairs of lines, since the best one is chosen from the same runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.cells import Cell, cells_of, headline, sized, streams, within
from agents.finished import FinishedRun
from agents.report import Measure
from agents.statistics import Interval, holm, paired, paired_p
from alma_env import Score

ALPHA = 0.05
LOWER, HIGHER, UNTESTED = "↓", "↑", "‡"

_KEYS: dict[str, Callable[[Cell], str]] = {
    "agent": lambda cell: cell.method,
    "width": lambda cell: f"width {cell.width}",
    "when": lambda cell: cell.when,
    "replay": lambda cell: "replay" if cell.replay else "no replay",
}
KEYS = ("env", *_KEYS)


@dataclass(frozen=True)
class Entry:
    """One number of a table.

    Attributes:
        interval: mean over the seeds with its 95 % interval.
        best: whether it is the lowest mean of its column, or as low.
        difference: to the line that is compared with, seed by seed; None of that line itself, or where there is none.
        p: of the difference, two-sided, after Holm's correction; None where it was not tested.
        mark: what of that is shown: significantly lower or higher, or not tested for want of common seeds.
    """

    interval: Interval
    best: bool
    difference: Interval | None = None
    p: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Line:
    """One setting.

    Attributes:
        group: name of those that it is compared with.
        name: what tells it from them.
        seeds: number of its runs.
        entries: by column.
    """

    group: str
    name: str
    seeds: int
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Comparison:
    """A table of settings whose errors are of one kind.

    Attributes:
        measure: what their errors are.
        against: the line that each is compared with, in words.
        lines: in the order of the groups.
        notes: what a reader must know of it.
    """

    measure: Measure
    against: str
    lines: Sequence[Line]
    notes: tuple[str, ...]


def compare(runs: Sequence[FinishedRun], by: Sequence[str] = ("env",), against: str | None = None) -> list[Comparison]:
    """Compare finished runs; error rates and perplexities in tables of their own.

    Args:
        runs: of any streams; runs on different streams are never compared.
        by: which of env, agent, width, when and replay all lines that are compared have in common.
        against: agent id, method or name of the line that is compared with; None: the best line of each column.

    Raises:
        ValueError: there is no such key, no such line, or several lines that `against` may mean.
    """
    for key in by:
        if key not in KEYS:
            raise ValueError(f"--by {key}: lines have {', '.join(KEYS)} in common; choose some of these")
    tables: dict[str, list[Line]] = {}
    measures: dict[str, Measure] = {}
    notes: dict[str, list[str]] = {}
    missing = []
    of = streams(runs)
    for stream, alike in of.items():
        cells, counted_once = cells_of(alike)
        measure = cells[0].measure
        measures[measure.heading] = measure
        told = notes.setdefault(measure.heading, [])
        told += counted_once
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            groups.setdefault(", ".join(_KEYS[key](cell) for key in by if key != "env"), []).append(cell)
        for members in groups.values():
            group = headline(stream, members)
            reference = None if against is None else _named(against, members, group)
            if against is not None and reference is None:
                missing.append(f"{group}: no line {against} to compare with")
            lines = list(_lines(group, members, reference, best=against is None))
            told += [f"{group}: one line, nothing to compare with"] * (len(lines) == 1 and len(groups) > 1)
            tables.setdefault(measure.heading, []).extend(lines)
    if against is not None and len(missing) == len({line.group for lines in tables.values() for line in lines}):
        raise ValueError(f"--against {against}: no line is called that; give an agent id such as sm, or a line's name")
    return [
        Comparison(measures[heading], against or "the best", lines, (*notes[heading], *missing))
        for heading, lines in tables.items()
    ]


def columns_of(measure: Measure) -> dict[str, Callable[[Score], float]]:
    """What is compared, by heading."""
    return {
        measure.heading: measure.sum,
        f"final {measure.name}": lambda score: score.final_error,
        "Mem": lambda score: float(score.mem),
        "Comp": lambda score: float(score.comp),
    }


def _named(against: str, cells: Sequence[Cell], group: str) -> Cell | None:
    wanted = against.lower()
    names = within(cells)
    for choices in (
        names,
        [cell.name for cell in cells],
        [sized(cell) for cell in cells],
        [cell.agent for cell in cells],
    ):
        found = [cell for cell, name in zip(cells, choices, strict=True) if name.lower() == wanted]
        if len(found) > 1:
            several = [name for cell, name in zip(cells, names, strict=True) if cell in found]
            raise ValueError(
                f"--against {against}: {len(found)} lines of {group} may be meant ({'; '.join(several[:3])} …); give "
                "one of these names, or say with --by what compared lines have in common, as in --by env width when"
            )
        if found:
            return found[0]
    return None


def _lines(group: str, cells: Sequence[Cell], reference: Cell | None, *, best: bool) -> Iterator[Line]:
    columns = {heading: _column(cells, of, reference, best) for heading, of in columns_of(cells[0].measure).items()}
    for place, (cell, name) in enumerate(zip(cells, within(cells), strict=True)):
        yield Line(group, name, len(cell.runs), {heading: entries[place] for heading, entries in columns.items()})


def _column(cells: Sequence[Cell], of: Callable[[Score], float], reference: Cell | None, best: bool) -> list[Entry]:
    values = [cell.values(of) for cell in cells]
    intervals = [Interval.of(list(own.values())) for own in values]
    lowest = min(interval.mean for interval in intervals)
    isbest = [math.isclose(interval.mean, lowest, rel_tol=1e-12) for interval in intervals]
    if best:
        reference = cells[isbest.index(True)]
    if reference is None:
        return [Entry(interval, lead) for interval, lead in zip(intervals, isbest, strict=True)]
    those = reference.values(of)
    p_values = [None if cell is reference else paired_p(own, those) for cell, own in zip(cells, values, strict=True)]
    # The best line is chosen by what is tested, so any two lines might have been compared.
    tests = len(cells) * (len(cells) - 1) // 2 if best else None
    corrected = iter(holm([p for p in p_values if p is not None], tests))
    entries = []
    for cell, own, interval, lead, p in zip(cells, values, intervals, isbest, p_values, strict=True):
        if cell is reference:
            entries.append(Entry(interval, lead))
            continue
        difference = paired(own, those)
        p = None if p is None else next(corrected)
        alone = len(cell.runs) == len(reference.runs) == 1  # the caption says so once
        mark = UNTESTED if p is None and not alone else ""
        if p is not None and p < ALPHA and difference is not None:
            mark = LOWER if difference.mean < 0 else HIGHER
        entries.append(Entry(interval, lead, difference, p, mark))
    return entries
