"""Which finished runs are compared at prices: those of a subject, and those of its rivals on the same seeds.

The subject is a learned schedule or policy, which has other runs at each price, or any one schedule. A rival counts if
it has the seeds of all prices: everything is paired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, cast

from agents.analysis.measures import require_error_rate
from agents.analysis.schedules.costs import RunPrices, ScheduleCosts, size_of
from agents.analysis.schedules.names import schedule_name
from agents.analysis.schedules.waiting_comparison import learners_of
from agents.analysis.seed_groups import SeedGroup
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.methods import METHODS
from agents.policies.specs import policy_from
from agents.policies.waiting import SCHEDULES, Schedule
from agents.runs.load import FinishedRun

_LEARNED = ("learned-schedule", "learned")  # of `alma policy train-schedule` and `alma policy train`


class NoRivalsError(ValueError):
    """A learner whose runs cannot be compared: no seed is complete, or no rival has the seeds."""


@dataclass(frozen=True)
class Contest:
    """A subject at its prices, and its rivals, which have all seeds of the subject.

    Attributes:
        title: stream and learner, and the digest of the subject's network where there are several.
        ticks: length of the stream in mega-batches, B.
        learned: whether a network decides in the subject.
        subject: its costs at each price, ascending.
        rivals: all schedules that are not learned.
        waits: the rivals that wait a fixed time, without replay.
        named: rivals that the caller names, by their texts.
        networks: other learned schedules at their own prices, by name.
        untrained: CER of the untrained predictor, by seed that the subject has at each price.
    """

    title: str
    ticks: int
    learned: bool
    subject: dict[RunPrices, ScheduleCosts]
    rivals: list[ScheduleCosts]
    waits: list[ScheduleCosts]
    named: dict[str, ScheduleCosts]
    networks: dict[str, dict[RunPrices, ScheduleCosts]]
    untrained: dict[int, float]


@dataclass(frozen=True)
class _Learner:
    """The seed groups of one learner on one stream, and the schedules that texts mean for it."""

    title: str
    groups: list[SeedGroup]
    grows: bool
    schedules: dict[str, Schedule]

    def having(self, text: str) -> list[SeedGroup]:
        """Return the groups whose schedule is that of a text."""
        record = AgentConfig({"policy": self.schedules[text].as_plain_data()}).schedule
        return [group for group in self.groups if _policy(group) == record]

    def same(self, text: str, subject: str | None) -> bool:
        """Return whether a text means the schedule of the subject; never if the subject is a learned schedule."""
        return subject is not None and self.schedules[text] == self.schedules[subject]


def contests_of(
    runs: Sequence[FinishedRun], subject: str | None, prices: Sequence[RunPrices], rivals: Sequence[str]
) -> tuple[list[Contest], list[str]]:
    """Return the contests of each learner, and messages; see `agents.analysis.schedules.priced_comparison`."""
    texts = (*rivals, *([] if subject is None else [subject]))
    notes: list[str] = []
    learners = []
    for title, groups, left_out in learners_of(runs):
        notes += left_out
        require_error_rate(title, groups[0].first.run_config.protocol)
        grows = _grows(groups)
        schedules = {text: _schedule(text, grows=grows) for text in texts}
        learners.append(_Learner(title.replace("-ALMA-v0", ""), groups, grows, schedules))
    for text in texts:
        if not any(one.having(text) for one in learners):
            others = (group for one in learners for group in one.groups if not _is_learned(group))
            known = sorted({schedule_name(group.first.run_config.agent.when) for group in others})
            raise ValueError(
                f"{text}: no run has this schedule; the runs have {', '.join(known) or 'none'}; name one of these, or "
                f"add runs of alma run … --policy {text}"
            )
    for text in rivals:
        if all(one.same(text, subject) for one in learners):
            raise ValueError(f"rival {text}: it is the subject; give another schedule, or leave it out")
    alone: list[str] = []
    contests = []
    for one in learners:
        try:
            contests += _contests(one, subject, prices, rivals, notes)
        except NoRivalsError as error:
            alone.append(str(error))
    if not contests:
        raise ValueError(
            alone[0]
            if alone
            else "no run has a learned schedule, or a learned policy that sees prices; add runs of alma run … --policy "
            "learned:pass_price=10"
        )
    return contests, [*notes, *(f"{reason}; left out" for reason in alone)]


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


def _policy(group: SeedGroup) -> Mapping[str, Any]:
    return group.first.run_config.agent.schedule


def _is_learned(group: SeedGroup) -> bool:
    """Return whether a network decides that sees prices."""
    return _policy(group).get("name") in _LEARNED and "pass_price" in _policy(group)


def _contests(
    learner: _Learner, subject: str | None, prices: Sequence[RunPrices], rivals: Sequence[str], notes: list[str]
) -> list[Contest]:
    """Return one contest for each network of a learner, or one for the subject that the caller names."""
    learned = [group for group in learner.groups if _is_learned(group)]
    own = [] if subject is None else learner.having(subject)
    others = [group for group in learner.groups if group not in learned and group not in own]
    named = {text: learner.having(text) for text in rivals if not learner.same(text, subject)}
    if subject is not None:
        return [_contest(learner, "", dict.fromkeys(prices, group), others, named, {}, notes) for group in own]
    networks: dict[str, dict[RunPrices, SeedGroup]] = {}
    for group in learned:
        own_prices = RunPrices(*(float(_policy(group)[name]) for name in RunPrices._fields))
        networks.setdefault(str(_policy(group)["digest"]), {})[own_prices] = group
    return [
        _contest(
            learner,
            digest,
            at_prices,
            others,
            named,
            {name: one for name, one in networks.items() if name != digest},
            notes,
        )
        for digest, at_prices in networks.items()
    ]


def _contest(
    learner: _Learner,
    digest: str,
    subject: Mapping[RunPrices, SeedGroup],
    others: list[SeedGroup],
    named: Mapping[str, list[SeedGroup]],
    networks: Mapping[str, Mapping[RunPrices, SeedGroup]],
    notes: list[str],
) -> Contest:
    """Return the costs of a subject and of its rivals, and append messages on what was left out.

    Args:
        learner: to which all runs belong.
        digest: of the subject's network; empty for another schedule.
        subject: its runs at each price.
        others: the schedules that are not learned.
        named: those of them that the caller names, none or one for each text.
        networks: the other learned schedules, by digest.
        notes: the messages.
    """
    title = learner.title + f", {digest}" * bool(networks)
    seeds = set.intersection(*(set(group.runs) for group in subject.values()))
    if lacking := {seed for group in subject.values() for seed in group.runs} - seeds:
        notes.append(f"{title}: seeds {sorted(lacking)}: the subject lacks them at a price; the fronts leave them out")
    rivals = [group for group in others if seeds | lacking <= set(group.runs)]
    starting = [run for group in rivals for run in group.runs.values() if run.stages and run.stages[0].tick == 1]
    if not seeds or not starting:
        raise NoRivalsError(
            f"{title}: the subject has {len(seeds)} of its seeds at each price, and {len(starting)} runs of rivals "
            "with all of its seeds train at tick 1; add runs of other schedules with the same seeds, such as --wait 1"
        )
    notes += [f"{title}: {text}: no run" for text, groups in named.items() if not groups]
    notes += [
        f"{title}: {group.when}: it lacks a seed of the subject; left out" for group in others if group not in rivals
    ]
    stages = [stage for group in subject.values() for run in group.runs.values() for stage in run.stages]
    if by_rule := sum(bool(stage.by) for stage in stages):
        notes.append(f"{title}: the rule decided {by_rule} of {len(stages)} stages of the learned schedules")
    first = next(iter(subject.values()))
    ticks = len(first.first.columns) - 1
    full_pass = mean(sum(run.columns.flops[1].values()) * ticks for run in starting)
    if any(prices.memory_price for prices in subject) and not all(
        run.columns.parameters[0] for group in (*rivals, *subject.values()) for run in group.runs.values()
    ):
        raise ValueError(
            f"{title}: memory has a price in sizes of the untrained predictor, and it has no parameters; judge "
            "this learner at a memory price of 0"
        )

    def costs(group: SeedGroup) -> ScheduleCosts:
        return _costs(group, seeds | lacking, full_pass, usual_growth="every" if learner.grows else "never")

    return Contest(
        title,
        ticks,
        bool(digest),
        {prices: costs(subject[prices]) for prices in sorted(subject)},
        [costs(group) for group in rivals],
        [costs(group) for group in rivals if group.wait is not None and not group.replay],
        {text: costs(group) for text, groups in named.items() for group in groups if group in rivals},
        {
            f"network {name}": {prices: costs(group) for prices, group in at_prices.items()}
            for name, at_prices in networks.items()
        },
        {seed: run.columns.error[0] * len(run.columns) for seed, run in first.runs.items() if seed in seeds},
    )


def _costs(group: SeedGroup, seeds: set[int], full_pass: float, usual_growth: str) -> ScheduleCosts:
    """Return the costs of a group's runs of these seeds; the schedule's name says what is not usual."""
    kept = {seed: group.runs[seed] for seed in sorted(seeds & set(group.runs))}
    growth = _policy(group).get("growth", usual_growth)
    recorded = group.first.run_config.agent.when + f", growth {growth}" * (growth != usual_growth)
    name = schedule_name(recorded)
    # Another policy has no name; its text in the group also says what distinguishes it from others.
    return ScheduleCosts(
        group.when if name == recorded else name,
        {seed: run.score.cer for seed, run in kept.items()},
        {seed: run.score.comp / full_pass for seed, run in kept.items()},
        {seed: size_of(run.columns.parameters) for seed, run in kept.items()},
        _policy(group).get("digest"),
    )
