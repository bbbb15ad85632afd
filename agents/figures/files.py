"""A drawing, which is a figure with its numbers, and the files to which it is written."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alma_env.files import naming, replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf", "csv")


@dataclass(frozen=True)
class Drawing:
    """A figure with its numbers.

    Attributes:
        figure: the figure.
        rows: the drawn numbers, as rows with equal columns.
        notes: for the reader, such as runs that were left out.
        table: the findings of the figure as Markdown; empty for most kinds.
    """

    figure: Figure
    rows: list[dict[str, Any]]
    notes: tuple[str, ...] = ()
    table: str = ""


def save(drawing: Drawing, stem: Path, formats: Sequence[str] = ("png",)) -> list[Path]:
    """Write a drawing as STEM.png, STEM.csv and so on, its table as STEM.md if it has one, and create the folder.

    Equal runs give equal bytes.

    Raises:
        ValueError: a format is not one of png, svg, pdf, csv.
    """
    require_formats(formats)
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [_save(drawing, stem.with_name(f"{stem.name}.{form}"), form) for form in formats]
    if drawing.table:
        files.append(stem.with_name(f"{stem.name}.md"))
        replace_file(files[-1], drawing.table)
    return files


def require_formats(formats: Sequence[str]) -> None:
    """Raise ValueError if a format is unknown."""
    for form in formats:
        if form not in FORMATS:
            raise ValueError(f"format {form!r}: unknown; choose one or more of {', '.join(FORMATS)}")


def require_picture(file: Path | None) -> None:
    """Raise ValueError if the file of ``--picture`` has an ending that matplotlib does not write."""
    if file is None:
        return
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if file.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(f"--picture {file}: must end with one of .{', .'.join(kinds)}; write {file.stem}.png")


def _save(drawing: Drawing, file: Path, form: str) -> Path:
    if form == "csv":
        with naming(file), open(file, "w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(drawing.rows[0]) if drawing.rows else [])
            writer.writeheader()
            writer.writerows(drawing.rows)
        return file
    return write(drawing.figure, file)


def write(figure: Figure, file: Path) -> Path:
    """Write a figure in the format of the file's ending, create the folder, and return the file.

    Equal figures give equal bytes: the file has no date and no random ids.
    """
    import matplotlib

    file.parent.mkdir(parents=True, exist_ok=True)
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    repeatable = matplotlib.rc_context({"svg.hashsalt": "alma", "svg.fonttype": "path", "pdf.fonttype": 42})
    with naming(file), repeatable:
        figure.savefig(file, dpi=150, metadata=undated.get(file.suffix.lower()))
    return file
