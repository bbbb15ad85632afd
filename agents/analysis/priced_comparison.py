"""Schedules at prices of FLOPs and memory: what a subject costs beside its rivals, and which fronts it reaches.

The subject is a learned schedule or policy, which has other runs at each price, or any one schedule. The numbers at a
price are over the seeds that the subject has there. A rival counts if it has the seeds of all prices: everything is
paired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, cast

from agents.analysis.front import Front, fronts_of
from agents.analysis.measures import require_error_rate
from agents.analysis.schedule_costs import DOUBLING, RECOMMENDED, RunPrices, ScheduleCosts
from agents.analysis.seed_groups import SeedGroup
from agents.analysis.statistics import Interval, holm, paired_p_value
from agents.analysis.waiting_comparison import learners_of
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.methods import METHODS
from agents.policies.specs import policy_from
from agents.policies.waiting import SCHEDULES, Schedule
from agents.runs.load import FinishedRun

_LEARNED = ("learned-schedule", "learned")  # of `alma policy train-schedule` and `alma policy train`
_NAMED = {**dict.fromkeys(DOUBLING, "doubling"), RECOMMENDED: "the rule"}


@dataclass(frozen=True)
class Rivalry:
    """The subject at its prices, and one rival.

    Attributes:
        runs: stream and learner.
        pass_price: errors that a full pass costs.
        memory_price: errors per tick that the size of the untrained predictor costs.
        rival: what the rival is.
        schedule: the rival's schedule as text.
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


@dataclass(frozen=True)
class _Contest:
    """A subject at its prices, and its rivals, which have all seeds of the subject."""

    title: str
    ticks: int
    subject: dict[RunPrices, ScheduleCosts]
    rivals: list[ScheduleCosts]
    waits: list[ScheduleCosts]
    named: dict[str, ScheduleCosts]  # rivals that the caller names
    networks: dict[str, dict[RunPrices, ScheduleCosts]]  # other learned schedules, at their own prices
    untrained: dict[int, float]  # CER of the untrained predictor, by seed that the subject has at each price


def compare_at_prices(
    runs: Sequence[FinishedRun],
    subject: str | None = None,
    prices: Sequence[RunPrices] = (),
    rivals: Sequence[str] = (),
) -> tuple[list[Rivalry], list[Front], list[str]]:
    """Compare the learned schedules of finished runs, each at its own prices, with the other schedules.

    The rivals are the best fixed wait and the best schedule of all, both chosen in hindsight at the prices, doubling,
    the recommended rule, and the given ones. If there are several learned schedules, the others at the same prices are
    rivals, too. Doubling and the rule grow a learner that can grow at every stage. A full
    pass is as long as the stream, and as dear as the training on D_1 of a rival that trains at tick 1.

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
    texts = (*rivals, *([] if subject is None else [subject]))
    unknown, distinct = set(texts), set(rivals if subject is None else ())
    contests: list[_Contest] = []
    notes: list[str] = []
    for title, groups, left_out in learners_of(runs):
        notes += left_out
        require_error_rate(title, groups[0].first.run_config.protocol)
        grows = _grows(groups)
        schedules = {text: _schedule(text, grows=grows) for text in texts}
        named = {text: schedules[text] for text in rivals if subject is None or schedules[text] != schedules[subject]}
        distinct |= set(named)
        unknown -= {text for text in unknown for group in groups if _is(group, schedules[text])}
        others = [group for group in groups if not _is_learned(group)]
        names: list[str]
        subjects: list[dict[RunPrices, SeedGroup]]
        learned: dict[str, dict[RunPrices, SeedGroup]] = {}
        if subject is None:
            networks: dict[str, dict[RunPrices, SeedGroup]] = {}
            for group in groups:
                if group not in others:
                    own_prices = RunPrices(*(float(_policy(group)[name]) for name in RunPrices._fields))
                    networks.setdefault(str(_policy(group)["digest"]), {})[own_prices] = group
            names = [f", {digest}" * (len(networks) > 1) for digest in networks]
            subjects = list(networks.values())
            learned = networks
        else:
            own = [group for group in others if _is(group, schedules[subject])]
            others = [group for group in others if group not in own]
            names, subjects = [""] * len(own), [dict.fromkeys(prices, group) for group in own]
        contests += [
            _contest(title.replace("-ALMA-v0", "") + name, one, others, named, learned, notes, grows=grows)
            for name, one in zip(names, subjects, strict=True)
        ]
    for text in set(rivals) - distinct - unknown:
        raise ValueError(f"rival {text}: it is the subject; give another schedule, or leave it out")
    for text in unknown:
        raise ValueError(f"{text}: no run has this schedule; add runs of alma run … --policy {text}")
    if not contests:
        raise ValueError(
            "no run has a learned schedule, or a learned policy that sees prices; add runs of alma run … --policy "
            "learned:pass_price=10"
        )
    rivalries = [row for one in contests for row in _rivalries(one)]
    free = [one for one in contests if subject is None and not any(prices.memory_price for prices in one.subject)]
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


def require_schedules(texts: Iterable[str]) -> None:
    """Raise ValueError if a text in the form of ``--policy`` is no schedule of any learner."""
    for text in texts:
        _schedule(text, grows=True)


def _grows(groups: Sequence[SeedGroup]) -> bool:
    """Return whether a learner can grow; of a learner of the user's own, whether any of its schedules lets it grow."""
    if (method := METHODS.get(groups[0].method_id or "")) is not None:
        return method.grows
    return any(_policy(group).get("growth", "never") != "never" for group in groups)


