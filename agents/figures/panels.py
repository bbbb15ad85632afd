"""Which cells share a panel, where a figure has a panel for each width or waiting time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.cells import Cell, within

PANELS = ("auto", "width", "wait", "both", "none")
TOGETHER = 12  # lines, policies among them, that can be told apart in one panel


@dataclass(frozen=True)
class Panel:
    """Cells that share axes, by what they are called there."""

    title: str
    lines: dict[str, Cell]


def arrange(cells: Sequence[Cell], panels: str = "auto") -> tuple[list[Panel], int]:
    """Panels, and how many of them stand side by side.

    Args:
        cells: of one stream.
        panels: what tells the panels apart: ``width``, ``wait``, ``both`` or ``none``; ``auto``: both where there are
            several methods of several widths and waiting times, else the one of which there are several; but policies
            stand beside the waiting times that they are to be compared with, where that are not too many lines.

    Raises:
        ValueError: there is no such choice.
    """
    if panels not in PANELS:
        raise ValueError(f"panels={panels!r}: choose one of {', '.join(PANELS)}")
    by_width, by_wait = _dimensions(cells, panels)
    found: dict[tuple[Any, ...], dict[str, Cell]] = {}
    names = within(cells, width=not by_width, when=not by_wait)
    ordered = sorted(zip(cells, names, strict=True), key=lambda pair: _place(pair[0], by_width, by_wait))
    for cell, name in ordered:
        found.setdefault((cell.width if by_width else None, cell.when if by_wait else None), {})[name] = cell
    made = [Panel(_title(*place), lines) for place, lines in found.items()]
    waits = len({when for _, when in found})
    # A row for each width, where every width has all waiting times.
    return made, waits if by_width and by_wait and len(found) % waits == 0 else 3


def line_names(panels: Sequence[Panel], cells: Sequence[Cell]) -> list[str]:
    """What the lines of all panels are called, in the order of their cells: a method's style is the same everywhere."""
    places = {id(cell): place for place, cell in enumerate(cells)}
    first: dict[str, int] = {}
    for panel in panels:
        for name, cell in panel.lines.items():
            first[name] = min(first.get(name, len(cells)), places[id(cell)])
    return sorted(first, key=first.__getitem__)


def _dimensions(cells: Sequence[Cell], panels: str) -> tuple[bool, bool]:
    """Whether the panels differ in width, and in the waiting time."""
    if panels != "auto":
        return panels in ("width", "both"), panels in ("wait", "both")
    widths, waits = len({cell.width for cell in cells}), len({cell.when for cell in cells})
    others = len({(cell.method, cell.replay) for cell in cells})
    apart = all(cell.wait is not None for cell in cells) or len(cells) > TOGETHER * widths
    return widths > 1, waits > 1 and others > 1 and apart


def _place(cell: Cell, by_width: bool, by_wait: bool) -> tuple[Any, ...]:
    width = (cell.width or 0) if by_width else 0
    return (width, cell.wait is None, cell.wait or 0, cell.when) if by_wait else (width,)


def _title(width: int | None, when: str | None) -> str:
    return ", ".join([f"width {width}"] * (width is not None) + [str(when)] * (when is not None))
