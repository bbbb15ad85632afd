"""Panels of a figure: which seed groups share a panel, by width or by waiting time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.analysis.seed_groups import SeedGroup, short_names

PANELS = ("auto", "width", "wait", "both", "none")
TOGETHER = 12  # most lines, policies included, that a reader distinguishes in one panel


@dataclass(frozen=True)
class Panel:
    """Seed groups that share axes, by the names of their lines."""

    title: str
    lines: dict[str, SeedGroup]


def arrange(groups: Sequence[SeedGroup], panels: str = "auto") -> tuple[list[Panel], int]:
    """Return the panels of one stream and the number of panels in a row.

    The panels differ in ``width``, ``wait``, ``both`` or ``none``. ``auto`` chooses both if several methods have
    several widths and waiting times, else the one that has several values. Policies share a panel with the waiting
    times, for comparison, if the lines are not too many.

    Raises:
        ValueError: the choice is unknown.
    """
    if panels not in PANELS:
        raise ValueError(f"panels={panels!r}: choose one of {', '.join(PANELS)}")
    by_width, by_wait = _dimensions(groups, panels)
    found: dict[tuple[Any, ...], dict[str, SeedGroup]] = {}
    names = short_names(groups, width=not by_width, when=not by_wait)
    ordered = sorted(zip(groups, names, strict=True), key=lambda pair: _place(pair[0], by_width, by_wait))
    for group, name in ordered:
        found.setdefault((group.width if by_width else None, group.when if by_wait else None), {})[name] = group
    arranged = [Panel(_title(*place), lines) for place, lines in found.items()]
    waits = len({when for _, when in found})
    # One row per width if every width has all waiting times.
    return arranged, waits if by_width and by_wait and len(found) == waits * len({width for width, _ in found}) else 3


def line_names(panels: Sequence[Panel], groups: Sequence[SeedGroup]) -> list[str]:
    """Return the names of the lines of all panels in the order of their seed groups; one name has one stroke."""
    places = {id(group): place for place, group in enumerate(groups)}
    lines = sorted((places[id(group)], name) for panel in panels for name, group in panel.lines.items())
    return list(dict.fromkeys(name for _, name in lines))


def _dimensions(groups: Sequence[SeedGroup], panels: str) -> tuple[bool, bool]:
    """Return whether the panels differ in the width, and whether they differ in the waiting time."""
    if panels != "auto":
        return panels in ("width", "both"), panels in ("wait", "both")
    widths, waits = len({group.width for group in groups}), len({group.when for group in groups})
    others = len({(group.method, group.replay) for group in groups})
    apart = all(group.wait is not None for group in groups) or len(groups) > TOGETHER * widths
    return widths > 1, waits > 1 and others > 1 and apart


def _place(group: SeedGroup, by_width: bool, by_wait: bool) -> tuple[Any, ...]:
    width = (group.width or 0) if by_width else 0
    return (width, group.wait is None, group.wait or 0, group.when) if by_wait else (width,)


def _title(width: int | None, when: str | None) -> str:
    return ", ".join([f"width {width}"] * (width is not None) + [str(when)] * (when is not None))
