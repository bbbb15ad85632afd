"""The command ``alma surrogate ceiling``: a learned schedule beside the best decisions of a class."""

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
from agents.cli.decisions.tuning import RULE_SPEC, fixed_prices, named_runs
from agents.policies.learned_schedule import SHIPPED, ScheduleNetwork
from agents.policies.priced_features import NAMES
from agents.policies.specs import LEARNED
from agents.rl.models.selection import recorded_groups
from agents.rl.models.training_fit import fit_trainings
from agents.rl.surrogates.ceiling import Ceiling, by_ceiling, by_schedule, episode_costs
from agents.rl.surrogates.tuning import simulate


@dataclass(frozen=True)
class Row:
    """The simulated costs of a learner at a price, in errors.

    Attributes:
        runs: stream and learner.
        pass_price: errors that a full pass costs.
        rule, schedule, ceiling: of the recommended rule, the learned schedule, and the decisions of the ceiling.
        estimate: what the ceiling's decisions cost by its table, which is usually too low.
        share: saving of the schedule over the rule, divided by the saving of the ceiling's decisions; NaN if these save
            nothing.
    """

    runs: str
    pass_price: float
    rule: Interval
    schedule: Interval
    ceiling: Interval
    estimate: float
    share: float


def ceiling(options: argparse.Namespace, console: Console) -> int:
    """Print what the rule, a learned schedule and the ceiling cost on surrogates, for each price."""
    if options.episodes < 2:
        raise ValueError(f"--episodes {options.episodes}: must be at least 2; the default is 512")
    prices = fixed_prices(options.pass_price)
    if options.policy != LEARNED and Path(options.policy).suffix != ".npz":
        raise ValueError(
            f"--policy {options.policy}: must be {LEARNED}, or a file .npz of `alma policy train-schedule`; prices are "
            "those of --pass-price"
        )
    network = ScheduleNetwork.read(SHIPPED[False] if options.policy == LEARNED else Path(options.policy))
    can_grow = NAMES.index("can_grow")
    if network.known.low[can_grow] > 0:
        raise ValueError(
            f"--policy {options.policy}: it was learned on learners that grow, and the ceiling does not grow; give a "
            "schedule of learners that do not grow"
        )
    low, high = network.about["pass_price"]
    if beyond := [price for price in prices if not low <= price <= high]:
        raise ValueError(f"--pass-price {beyond[0]:g}: the network knows prices from {low:g} to {high:g}; give such")
    if (least := network.about["memory_price"][0]) > 0:
        raise ValueError(
            f"--policy {options.policy}: it was learned at prices of memory from {least:g} on, and memory is free "
            "here; give a schedule whose lowest price of memory is 0"
        )
    rows = list(_rows(options, network, prices))
    if options.json:
        json_output.write(rows)
        return 0
    table = Table("runs", "full pass", "the rule", "learned", "ceiling", "its estimate", "share", box=None)
    for row in rows:
        costs = (row.rule.text(), row.schedule.text(), row.ceiling.text())
        table.add_row(row.runs, f"{row.pass_price:g}", *costs, f"{row.estimate:.2f}", f"{row.share:.0%}")
    console.print(table)
    legend = (
        "Costs of ticks 1 to the last in errors on the surrogate, whose model was fitted to the test error; mean over "
        f"{options.episodes} episodes; ±: 95 % interval (Student's t). The ceiling sees the exact error and the "
        "quality of the network: what its decisions cost, and what its table estimates, usually too little. Share: of "
        "the way from the rule to the ceiling"
    )
    console.print(legend, highlight=False)
    return 0


def _rows(options: argparse.Namespace, network: ScheduleNetwork, prices: list[float]) -> Iterator[Row]:
    for stream, file in (named_runs(given, options.recorded) for given in options.env):
        for runs in recorded_groups(stream, options.learner, options.width, file, decisions=True):
            model = fit_trainings(runs)
            by_rule = simulate([model], RULE_SPEC, options.episodes)
            for price in prices:
                best = Ceiling(model, price)
                found: list[NDArray[Any]] = [
                    by_rule.costs(price),
                    *(
                        episode_costs(model, price, choose, options.episodes)
                        for choose in (by_schedule(network), by_ceiling(best))
                    ),
                ]
                rule, schedule, lowest = (Interval.of(costs.tolist()) for costs in found)
                saved = rule.mean - schedule.mean, rule.mean - lowest.mean
                share = saved[0] / saved[1] if saved[1] > 0 else np.nan
                title = f"{stream.removesuffix('-ALMA-v0')}, {runs[0].learner} {runs[0].width}"
                yield Row(title, price, rule, schedule, lowest, best.estimate, share)
