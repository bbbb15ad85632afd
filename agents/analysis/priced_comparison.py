"""Schedules at prices of FLOPs: what learned schedules cost beside their rivals, and which fronts they reach."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from agents.analysis.front import hypervolume
from agents.analysis.schedule_costs import RECOMMENDED, ScheduleCosts
from agents.analysis.seed_groups import SeedGroup, find_seed_groups, streams
from agents.analysis.statistics import Interval, holm, paired_difference, paired_p_value
from agents.runs.load import FinishedRun

LEARNED = "learned-schedule"
MOST_PASSES = 2.0  # a fixed wait costs one; replay of everything, several
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


@dataclass(frozen=True)
class Front:
    """How good a trade of CER for FLOPs several schedules offer together.

    Attributes:
        runs: stream and learner.
        schedules: what the schedules are.
        hypervolume: share of the rectangle of CER and full passes that they dominate, mean over seeds. The rectangle
            ends at the CER of the untrained predictor, and at `MOST_PASSES`.
        difference: that of the learned schedules minus this one, over common seeds.
    """

    runs: str
    schedules: str
    hypervolume: Interval
    difference: Interval | None


@dataclass(frozen=True)
class _Learner:
    """The schedules of one learner on one stream; the learned ones by price."""

    title: str
    learned: dict[float, ScheduleCosts]
    rivals: list[ScheduleCosts]
    waits: list[ScheduleCosts]
    untrained: dict[int, float]  # CER of the untrained predictor, by seed


def compare_at_prices(runs: Sequence[FinishedRun]) -> tuple[list[Rivalry], list[Front], list[str]]:
    """Compare the learned schedules of finished runs with the other schedules, each at its own price.

    The rivals are the best fixed wait and the best schedule of all, both chosen in hindsight at the price, doubling,
    and the recommended rule. A full pass is as long as the stream, and as dear as the training on D_1 of a rival that
    trains at tick 1.

    Returns:
        The comparisons, the fronts, and a message for each run that is left out as a duplicate.

    Raises:
        ValueError: no run has a learned schedule; or a learner has no rival that trains at tick 1.
    """
    learners, notes = _learners(runs)
    if not learners:
        raise ValueError("no run has a learned schedule; add runs of alma run … --policy learned:pass_price=10")
    rivalries = [row for one in learners for row in _rivalries(one)]
    return rivalries, [front for one in learners for front in _fronts(one)], notes


def _learners(runs: Sequence[FinishedRun]) -> tuple[list[_Learner], list[str]]:
    found: list[_Learner] = []
    notes: list[str] = []
    for stream, runs_of_stream in streams(runs).items():
        groups, left_out = find_seed_groups(runs_of_stream)
        notes += left_out
        learners: dict[str, list[SeedGroup]] = {}
        for group in groups:
            learners.setdefault(json.dumps([group.agent, group.width]), []).append(group)
        for of_learner in learners.values():
            title = f"{stream.removesuffix('-ALMA-v0')}, {of_learner[0].sized_name}"
            prices = [_price(group) for group in of_learner]
            if any(price is not None for price in prices):
                found.append(_learner(title, of_learner, prices))
    return found, notes


def _learner(title: str, groups: Sequence[SeedGroup], prices: Sequence[float | None]) -> _Learner:
    others = [group for group, price in zip(groups, prices, strict=True) if price is None]
    full_pass = _full_pass(title, others)
    ordered = sorted((price, group) for group, price in zip(groups, prices, strict=True) if price is not None)
    return _Learner(
        title,
        {price: _costs(group, full_pass) for price, group in ordered},
        [_costs(group, full_pass) for group in others],
        [_costs(group, full_pass) for group in others if group.wait is not None and not group.replay],
        {seed: run.columns.error[0] * len(run.columns) for group in groups for seed, run in group.runs.items()},
    )


def _rivalries(learner: _Learner) -> list[Rivalry]:
    """Return the comparisons of one learner, of each rival over the prices in ascending order."""
    table: dict[str, list[tuple[float, ScheduleCosts, ScheduleCosts]]] = {}
    for price, own in learner.learned.items():
        for name, rival in _named(learner.rivals, learner.waits, price).items():
            table.setdefault(name, []).append((price, own, rival))
    return [row for name, rows in table.items() for row in _corrected(learner.title, name, rows)]


def _fronts(learner: _Learner) -> list[Front]:
    families = {
        "learned": list(learner.learned.values()),
        "fixed waits": learner.waits,
        "all other schedules": learner.rivals,
    }
    volumes = {name: _volumes(learner, family) for name, family in families.items()}
    return [
        Front(learner.title, name, Interval.of(list(own.values())), paired_difference(volumes["learned"], own))
        for name, own in volumes.items()
        if own
    ]


def _volumes(learner: _Learner, family: Sequence[ScheduleCosts]) -> dict[int, float]:
    """Return the hypervolume of a family by seed; only seeds that each of its schedules has."""
    common = set.intersection(*(set(one.cer) for one in family)) if family else set()
    return {
        seed: hypervolume([(one.passes[seed], one.cer[seed]) for one in family], (MOST_PASSES, learner.untrained[seed]))
        for seed in sorted(common)
    }


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
    when = ", ".join([group.when, *["replay"] * (group.replay and "replay" not in group.when)])
    passes = {seed: comp / full_pass for seed, comp in comps.items()}
    return ScheduleCosts(when, group.values(lambda score: score.cer), passes)


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
