"""Schedules at prices of FLOPs and memory: what a subject costs beside its rivals, and which fronts it reaches.

The numbers at a price are over the seeds that the subject has there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from agents.analysis.schedules.contests import Contest, contests_of
from agents.analysis.schedules.costs import RunPrices, ScheduleCosts
from agents.analysis.schedules.front import Front, fronts_of
from agents.analysis.schedules.names import DOUBLING, RECOMMENDED
from agents.analysis.statistics import Interval, holm, paired_p_value
from agents.runs.load import FinishedRun

_NAMED = {**dict.fromkeys(DOUBLING, "doubling"), RECOMMENDED: "the rule"}


@dataclass(frozen=True)
class Rivalry:
    """The subject at its prices, and one rival.

    Attributes:
        runs: stream and learner.
        pass_price: errors that a full pass costs.
        memory_price: errors per tick that the size of the untrained predictor costs.
        rival: what the rival is.
        schedule: the rival's schedule in the form of ``--policy``.
        cost, rival_cost: mean cost over the seeds, in errors.
        difference: cost minus the rival's cost, paired by seed.
        p: of the difference, two-sided, after Holm's correction over the prices; None for one seed.
        worst, rival_worst: highest cost of a seed.
        passes, rival_passes: full passes, mean over the seeds.
        size, rival_size: parameters, divided by those of the untrained predictor, mean over ticks and seeds.
        network, rival_network: digest of the network of a learned schedule; None for another schedule.
    """

    runs: str
    pass_price: float
    memory_price: float
    rival: str
    schedule: str
    cost: Interval
    rival_cost: Interval
    difference: Interval
    p: float | None
    worst: float
    rival_worst: float
    passes: float
    rival_passes: float
    size: float
    rival_size: float
    network: str | None = None
    rival_network: str | None = None

    @property
    def prices(self) -> RunPrices:
        """Both prices."""
        return RunPrices(self.pass_price, self.memory_price)


def compare_at_prices(
    runs: Sequence[FinishedRun],
    subject: str | None = None,
    prices: Sequence[RunPrices] = (),
    rivals: Sequence[str] = (),
) -> tuple[list[Rivalry], list[Front], list[str]]:
    """Compare the learned schedules of finished runs, each at its own prices, with the other schedules.

    The rivals are the best fixed wait and the best schedule of all, both chosen in hindsight at the prices, doubling,
    the recommended rule, and the given ones. If there are several learned schedules, the others at the same prices are
    rivals, too. Doubling and the rule grow a learner that can grow at every stage. A full pass is as long as the
    stream, and as dear as the training on D_1 of a rival that trains at tick 1.

    Args:
        runs: finished runs of one or more learners.
        subject: a schedule in the form of ``--policy``, to compare in the place of the learned ones.
        prices: for `subject`.
        rivals: further rivals in the form of ``--policy``.

    Returns:
        The comparisons; the fronts, if the subject is learned and memory is free; and messages on runs that are left
        out, and on stages that the rule decided in the place of a network.

    Raises:
        ValueError: a schedule is unknown; no run has the subject, or a given rival; a rival is the subject for every
            learner; a subject has no prices; or its runs have no common seed, or no rival that trains at tick 1; the
            runs are of text, whose errors are perplexities; or memory has a price and a learner starts without
            parameters.
    """
    if subject is not None and not prices:
        raise ValueError(f"prices={prices!r} with subject={subject!r}: a subject needs prices; give [RunPrices(10, 0)]")
    contests, notes = contests_of(runs, subject, prices, rivals)
    rivalries = [row for one in contests for row in _rivalries(one)]
    free = [one for one in contests if one.learned and not any(prices.memory_price for prices in one.subject)]
    fronts = [
        front
        for one in free
        for front in fronts_of(
            one.title,
            {"learned": [*one.subject.values()], "fixed waits": one.waits, "all other schedules": one.rivals},
            one.untrained,
        )
    ]
    return rivalries, fronts, list(dict.fromkeys(notes))


def _rivalries(contest: Contest) -> list[Rivalry]:
    """Return the comparisons of one subject, of each rival over the prices in ascending order."""
    table: dict[str, list[tuple[RunPrices, ScheduleCosts, ScheduleCosts]]] = {}
    for prices, own in contest.subject.items():
        for name, rival in _named(contest, prices).items():
            table.setdefault(name, []).append((prices, own, rival))
    return [row for name, rows in table.items() for row in _corrected(contest, name, rows)]


def _named(contest: Contest, prices: RunPrices) -> dict[str, ScheduleCosts]:
    seeds = contest.subject[prices].cer.keys()

    def best(schedules: Sequence[ScheduleCosts]) -> ScheduleCosts:
        return min((one.of(seeds) for one in schedules), key=lambda one: mean(one.costs(prices).values()))

    waits = {"best fixed wait": best(contest.waits)} if contest.waits else {}
    by_text = {one.schedule: one for one in contest.rivals}
    named = {name: by_text[text] for text, name in _NAMED.items() if text in by_text}
    networks = {name: one[prices] for name, one in contest.networks.items() if prices in one}
    paired = {**named, **contest.named, **{name: one for name, one in networks.items() if seeds <= one.cer.keys()}}
    return {**waits, **{name: one.of(seeds) for name, one in paired.items()}, "best schedule": best(contest.rivals)}


def _corrected(
    contest: Contest, name: str, rows: list[tuple[RunPrices, ScheduleCosts, ScheduleCosts]]
) -> list[Rivalry]:
    pairs = [(own.costs(prices), rival.costs(prices)) for prices, own, rival in rows]
    raw = [paired_p_value(*pair) for pair in pairs]
    tested = iter(holm([p for p in raw if p is not None]))
    return [
        Rivalry(
            contest.title,
            *prices,
            name,
            rival.schedule,
            Interval.of(list(costs.values())),
            Interval.of(list(others.values())),
            own.minus(rival, prices),
            None if p is None else next(tested),
            max(costs.values()),
            max(others.values()),
            mean(own.passes.values()),
            mean(rival.passes.values()),
            mean(own.size.values()) / contest.ticks,
            mean(rival.size.values()) / contest.ticks,
            own.network,
            rival.network,
        )
        for (prices, own, rival), (costs, others), p in zip(rows, pairs, raw, strict=True)
    ]
