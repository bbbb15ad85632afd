"""Labels tell configurations apart; tables and pictures hold one line for each."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from rich.console import Console

from agents import report
from alma_env import Ledger, Row


def config(seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A configuration as runs write it; ``changes`` by the last part of a number's path."""
    out: dict[str, Any] = {
        "env": "Digits-ALMA-v0",
        "protocol": {"data": "Digits", "ticks": 20},
        "agent": {
            "id": "sm",
            "width": 4,
            "policy": {"wait": 5, "replay": False, "growth": "never"},
            "seed": seed,
            "engine": "plain",
            "from_scratch": False,
            "stage": {"epochs": 1, "select": "val_loss", "patience": None},
        },
        "seed": seed,
        "threads": 1,
        "versions": {"torch": "2.13.0"},
    }
    for part in (out, out["protocol"], out["agent"], out["agent"]["policy"], out["agent"]["stage"], out["versions"]):
        part.update({name: changes.pop(name) for name in list(changes) if name in part})
    out["agent"].update(changes)
    return out


def ledger(errors: list[float]) -> Ledger:
    row = Row(0, 0.9, 10, 0, 1.0, {"training": 5}, 5, (), "", False, 0.1)
    return Ledger([dataclasses.replace(row, tick=tick, error=error) for tick, error in enumerate(errors)])


def test_seeds_alone_share_a_label() -> None:
    assert report.labels([config(0), config(1), config(2)]) == ["sm 4, wait 5"] * 3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epochs": 3}, ["epochs=1", "epochs=3"]),
        ({"from_scratch": True}, ["from_scratch=false", "from_scratch=true"]),
        ({"engine": "compiled"}, ["engine=plain", "engine=compiled"]),
        ({"select": "val_error"}, ["select=val_loss", "select=val_error"]),
        ({"patience": 3}, ["patience=null", "patience=3"]),
        ({"ticks": 10}, ["ticks=20", "ticks=10"]),
        ({"threads": 2}, ["threads=1", "threads=2"]),
        ({"torch": "2.14.0"}, ["torch=2.13.0", "torch=2.14.0"]),
        ({"growth": "every"}, ["growth=never", "growth=every"]),
        ({"epochs": 3, "ticks": 10}, ["epochs=1, ticks=20", "epochs=3, ticks=10"]),
    ],
)
def test_what_differs_under_one_short_label_is_appended(changes: dict[str, Any], expected: list[str]) -> None:
    assert report.labels([config(), config(**changes)]) == [f"sm 4, wait 5, {what}" for what in expected]


def test_a_number_that_only_some_have_is_said_where_it_is() -> None:
    assert report.labels([config(), config(members=3)]) == ["sm 4, wait 5", "sm 4, wait 5, members=3"]


def test_a_label_that_is_unique_stays_short() -> None:
    labels = report.labels([config(), config(width=8, epochs=3), config(epochs=3), config(env="MNIST-ALMA-v0")])
    assert labels == [
        "Digits-ALMA-v0 sm 4, wait 5, epochs=1",
        "Digits-ALMA-v0 sm 8, wait 5",
        "Digits-ALMA-v0 sm 4, wait 5, epochs=3",
        "MNIST-ALMA-v0 sm 4, wait 5",
    ]


def test_two_numbers_of_one_name_are_told_apart_by_their_paths() -> None:
    labels = report.labels([config(), config(data="MNIST", gate={"data": 3})])
    assert labels == ["sm 4, wait 5, protocol.data=Digits", "sm 4, wait 5, agent.gate.data=3, protocol.data=MNIST"]


def test_labels_are_alike_exactly_if_the_configurations_are() -> None:
    choices: list[dict[str, Any]] = [{}, {"epochs": 2}, {"ticks": 5}, {"epochs": 2, "ticks": 5}, {"wait": 2}]
    labels = report.labels([config(seed, **dict(change)) for change in choices for seed in (0, 1)])
    assert labels[::2] == labels[1::2]
    assert len(set(labels)) == len(choices)


def test_a_table_shows_its_labels_as_they_are() -> None:
    console = Console(width=80, record=True)
    label = "sm 4, mine.Policy(ticks=[1, 2], name='[/b]')"
    console.print(report.table({label: [ledger([0.9, 0.5])]}, title="[a] title"))
    text = console.export_text()
    assert "[a] title" in text
    column = "".join(line.split("  ")[0].strip() for line in text.splitlines())
    assert label.replace(" ", "") in column.replace(" ", "")


def test_a_table_of_perplexities_leaves_tick_0_out_and_keeps_to_80_columns() -> None:
    console = Console(width=80, record=True)
    seeds = [ledger([300.0, 40.0, 20.0]), ledger([300.0, 60.0, 40.0])]
    console.print(report.table({"sm 4, wait 1": seeds}, title="text", measure=report.PERPLEXITY))
    text = console.export_text()
    assert "40.00 ± 127.06  30.00 ± 127.06" in text
    assert "mean over ticks 1..B" in " ".join(text.split())
    for word in ("CER", "fractions", "error", "…"):
        assert word not in text


def test_before_tick_1_there_is_no_average_perplexity_to_show() -> None:
    assert math.isnan(report.PERPLEXITY.sum(ledger([300.0]).score()))
    assert report.ERROR_RATE.sum(ledger([0.9]).score()) == 0.9
