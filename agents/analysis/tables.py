"""Comparison tables of finished runs: which setting is better, and is the difference significant?

Settings are compared seed by seed, because the stream of a seed is the same for all settings. The test is Student's
paired t-test against the best line or a named line, with Holm's correction. Against a named line, the correction is for
the compared lines of a column. Against the best line, it is for all pairs of lines, because the same runs select the
best line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.analysis.measures import Measure, marks_of
from agents.analysis.seed_groups import SeedGroup, find_seed_groups, headline, short_names, streams
from agents.analysis.statistics import ALPHA, Interval, holm, paired_difference, paired_p_value
from agents.runs.load import FinishedRun
from alma_env import Score

LOWER, HIGHER, UNTESTED = "↓", "↑", "‡"

_KEYS: dict[str, Callable[[SeedGroup], str]] = {
    "agent": lambda seed_group: seed_group.method,
    "width": lambda seed_group: f"width {seed_group.width}",
    "when": lambda seed_group: seed_group.when,
    "replay": lambda seed_group: "replay" if seed_group.replay else "no replay",
}
KEYS = ("env", *_KEYS)


@dataclass(frozen=True)
class Entry:
    """One number of a table.

    The difference to the reference line is paired by seed; it is None for the reference line itself, without a
    reference line and without common seeds.
    """

    interval: Interval
    best: bool  # the mean is the lowest of its column, or equal to the lowest
    difference: Interval | None = None
    p: float | None = None  # of the difference, two-sided, after Holm's correction; None if not tested
    mark: str = ""  # LOWER or HIGHER for a significant difference, UNTESTED if there are too few common seeds


@dataclass(frozen=True)
class Line:
    """One line of a table: a setting."""

    group: str  # of lines that are compared with each other
    name: str  # within the group
    seeds: int
    entries: Mapping[str, Entry]  # by heading
    marks: str = ""  # of the runs, see `measures.marks_of`


@dataclass(frozen=True)
class Comparison:
    """A table of settings with one measure, and messages for the reader, such as runs that were left out."""

    measure: Measure
    against: str  # name of the reference line
    lines: Sequence[Line]  # group by group
    notes: tuple[str, ...]


def compare(runs: Sequence[FinishedRun], by: Sequence[str] = ("env",), against: str | None = None) -> list[Comparison]:
    """Compare finished runs, in one table per measure.

    Args:
        runs: runs of any streams; runs on different streams are never compared.
        by: which of env, agent, width, when and replay all compared lines share.
        against: agent id, method or name of the reference line; None: the best line of each column.

    Raises:
        ValueError: a key is unknown, no line has the name `against`, or several lines have it.
    """
    for key in by:
        if key not in KEYS:
            raise ValueError(f"--by {key}: must be one of {', '.join(KEYS)}, the values that compared lines can share")
    tables: dict[Measure, tuple[list[Line], list[str]]] = {}  # lines and notes
    missing = []
    for stream, runs_of_stream in streams(runs).items():
        seed_groups, duplicates = find_seed_groups(runs_of_stream)
        lines, notes = tables.setdefault(seed_groups[0].measure, ([], []))
        notes += duplicates
        groups: dict[str, list[SeedGroup]] = {}
        for seed_group in seed_groups:
            groups.setdefault(", ".join(_KEYS[key](seed_group) for key in by if key != "env"), []).append(seed_group)
        for members in groups.values():
            group = headline(stream, members)
            reference = None if against is None else _find(against, members, group)
            if against is not None and reference is None:
                missing.append(f"{group}: no line {against} to compare with")
            lines += _lines(group, members, reference, best=against is None)
            if len(members) == 1 and len(groups) > 1:
                notes.append(f"{group}: one line, nothing to compare with")
    if against is not None and len(missing) == len({line.group for lines, _ in tables.values() for line in lines}):
        raise ValueError(f"--against {against}: no line has this name; give an agent id such as sm, or a line's name")
    return [
        Comparison(measure, against or "the best", lines, (*notes, *missing))
        for measure, (lines, notes) in tables.items()
    ]


def columns_of(measure: Measure) -> dict[str, Callable[[Score], float]]:
    """Return the compared numbers by heading."""
    return {
        measure.heading: measure.sum,
        f"final {measure.name}": lambda score: score.final_error,
        "Mem": lambda score: score.mem,
        "Comp": lambda score: score.comp,
    }


def _find(against: str, seed_groups: Sequence[SeedGroup], group: str) -> SeedGroup | None:
    """Return the seed group with a name: within its group, in its stream, method and width, or agent id."""
    names = short_names(seed_groups)
    kinds = [(name, one.name, one.sized_name, one.agent) for name, one in zip(names, seed_groups, strict=True)]
    for kind in zip(*kinds, strict=True):
        found = [number for number, name in enumerate(kind) if name.lower() == against.lower()]
        if len(found) > 1:
            several = "; ".join(names[number] for number in found[:3])
            raise ValueError(
                f"--against {against}: {len(found)} lines of {group} have this name ({several} …); give "
                "one of these names, or say with --by what compared lines share, for example --by env width when"
            )
        if found:
            return seed_groups[found[0]]
    return None


def _lines(group: str, seed_groups: Sequence[SeedGroup], reference: SeedGroup | None, *, best: bool) -> Iterator[Line]:
    columns = {
        heading: _column(seed_groups, of, reference, best) for heading, of in columns_of(seed_groups[0].measure).items()
    }
    for number, (seed_group, name) in enumerate(zip(seed_groups, short_names(seed_groups), strict=True)):
        entries = {heading: column[number] for heading, column in columns.items()}
        marks = marks_of(run.score for run in seed_group.runs.values())
        yield Line(group, name, len(seed_group.runs), entries, marks)


def _column(
    seed_groups: Sequence[SeedGroup], of: Callable[[Score], float], reference: SeedGroup | None, best: bool
) -> list[Entry]:
    intervals = [seed_group.interval(of) for seed_group in seed_groups]
    lowest = min(interval.mean for interval in intervals)
    is_best = [math.isclose(interval.mean, lowest, rel_tol=1e-12) for interval in intervals]
    if best:
        reference = seed_groups[is_best.index(True)]
    if reference is None:
        return [Entry(interval, lead) for interval, lead in zip(intervals, is_best, strict=True)]
    values, reference_values = [seed_group.values(of) for seed_group in seed_groups], reference.values(of)
    p_values = {
        number: p
        for number, seed_group in enumerate(seed_groups)
        if seed_group is not reference and (p := paired_p_value(values[number], reference_values)) is not None
    }
    # The same values select the best line, so any two lines could have been compared.
    tests = len(seed_groups) * (len(seed_groups) - 1) // 2 if best else None
    corrected = dict(zip(p_values, holm(list(p_values.values()), tests), strict=True))
    entries = []
    for number, (seed_group, interval, lead) in enumerate(zip(seed_groups, intervals, is_best, strict=True)):
        if seed_group is reference:
            entries.append(Entry(interval, lead))
            continue
        difference, p = paired_difference(values[number], reference_values), corrected.get(number)
        mark = ""
        # For one seed each, the caption says once that there is no test.
        if p is None and max(len(seed_group.runs), len(reference.runs)) > 1:
            mark = UNTESTED
        elif p is not None and p < ALPHA and difference is not None:
            mark = LOWER if difference.mean < 0 else HIGHER
        entries.append(Entry(interval, lead, difference, p, mark))
    return entries
