"""A drawing: a figure with the numbers that are drawn, and the files that it is written to."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf", "csv")


@dataclass(frozen=True)
class Drawing:
    """What one kind of figure made of runs.

    Attributes:
        figure: to be shown or saved.
        rows: what is drawn, as the lines of a CSV file; each with the same names.
        notes: what a reader must know of it, in words.
    """

    figure: Figure
    rows: list[dict[str, Any]]
    notes: tuple[str, ...] = ()


def save(drawing: Drawing, stem: Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Write a drawing as STEM.png, STEM.csv and so on; its folder is made. The same runs give the same bytes.

    Raises:
        ValueError: a format is none of png, svg, pdf, csv.
    """
    require_formats(formats)
    stem.parent.mkdir(parents=True, exist_ok=True)
    return [_save(drawing, stem.with_name(f"{stem.name}.{form}"), form) for form in formats]


def require_formats(formats: Sequence[str]) -> None:
    """Raise ValueError for what is none of the formats."""
    for form in formats:
        if form not in FORMATS:
            raise ValueError(f"format {form!r}: a figure is written as one or more of {', '.join(FORMATS)}")


def _save(drawing: Drawing, file: Path, form: str) -> Path:
    if form == "csv":
        with open(file, "w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(drawing.rows[0]) if drawing.rows else [])
            writer.writeheader()
            writer.writerows(drawing.rows)
        return file
    import matplotlib

    # Without dates, and with ids that are no random numbers.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "alma", "svg.fonttype": "path", "pdf.fonttype": 42}):
        drawing.figure.savefig(file, dpi=150, metadata=undated.get(form))
    return file
