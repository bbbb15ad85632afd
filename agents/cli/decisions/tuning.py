"""The commands ``alma surrogate tune`` and ``schedules``: what schedules cost, simulated and in recorded runs."""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from agents.analysis.schedules.costs import RunPrices, ScheduleCosts, on_common_seeds
from agents.analysis.schedules.names import DOUBLING, RECOMMENDED, plain_wait
from agents.analysis.statistics import Interval
from agents.cli import json_output
from agents.cli.console import print_uncut
from agents.figures import schedules as picture
from agents.figures.files import require_picture
from agents.rl.models.training_fit import models_for
from agents.rl.recorded.schedules import recorded_schedules
from agents.rl.recorded.selection import named_file, recorded_groups, stream_of
from agents.rl.surrogates.tuning import Outcome, candidates, simulate
from agents.sweeps.progress import say

BESIDE = (DOUBLING[0], RECOMMENDED)  # shown beside the best schedules
PRICE = (
    "Price: errors that a full pass costs; after a comma, if it is not 0, errors per tick that the size of the "
    "untrained predictor costs."
)
_BEST = 3


def tune(options: argparse.Namespace, console: Console) -> int:
    """Print the schedules that cost least on a surrogate, for each price of a full pass and of memory."""
    if options.episodes < 2:
        raise ValueError(f"--episodes {options.episodes}: must be at least 2; the default is 2048")
    prices = pairs_of_prices(options.pass_price, options.memory_price)
    stream, file = named_runs(options.env, options.recorded)
    rows = []
    for width in options.width or [None]:
        models = models_for(stream, options.learner, width, file, options.reward_on)
        possible = {name: all(getattr(model, name) for model in models) for name in ("replays", "restarts")}
        names = candidates(models[0].ticks, **possible, grows=any(model.grows for model in models))
        outcomes = [simulate(models, name, options.episodes) for name in (*BESIDE, *names)]
        # The cheapest of many are also the luckiest: what is shown comes from other episodes.
        again = functools.cache(partial(simulate, models, episodes=options.episodes, seed=1))
        for price in prices:
            best, beside = ([again(name) for name in group] for group in _shown(outcomes, price))
            best.sort(key=partial(_mean_cost, prices=price))
            rows += [_row(one, price, width) for one in (*best, *beside)]
    if options.json:
        json_output.write(rows)
        return 0
    schedule = Column("schedule", overflow="fold")
    table = Table("width", "price", schedule, "cost", "CER", "passes", box=None, title=stream)
    for row in rows:
        numbers = row.cost.text(".2f"), f"{row.cer:.2f}", f"{row.passes:.2f}"
        width = "all" if row.width is None else str(row.width)
        table.add_row(width, str(RunPrices(row.pass_price, row.memory_price)), escape(row.schedule), *numbers)
    print_uncut(console, table)
    legend = (
        f"{PRICE} CER: of ticks 1 to the last, on the {options.reward_on} set. ±: 95 % interval over simulated "
        f"episodes (Student's t): {options.episodes} others than those that chose the schedules"
    )
    console.print(legend, highlight=False)
    return 0


@dataclass(frozen=True)
class Row:
    """A schedule at prices: its cost with a 95 % interval, and its mean CER and full passes."""

    width: int | None
    pass_price: float
    memory_price: float
    schedule: str
    cost: Interval
    cer: float
    passes: float


def _mean_cost(found: Outcome, prices: RunPrices) -> float:
    return float(found.costs(*prices).mean())


def _shown(outcomes: list[Outcome], prices: RunPrices) -> tuple[list[str], list[str]]:
    """Return the best schedules; and of the others the best fixed wait without replay and stop, and `BESIDE`."""
    ordered = sorted(outcomes, key=partial(_mean_cost, prices=prices))
    different = {(float(one.cer.mean()), float(one.passes.mean())): one for one in reversed(ordered)}  # equal ones once
    best = [one.schedule for one in list(different.values())[: -_BEST - 1 : -1]]
    waits = [one for one in ordered if plain_wait(one.schedule)]
    beside = dict.fromkeys(one.schedule for one in (waits[0], *outcomes[: len(BESIDE)]))
    return best, [name for name in beside if name not in best]


def _row(found: Outcome, prices: RunPrices, width: int | None) -> Row:
    cost = Interval.of(found.costs(*prices).tolist())
    return Row(width, *prices, found.schedule, cost, float(found.cer.mean()), float(found.passes.mean()))


