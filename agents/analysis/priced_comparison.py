"""Schedules at prices of FLOPs: what a learned schedule costs beside its rivals, paired by seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from agents.analysis.schedule_costs import RECOMMENDED, ScheduleCosts
from agents.analysis.seed_groups import SeedGroup, find_seed_groups, streams
from agents.analysis.statistics import Interval, holm, paired_difference, paired_p_value
from agents.runs.load import FinishedRun

LEARNED = "learned-schedule"
_DOUBLING = "doubling(factor=2.0, first=1)"


@dataclass(frozen=True)
class Rivalry:
    """A learned schedule at a price, and one rival.

    Attributes:
        runs: stream and learner.
        pass_price: errors that a full pass costs.
        rival: what the rival is.
        schedule: the rival's schedule as text.
        cost, rival_cost: mean cost over the seeds, in errors.
        difference: cost minus the rival's cost, over common seeds.
        p: of the difference, two-sided, after Holm's correction over the prices; None for one seed.
        worst, rival_worst: highest cost of a seed.
    """

    runs: str
    pass_price: float
    rival: str
    schedule: str
    cost: Interval
    rival_cost: Interval
    difference: Interval | None
    p: float | None
    worst: float
    rival_worst: float


def compare_at_prices(runs: Sequence[FinishedRun]) -> tuple[list[Rivalry], list[str]]:
    """Compare the learned schedules of finished runs with the other schedules, each at its own price.

    The rivals are the best fixed wait and the best schedule of all, both chosen in hindsight at the price, doubling,
    and the recommended rule. A full pass is as long as the stream, and as dear as the training on D_1 of a rival that
    trains at tick 1.

    Returns:
        The comparisons, and a message for each run that is left out as a duplicate.

    Raises:
        ValueError: no run has a learned schedule; or a learner has no rival that trains at tick 1.
    """
    found: list[Rivalry] = []
    notes: list[str] = []
    for stream, runs_of_stream in streams(runs).items():
        groups, left_out = find_seed_groups(runs_of_stream)
        notes += left_out
        learners: dict[str, list[SeedGroup]] = {}
        for group in groups:
            learners.setdefault(json.dumps([group.agent, group.width]), []).append(group)
        for of_learner in learners.values():
            found += _of_learner(f"{stream.removesuffix('-ALMA-v0')}, {of_learner[0].sized_name}", of_learner)
    if not found:
        raise ValueError("no run has a learned schedule; add runs of alma run … --policy learned:pass_price=10")
    return found, notes


def _of_learner(title: str, groups: Sequence[SeedGroup]) -> list[Rivalry]:
    """Return the comparisons of one learner on one stream, of each rival over the prices in ascending order."""
    learned = {_price(group): group for group in groups if _price(group) is not None}
    others = [group for group in groups if _price(group) is None]
    if not learned:
        return []
    full_pass = _full_pass(title, others)
    rivals = [_costs(group, full_pass) for group in others]
    waits = [_costs(group, full_pass) for group in others if group.wait is not None and not group.replay]
    table: dict[str, list[tuple[float, ScheduleCosts, ScheduleCosts]]] = {}
    for price, group in sorted((price, group) for price, group in learned.items() if price is not None):
        own = _costs(group, full_pass)
        for name, rival in _named(rivals, waits, price).items():
            table.setdefault(name, []).append((price, own, rival))
    return [row for name, rows in table.items() for row in _corrected(title, name, rows)]


def _named(rivals: list[ScheduleCosts], waits: list[ScheduleCosts], price: float) -> dict[str, ScheduleCosts]:
    named: dict[str, ScheduleCosts] = {}
    if waits:
        named["best fixed wait"] = _best(waits, price)
    by_text = {one.schedule: one for one in rivals}
    named |= {name: by_text[text] for name, text in _FIXED.items() if text in by_text}
    return {**named, "best schedule": _best(rivals, price)}


_FIXED = {"doubling": _DOUBLING, "the rule": RECOMMENDED}


def _best(schedules: Iterable[ScheduleCosts], price: float) -> ScheduleCosts:
    return min(schedules, key=lambda one: mean(one.costs(price).values()))


def _corrected(title: str, name: str, rows: list[tuple[float, ScheduleCosts, ScheduleCosts]]) -> list[Rivalry]:
    pairs = [(own.costs(price), rival.costs(price)) for price, own, rival in rows]
    raw = [paired_p_value(*pair) for pair in pairs]
    tested = iter(holm([p for p in raw if p is not None]))
    return [
        Rivalry(
            title,
            price,
            name,
            rival.schedule,
            Interval.of(list(own.values())),
            Interval.of(list(others.values())),
            paired_difference(own, others),
            None if p is None else next(tested),
            max(own.values()),
            max(others.values()),
        )
        for (price, _, rival), (own, others), p in zip(rows, pairs, raw, strict=True)
    ]


def _price(group: SeedGroup) -> float | None:
    """Return the price of a full pass at which a learned schedule decides; None for other schedules."""
    policy = group.first.run_config.agent.policy
    if not isinstance(policy, Mapping) or policy.get("name") != LEARNED:
        return None
    return float(policy["pass_price"])


def _costs(group: SeedGroup, full_pass: float) -> ScheduleCosts:
    comps = group.values(lambda score: score.comp)
    passes = {seed: comp / full_pass for seed, comp in comps.items()}
    return ScheduleCosts(group.when, group.values(lambda score: score.cer), passes)


def _full_pass(title: str, groups: Sequence[SeedGroup]) -> float:
    found = [
        sum(run.columns.flops[1].values()) * (len(run.columns) - 1)
        for group in groups
        for run in group.runs.values()
        if run.stages and run.stages[0].tick == 1
    ]
    if not found:
        raise ValueError(f"{title}: no rival trains at tick 1; add runs of --policy doubling, or of --wait 1")
    return mean(found)
