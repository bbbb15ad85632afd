"""The command ``alma surrogate ceiling``: a learned schedule beside the best decisions of a class."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from agents.analysis.schedules.costs import RunPrices
from agents.analysis.schedules.names import RECOMMENDED
from agents.analysis.statistics import Interval
from agents.cli import json_output
from agents.cli.console import number_text, print_uncut
from agents.cli.decisions.tuning import PRICE, named_runs, pairs_of_prices
from agents.policies.learned.priced_features import NAMES, can_grow
from agents.policies.learned.schedule import SHIPPED, ScheduleNetwork
from agents.policies.specs import LEARNED
from agents.rl.models.training_fit import fit_trainings
from agents.rl.models.training_model import TrainingModel
from agents.rl.recorded.selection import recorded_groups
from agents.rl.surrogates.ceiling import Ceiling, by_ceiling, by_schedule, episode_costs
from agents.rl.surrogates.tuning import simulate

_GROWTH = {  # by the feature `can_grow`
    0.0: "do not grow",
    0.5: "grow while the FLOPs of a training stay the same",
    1.0: "grow and need more FLOPs then",
}


@dataclass(frozen=True)
class Row:
    """The simulated costs of a learner at prices, in errors.

    Attributes:
        runs: stream and learner.
        pass_price: errors that a full pass costs.
        memory_price: errors per tick that the size of the untrained predictor costs.
        rule, schedule, ceiling: of the recommended rule, the learned schedule, and the decisions of the ceiling.
        estimate: what the ceiling's decisions cost by its table, which is usually too low.
        share: saving of the schedule over the rule, divided by the saving of the ceiling's decisions; NaN if these save
            nothing.
    """

    runs: str
    pass_price: float
    memory_price: float
    rule: Interval
    schedule: Interval
    ceiling: Interval
    estimate: float
    share: float


def ceiling(options: argparse.Namespace, console: Console) -> int:
    """Print what the rule, a learned schedule and the ceiling cost on surrogates, for each price."""
    if options.episodes < 2:
        raise ValueError(f"--episodes {options.episodes}: must be at least 2; the default is 512")
    prices = pairs_of_prices(options.pass_price, options.memory_price)
    if options.policy != LEARNED and Path(options.policy).suffix != ".npz":
        raise ValueError(
            f"--policy {options.policy}: must be {LEARNED}, or a file .npz of `alma policy train-schedule`; prices are "
            "those of --pass-price and --memory-price"
        )
    rows = list(_rows(options, prices))
    if options.json:
        json_output.write(rows)
        return 0
    table = Table("runs", "price", "the rule", "learned", "ceiling", "its estimate", "share", box=None)
    for row in rows:
        costs = (row.rule.text(), row.schedule.text(), row.ceiling.text())
        price = str(RunPrices(row.pass_price, row.memory_price))
        table.add_row(row.runs, price, *costs, f"{row.estimate:.2f}", number_text(row.share, ".0%"))
    print_uncut(console, table)
    legend = (
        f"{PRICE} Costs of ticks 1 to the last in errors on the surrogate, whose model was fitted to the test error; "
        f"mean over {options.episodes} episodes; ±: 95 % interval (Student's t). The ceiling sees the exact error and "
        "the quality of the network: what its decisions cost, and what its table estimates, usually too little. Share: "
        "of the way from the rule to the ceiling"
    )
    console.print(legend, highlight=False)
    return 0


def _network(policy: str, prices: list[RunPrices], model: TrainingModel) -> ScheduleNetwork:
    """Return the network of ``--policy``; ValueError if it does not know such a learner or a price."""
    network = ScheduleNetwork.read(SHIPPED[model.grows] if policy == LEARNED else Path(policy))
    growth, place = float(can_grow(model.grows, model.free_growth)), NAMES.index("can_grow")
    if not network.known.low[place] <= growth <= network.known.high[place]:
        raise ValueError(
            f"--policy {policy}: it was not learned on learners that {_GROWTH[growth]}; give a schedule that was"
        )
    for name in RunPrices._fields:
        low, high = network.about[name]
        if beyond := [price for price in (getattr(both, name) for both in prices) if not low <= price <= high]:
            option = "--" + name.replace("_", "-")
            known = f"prices from {low:g} to {high:g}" if low < high else f"only the price {low:g}"
            remedy = "give such a price" if high else f"leave {option} out"
            raise ValueError(f"{option} {beyond[0]:g}: the network knows {known}; {remedy}")
    return network


def _rows(options: argparse.Namespace, prices: list[RunPrices]) -> Iterator[Row]:
    for stream, file in (named_runs(given, options.recorded) for given in options.env):
        for runs in recorded_groups(stream, options.learner, options.width, file, decisions=True):
            model = fit_trainings(runs)
            network = _network(options.policy, prices, model)
            by_rule = simulate([model], RECOMMENDED, options.episodes)
            title = f"{stream.removesuffix('-ALMA-v0')}, {runs[0].learner} {runs[0].width}"
            for both in prices:
                best = Ceiling(model, *both)
                found: list[NDArray[Any]] = [
                    by_rule.costs(*both),
                    *(
                        episode_costs(model, *both, choose, options.episodes)
                        for choose in (by_schedule(network), by_ceiling(best))
                    ),
                ]
                rule, schedule, lowest = (Interval.of(costs.tolist()) for costs in found)
                saved = rule.mean - schedule.mean, rule.mean - lowest.mean
                share = saved[0] / saved[1] if saved[1] > 0 else math.nan
                yield Row(title, *both, rule, schedule, lowest, best.estimate, share)