@dataclass(frozen=True)
class RecordedRow:
    """A schedule at a price, in recorded runs: its cost, and how much more it costs than the recommended schedule."""

    runs: str
    seeds: int
    pass_price: float
    schedule: str
    cost: Interval
    more: Interval | None
    cer: float
    passes: float


def schedules(options: argparse.Namespace, console: Console) -> int:
    """Print what schedules cost in recorded runs, for each price of a full pass, paired by seed."""
    prices = fixed_prices(options.pass_price)
    require_picture(options.picture)
    panels, rows = {}, []
    for stream, file in (named_runs(given, options.recorded) for given in options.env):
        for runs in recorded_groups(stream, options.learner, options.width, file, decisions=True, repeated=True):
            if not (found := on_common_seeds(recorded_schedules(runs))):
                continue  # exploring runs only
            name = f"{stream.removesuffix('-ALMA-v0')}, {runs[0].learner} {runs[0].width}"
            if name in panels:
                raise ValueError(f"{name}: two of {options.env} have its runs; give one file for each learner")
            panels[name] = found
            rows += [row for price in prices for row in _recorded_rows(found, RunPrices(price), name)]
    if not panels:
        raise ValueError(
            f"{', '.join(options.env)}: no schedule has runs of two seeds; record more with `alma surrogate record`"
        )
    if options.json:
        json_output.write(rows)
    else:
        _print_recorded(rows, console)
    if options.picture is not None:
        picture.draw(panels, options.picture)
        say(json_output.messages(console, as_json=options.json), f"Picture: {options.picture}")
    return 0


def _print_recorded(rows: Sequence[RecordedRow], console: Console) -> None:
    schedule = Column("schedule", overflow="fold")
    titles = ("cost", "more than the rule", "CER", "passes")
    table = Table(Column("recorded runs", no_wrap=True), "seeds", "full pass", schedule, *titles, box=None)
    for row in rows:
        more = "the rule" if row.schedule == RECOMMENDED else row.more.text("+.2f") if row.more else "–"
        numbers = row.cost.text(".2f"), more, f"{row.cer:.2f}", f"{row.passes:.2f}"
        table.add_row(row.runs, str(row.seeds), f"{row.pass_price:g}", escape(row.schedule), *numbers)
    print_uncut(console, table)
    legend = "±: 95 % interval over seeds (Student's t), differences paired by seed"
    if any(row.schedule == RECOMMENDED for row in rows):
        legend = f"The rule: {RECOMMENDED}. {legend}"
    console.print(escape(legend), highlight=False)


def _recorded_rows(found: list[ScheduleCosts], prices: RunPrices, runs: str) -> list[RecordedRow]:
    """Return the best schedules at the prices, the best fixed wait, doubling, and the recommended schedule."""
    ordered = sorted(found, key=lambda one: mean(one.costs(prices).values()))
    rule = next((one for one in found if one.schedule == RECOMMENDED), None)
    waits = [one for one in ordered if plain_wait(one.schedule)][:1]
    named = [one for one in ordered if one.schedule in (RECOMMENDED, *DOUBLING)]
    return [
        RecordedRow(
            runs,
            len(one.cer),
            prices.pass_price,
            one.schedule,
            Interval.of(list(one.costs(prices).values())),
            None if rule is None or one is rule or not rule.cer.keys() & one.cer.keys() else one.minus(rule, prices),
            mean(one.cer.values()),
            mean(one.passes.values()),
        )
        for one in sorted({id(one): one for one in [*ordered[:_BEST], *waits, *named]}.values(), key=ordered.index)
    ]


def fixed_prices(prices: Sequence[float], option: str = "--pass-price") -> list[float]:
    """Return the prices; ValueError if one is negative or infinite."""
    for price in prices:
        if not 0 <= price < math.inf:
            raise ValueError(f"{option} {price:g}: a price must be a finite number of errors from 0 on, such as 40")
    return list(prices)


def pairs_of_prices(of_pass: Sequence[float], of_memory: Sequence[float]) -> list[RunPrices]:
    """Return each price of a full pass with each price of memory; ValueError if one is negative or infinite."""
    both = fixed_prices(of_pass), fixed_prices(of_memory, "--memory-price")
    return [RunPrices(*pair) for pair in itertools.product(*both)]


def named_runs(given: str, recorded: Path | None) -> tuple[str, Path | None]:
    """Return the stream that a word names, and the file of its recorded runs if it is not that of the package."""
    if (own := named_file(given)) is None:
        return given, recorded
    if recorded is not None:
        raise ValueError(f"{own} with --recorded {recorded}: give one file; leave --recorded out")
    return stream_of(own), own
