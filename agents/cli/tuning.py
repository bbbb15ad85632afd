"""The command ``alma surrogate tune``: which schedule costs least at given prices."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from agents.analysis.statistics import Interval
from agents.cli import json_output
from agents.rl.price_range import PriceRange
from agents.rl.recordings import named_file, stream_of
from agents.rl.training_fit import models_for
from agents.rl.tuning import Outcome, candidates, simulate

BESIDE = ("doubling", "geometric:factor=1.6,stop=0.8")  # shown beside the best schedules
_BEST = 3


def tune(options: argparse.Namespace, console: Console) -> int:
    """Print the schedules that cost least on a surrogate, for each price of a full pass."""
    if options.episodes < 2:
        raise ValueError(f"--episodes {options.episodes}: must be at least 2; the default is 256")
    memory = PriceRange.of("--memory-price", options.memory_price).low
    prices = [PriceRange.of("--pass-price", price).low for price in options.pass_price]
    stream, file = options.env, options.recorded
    if (own := named_file(stream)) is not None:
        if file is not None:
            raise ValueError(f"{own} with --recorded {file}: give one file; leave --recorded out")
        stream, file = stream_of(own), own
    rows = []
    for width in options.width or [None]:
        models = models_for(stream, options.learner, width, file)
        names = candidates(models[0].ticks, replays=all(model.replays for model in models))
        outcomes = [simulate(models, name, options.episodes) for name in (*BESIDE, *names)]
        rows += [row for price in prices for row in _rows(outcomes, price, memory, width)]
    if options.json:
        json_output.write(rows)
        return 0
    schedule = Column("schedule", overflow="fold")
    table = Table("width", "full pass", schedule, "cost", "CER", "passes", box=None, title=stream)
    for row in rows:
        numbers = row.cost.text(".2f"), f"{row.cer:.2f}", f"{row.passes:.2f}"
        width = "all" if row.width is None else str(row.width)
        table.add_row(width, f"{row.pass_price:g}", escape(row.schedule), *numbers)
    console.print(table)
    legend = "CER of ticks 1 to the last; ±: 95 % interval over simulated episodes (Student's t)"
    console.print(legend, highlight=False)
    return 0


@dataclass(frozen=True)
class Row:
    """A schedule at a price: its cost with a 95 % interval, and its mean CER and full passes."""

    width: int | None
    pass_price: float
    schedule: str
    cost: Interval
    cer: float
    passes: float


def _rows(outcomes: list[Outcome], price: float, memory: float, width: int | None) -> list[Row]:
    """Return the best schedules at a price, the best fixed wait without replay and stop, and those of `BESIDE`."""
    ordered = sorted(outcomes, key=lambda one: float(one.costs(price, memory).mean()))
    best = {(float(one.cer.mean()), float(one.passes.mean())): one for one in reversed(ordered)}  # equal ones once
    waits = [one for one in ordered if one.schedule.startswith("fixed") and one.schedule.endswith("none,stop=1.0")]
    shown = [*list(best.values())[: -_BEST - 1 : -1], waits[0], *outcomes[: len(BESIDE)]]
    return [
        Row(
            width,
            price,
            one.schedule,
            Interval.of(one.costs(price, memory).tolist()),
            float(one.cer.mean()),
            float(one.passes.mean()),
        )
        for one in {one.schedule: one for one in shown}.values()
    ]
