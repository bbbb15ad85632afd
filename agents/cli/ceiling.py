"""The command ``alma surrogate ceiling``: how much of what decisions can save a learned schedule saves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from agents.analysis.statistics import Interval
from agents.cli import json_output
from agents.cli.tuning import RULE, named_runs
from agents.policies.learned_schedule import SHIPPED, ScheduleNetwork
from agents.policies.specs import LEARNED
from agents.rl.ceiling import Ceiling, by_ceiling, by_network, episode_costs
from agents.rl.learning_curve import recorded_groups
from agents.rl.price_range import PriceRange
from agents.rl.training_fit import fit_trainings
from agents.rl.tuning import simulate


@dataclass(frozen=True)
class Row:
    """The simulated costs of a learner at a price, in errors.

    Attributes:
        runs: stream and learner.
        pass_price: errors that a full pass costs.
        rule, schedule, ceiling: of the recommended rule, the learned schedule, and the decisions of the ceiling.
        bound: what the ceiling's decisions are expected to cost by its table, which is optimistic.
        share: saving of the schedule over the rule, divided by the saving of the ceiling's decisions.
    """

    runs: str
    pass_price: float
    rule: Interval
    schedule: Interval
    ceiling: Interval
    bound: float
    share: float


def ceiling(options: argparse.Namespace, console: Console) -> int:
    """Print what the rule, a learned schedule and the best decisions cost on surrogates, for each price."""
    if options.episodes < 2:
        raise ValueError(f"--episodes {options.episodes}: must be at least 2; the default is 512")
    prices = [PriceRange.of("--pass-price", price).low for price in options.pass_price]
    network = ScheduleNetwork.read(SHIPPED if options.policy == LEARNED else Path(options.policy))
    rows = list(_rows(options, network, prices))
    if options.json:
        json_output.write(rows)
        return 0
    table = Table("runs", "full pass", "the rule", "learned", "ceiling", "its bound", "share", box=None)
    for row in rows:
        costs = (row.rule.text(), row.schedule.text(), row.ceiling.text())
        table.add_row(row.runs, f"{row.pass_price:g}", *costs, f"{row.bound:.2f}", f"{row.share:.0%}")
    console.print(table)
    legend = (
        f"Costs in errors on the surrogate, mean over {options.episodes} episodes; ±: 95 % interval (Student's t). The "
        "ceiling sees the exact error and the quality of the network: what its decisions cost, and what its table "
        "promises, which is too little. Share: of the way from the rule to the ceiling"
    )
    console.print(legend, highlight=False)
    return 0


def _rows(options: argparse.Namespace, network: ScheduleNetwork, prices: list[float]) -> Iterator[Row]:
    for stream, file in (named_runs(given, options.recorded) for given in options.env):
        for runs in recorded_groups(stream, options.learner, options.width, file, decisions=True):
            model = fit_trainings(runs)
            by_rule = simulate([model], RULE, options.episodes)
            for price in prices:
                best = Ceiling(model, price)
                found: list[NDArray[Any]] = [
                    by_rule.costs(price),
                    *(
                        episode_costs(model, price, choose, options.episodes)
                        for choose in (by_network(network), by_ceiling(best))
                    ),
                ]
                rule, schedule, lowest = (Interval.of(costs.tolist()) for costs in found)
                saved = rule.mean - schedule.mean, rule.mean - lowest.mean
                share = saved[0] / saved[1] if saved[1] else np.nan
                title = f"{stream.removesuffix('-ALMA-v0')}, {runs[0].learner} {runs[0].width}"
                yield Row(title, price, rule, schedule, lowest, best.bound, share)
