"""Which schedule is best: finished runs side by side, paired by seed, against the best fixed wait in hindsight."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents import report
from agents.finished import FinishedRun
from agents.statistics import Interval, paired
from agents.waiting.prices import Prices
from alma_env import Score


@dataclass(frozen=True)
class Schedule:
    """The runs of one schedule, which differ in nothing but their seeds.

    Attributes:
        name: in words.
        wait: its waiting time, if it is a fixed one.
        costs: CER and, at their prices, FLOPs and parameters, by seed.
        comps: FLOPs spent, by seed.
    """

    name: str
    wait: int | None
    costs: Mapping[int, float]
    comps: Mapping[int, float]

    @property
    def cost(self) -> Interval:
        """Over the seeds."""
        return Interval.of(list(self.costs.values()))


@dataclass(frozen=True)
class Comparison:
    """All schedules of one learner on one stream.

    Attributes:
        title: stream and learner.
        schedules: by their cost, the lowest first.
    """

    title: str
    schedules: Sequence[Schedule]

    @property
    def best_fixed(self) -> Schedule | None:
        """The fixed waiting time of the lowest mean cost, chosen in hindsight; None if no fixed one was run."""
        return next((schedule for schedule in self.schedules if schedule.wait is not None), None)

    def against_best_fixed(self, schedule: Schedule) -> Interval | None:
        """Cost of a schedule minus that of `best_fixed`, paired by seed; None where nothing can be paired."""
        best = self.best_fixed
        return None if best is None or schedule is best else paired(schedule.costs, best.costs)


def compare(runs: Sequence[FinishedRun], prices: Prices | None = None) -> list[Comparison]:
    """Group runs by everything but schedule and seed, and within that by schedule.

    The lots that a random schedule draws are seeds, too: runs that differ in them are of one schedule.

    Args:
        runs: finished runs, each configuration once.
        prices: of FLOPs and parameters; None: the cost is the CER alone.

    Raises:
        ValueError: two runs have the same schedule and seed.
    """
    charged = prices or Prices()
    learners: dict[str, dict[str, list[FinishedRun]]] = {}
    for run in runs:
        config = json.loads(json.dumps(run.config))
        config.pop("seed")
        for name in ("seed", "engine", "device"):  # the last two change rounding alone
            config["agent"].pop(name, None)
        policy = config["agent"].pop("policy", None)
        if isinstance(policy, dict):
            policy.pop("seed", None)
        alike = learners.setdefault(json.dumps(config, sort_keys=True), {})
        alike.setdefault(json.dumps(policy, sort_keys=True), []).append(run)
    groups = sorted(learners.values(), key=_stream_and_width)
    titles = _titles([next(iter(alike.values()))[0].config for alike in groups])
    return [
        Comparison(
            title,
            sorted((_schedule(found, charged) for found in alike.values()), key=lambda schedule: schedule.cost.mean),
        )
        for title, alike in zip(titles, groups, strict=True)
    ]


def _stream_and_width(alike: Mapping[str, Sequence[FinishedRun]]) -> tuple[str, str, int]:
    config = next(iter(alike.values()))[0].config
    return config["env"], config["agent"].get("id", ""), config["agent"].get("width", 0)


def _titles(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Stream and learner, and what else differs between the groups."""
    bare = [{**config, "agent": {k: v for k, v in config["agent"].items() if k != "policy"}} for config in configs]
    several = len({config["env"] for config in bare}) > 1
    labels = report.labels(bare)
    return labels if several else [f"{config['env']}, {label}" for config, label in zip(bare, labels, strict=True)]


def _schedule(found: Sequence[FinishedRun], prices: Prices) -> Schedule:
    policy = found[0].config["agent"].get("policy")
    fixed = isinstance(policy, dict) and "name" not in policy
    scores: dict[int, Score] = {}
    for run in found:
        seed = run.config["seed"]
        if seed in scores:
            raise ValueError(
                f"{run.folder}: a second run of this schedule with seed {seed}; compare folders with one run for each"
            )
        scores[seed] = run.ledger.score()
    return Schedule(
        name=_name(found[0].config),
        wait=policy["wait"] if fixed and isinstance(policy, dict) else None,
        costs={seed: prices.cost(score) for seed, score in scores.items()},
        comps={seed: float(score.comp) for seed, score in scores.items()},
    )


def _name(config: Mapping[str, Any]) -> str:
    """The schedule in words, without its lots."""
    agent = dict(config["agent"])
    if isinstance(agent.get("policy"), dict):
        agent["policy"] = {name: value for name, value in agent["policy"].items() if name != "seed"}
    return report.label({"agent": agent}).partition(", ")[2] or "at every tick"