def _schedule(text: str, *, grows: bool) -> Schedule:
    if text.partition(":")[0] not in SCHEDULES:
        raise ValueError(
            f"schedule {text}: must be one of {', '.join(SCHEDULES)}; a learned schedule is the subject by default"
        )
    return cast(Schedule, policy_from(text, grows=grows, option=""))


def _is_learned(group: SeedGroup) -> bool:
    """Return whether a network decides that sees prices."""
    return _policy(group).get("name") in _LEARNED and "pass_price" in _policy(group)


def _is(group: SeedGroup, schedule: Schedule) -> bool:
    return _policy(group) == AgentConfig({"policy": schedule.as_plain_data()}).schedule


def _contest(
    title: str,
    subject: Mapping[RunPrices, SeedGroup],
    others: list[SeedGroup],
    named: Mapping[str, Schedule],
    learned: Mapping[str, Mapping[RunPrices, SeedGroup]],
    notes: list[str],
    *,
    grows: bool,
) -> _Contest:
    seeds = set.intersection(*(set(group.runs) for group in subject.values()))
    if lacking := {seed for group in subject.values() for seed in group.runs} - seeds:
        notes.append(f"{title}: seeds {sorted(lacking)}: the subject lacks them at a price; the fronts leave them out")
    rivals = [group for group in others if seeds | lacking <= set(group.runs)]
    starting = [run for group in rivals for run in group.runs.values() if run.stages and run.stages[0].tick == 1]
    if not seeds or not starting:
        raise ValueError(
            f"{title}: {len(seeds)} seeds that the subject has at each price, and {len(starting)} runs of rivals with "
            "all of these seeds that train at tick 1; add runs of the same seeds, for example of --policy doubling"
        )
    notes += [f"{title}: {text}: no run" for text, one in named.items() if not any(_is(group, one) for group in others)]
    notes += [
        f"{title}: {group.when}: it lacks a seed of the subject; left out" for group in others if group not in rivals
    ]
    stages = [stage for group in subject.values() for run in group.runs.values() for stage in run.stages]
    if by_rule := sum(bool(stage.by) for stage in stages):
        notes.append(f"{title}: the rule decided {by_rule} of {len(stages)} stages of the learned schedules")
    one = next(iter(subject.values()))
    ticks = len(one.first.columns) - 1
    full_pass = mean(sum(run.columns.flops[1].values()) * ticks for run in starting)
    usual = "every" if grows else "never"

    def size(run: FinishedRun) -> float:
        first, *others = run.columns.parameters
        if first == 0 and any(prices.memory_price for prices in subject):
            raise ValueError(
                f"{title}: memory has a price in sizes of the untrained predictor, and it has no parameters; judge "
                "this learner at a memory price of 0"
            )
        return sum(others) / first if first else 0.0

    def costs(group: SeedGroup) -> ScheduleCosts:
        kept = {seed: group.runs[seed] for seed in sorted((seeds | lacking) & set(group.runs))}
        when = group.when + ", replay" * (group.replay and "replay" not in group.when)
        growth = _policy(group).get("growth", usual)
        return ScheduleCosts(
            when + f", growth {growth}" * (growth != usual),
            {seed: run.score.cer for seed, run in kept.items()},
            {seed: run.score.comp / full_pass for seed, run in kept.items()},
            {seed: size(run) for seed, run in kept.items()},
            _policy(group).get("digest"),
        )

    return _Contest(
        title,
        ticks,
        {prices: costs(subject[prices]) for prices in sorted(subject)},
        [costs(group) for group in rivals],
        [costs(group) for group in rivals if group.wait is not None and not group.replay],
        {name: costs(group) for name, policy in named.items() for group in rivals if _is(group, policy)},
        {
            f"network {digest}": {prices: costs(group) for prices, group in at_prices.items()}
            for digest, at_prices in learned.items()
            if at_prices is not subject
        },
        {seed: run.columns.error[0] * len(run.columns) for seed, run in one.runs.items() if seed in seeds},
    )


def _policy(group: SeedGroup) -> Mapping[str, Any]:
    return group.first.run_config.agent.schedule


def _rivalries(contest: _Contest) -> list[Rivalry]:
    """Return the comparisons of one subject, of each rival over the prices in ascending order."""
    table: dict[str, list[tuple[RunPrices, ScheduleCosts, ScheduleCosts]]] = {}
    for prices, own in contest.subject.items():
        for name, rival in _named(contest, prices).items():
            table.setdefault(name, []).append((prices, own, rival))
    return [row for name, rows in table.items() for row in _corrected(contest, name, rows)]


def _named(contest: _Contest, prices: RunPrices) -> dict[str, ScheduleCosts]:
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
    contest: _Contest, name: str, rows: list[tuple[RunPrices, ScheduleCosts, ScheduleCosts]]
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
