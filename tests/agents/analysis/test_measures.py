"""Measures and the table of the terminal."""

from __future__ import annotations

import dataclasses
import math

from rich.console import Console

from agents.analysis import measures
from alma_env import Ledger, Row


def ledger(errors: list[float]) -> Ledger:
    row = Row(0, 0.9, 10, 0, 1.0, {"training": 5}, 5, (), "", False, 0.1)
    return Ledger([dataclasses.replace(row, tick=tick, error=error) for tick, error in enumerate(errors)])


def test_a_table_shows_labels_without_markup() -> None:
    console = Console(width=80, record=True)
    label = "sm 4, mine.Policy(ticks=[1, 2], name='[/b]')"
    console.print(measures.table({label: [ledger([0.9, 0.5])]}, title="[a] title"))
    text = console.export_text()
    assert "[a] title" in text
    column = "".join(line.split("  ")[0].strip() for line in text.splitlines())
    assert label.replace(" ", "") in column.replace(" ", "")


def test_a_table_of_perplexities_omits_tick_0_and_fits_80_columns() -> None:
    console = Console(width=80, record=True)
    seeds = [ledger([300.0, 40.0, 20.0]), ledger([300.0, 60.0, 40.0])]
    console.print(measures.table({"sm 4, wait 1": seeds}, title="text", measure=measures.PERPLEXITY))
    text = console.export_text()
    assert "40.00 ± 127.06  30.00 ± 127.06" in text
    assert "mean over ticks 1..B" in " ".join(text.split())
    for word in ("CER", "fractions", "error", "…"):
        assert word not in text


def test_the_average_perplexity_before_tick_1_is_nan() -> None:
    assert math.isnan(measures.PERPLEXITY.sum(ledger([300.0]).score()))
    assert measures.ERROR_RATE.sum(ledger([0.9]).score()) == 0.9
