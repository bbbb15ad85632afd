"""Which schedule is best: finished runs side by side, paired by seed, against the best fixed wait in hindsight."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

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
        costs={
            seed: score.cer + prices.flops * score.comp / 1e12 + prices.parameters * score.mem / 1e6
            for seed, score in scores.items()
        },
        comps={seed: float(score.comp) for seed, score in scores.items()},
    )


def _name(config: Mapping[str, Any]) -> str:
    """The schedule in words, without its lots."""
    agent = dict(config["agent"])
    if isinstance(agent.get("policy"), dict):
        agent["policy"] = {name: value for name, value in agent["policy"].items() if name != "seed"}
    return report.label({"agent": agent}).partition(", ")[2] or "at every tick"


def draw(comparisons: Sequence[Comparison], file: Path, *, heading: str = "CER") -> Path:
    """Draw the cost against the waiting time, one panel per comparison, every other schedule as a level with its band.

    The bars and bands are 95 % intervals over seeds.
    """
    columns = min(len(comparisons), 2)
    rows = math.ceil(len(comparisons) / columns)
    lines = max(sum(schedule.wait is None for schedule in one.schedules) for one in comparisons) + 1
    figure = Figure(figsize=(5.6 * columns, (4 + 0.2 * lines) * rows), layout="constrained")
    for place, one in enumerate(comparisons):
        axes = figure.add_subplot(rows, columns, place + 1)
        fixed = sorted((schedule for schedule in one.schedules if schedule.wait is not None), key=lambda s: s.wait or 0)
        waits = [float(schedule.wait or 0) for schedule in fixed]
        axes.errorbar(
            waits,
            [schedule.cost.mean for schedule in fixed],
            [schedule.cost.half or 0 for schedule in fixed],
            color=report.COLOURS[0],
            marker="o",
            markersize=4,
            capsize=3,
            label="fixed waiting time",
        )
        others = [schedule for schedule in one.schedules if schedule.wait is None]
        for number, schedule in enumerate(others, 1):
            cost, colour = schedule.cost, report.COLOURS[number % len(report.COLOURS)]
            line = report.LINES[number % len(report.LINES)]
            axes.axhline(cost.mean, color=colour, linestyle=line, label=f"{schedule.name}: {cost.text('.1f')}")
            if cost.half is not None:
                axes.axhspan(cost.mean - cost.half, cost.mean + cost.half, color=colour, alpha=0.07, linewidth=0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(waits))
        axes.xaxis.set_major_formatter(FormatStrFormatter("%d"))
        axes.xaxis.set_minor_locator(NullLocator())
        _few_ticks(axes, one)
        axes.set_xlabel("waiting time w (mega-batches)")
        axes.set_ylabel(heading)
        axes.set_title(one.title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    return file


def _few_ticks(axes: Any, one: Comparison) -> None:
    """Round numbers 1, 2, 5 within what is drawn: a logarithmic axis over less than a decade has none of its own."""
    costs = [schedule.cost.mean for schedule in one.schedules]
    low, high = min(costs), max(costs)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [base * 10.0**power for power in decades for base in (1, 1.5, 2, 3, 5, 7)]
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low * 0.7 <= tick <= high * 1.5]))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.yaxis.set_minor_locator(NullLocator())
