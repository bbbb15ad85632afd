"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return a Markdown table that ends with a line end; the columns with the numbers ``right`` are right-aligned."""
    ruler = ["---:" if column in right else "---" for column in range(len(headings))]
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (headings, ruler, *rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def signed(text: str) -> str:
    """Return a number as text with a minus sign instead of a hyphen."""
    return text.replace("-", "−")
