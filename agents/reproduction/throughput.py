"""FLOPs per second of one core: the rates of the package (``throughput.toml``), and rates of this machine."""

from __future__ import annotations

import dataclasses
import math
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from agents.catalogue.data_facts import DataFacts, Sizes, facts_of
from agents.catalogue.effort import effort_of
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, resolve

# Methods that are as fast as a measured method.
_AS_FAST_AS = {"moe": "gmoe", "gens-moe": "gmoe"}
# Data whose images have the size of those of a measured data set.
_AS_FAST_ON = {"FashionMNIST": "MNIST", "EMNIST": "MNIST", "CIFAR100": "CIFAR10"}


@dataclass(frozen=True)
class Rates:
    """How fast a run is on one core.

    Attributes:
        training: FLOPs per second of training, validation and answers.
        growth: FLOPs per second of growth steps; None: that of training.
        start: seconds before the first stage.
    """

    training: float
    growth: float | None
    start: float


def measured_data(data: str) -> str:
    """Return the measured data set whose images have the size of those of a data set."""
    return _AS_FAST_ON.get(data, data)


def rates_of(config: RunConfig, data: str) -> Rates:
    """Return the rates of ``throughput.toml`` for a run."""
    table = _table()[measured_data(data)]
    agent = config.get("of") if config.agent.id == "oracle" else config.agent.id
    agent = _AS_FAST_AS.get(agent, agent)
    of_wait = table.get(str(config.agent.wait), {})
    width = config.get("width")
    rate = _at_width(of_wait.get(agent, table[agent]), width)
    grows = f"{agent}-growth"
    return Rates(rate, _at_width(table[grows], width) if grows in table else None, float(table["start"]))


def _at_width(rates: Mapping[str, float], width: int) -> float:
    """Return FLOPs per second: linear in the logarithms between two measured widths, constant beyond the outermost."""
    widths = [int(measured) for measured in rates]
    return 1e9 * math.exp(np.interp(math.log(width), np.log(widths), np.log(list(rates.values()))))


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "throughput.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Measurement:
    """The rate of a run on one core of this machine.

    Attributes:
        rate: FLOPs per second, without the first stage.
        start: CPU seconds before the first stage.
        stages: CPU seconds of each stage, with its ticks and answers.
        engine: what trained.
        growth: FLOPs per second of growth steps; None if they were not measured apart.
    """

    rate: float
    start: float
    stages: list[float]
    engine: str
    growth: float | None = None


def measure(spec: RunSpec, seconds: float) -> Measurement:
    """Measure the stages of a run after its first stage.

    Args:
        spec: the run.
        seconds: CPU seconds after the first stage; at least one stage is measured, and at most the whole run.

    Raises:
        ValueError: the run has one stage.
    """
    run = _Run(spec)
    stages: list[float] = []
    while not run.env.done and (len(stages) < 2 or sum(stages[1:]) < seconds):
        stages.append(run.stage())
    flops = _first_flops(spec, run.facts, len(stages)) - _first_flops(spec, run.facts, 1)
    return Measurement(flops / sum(stages[1:]), run.start, stages, run.engine)


def measure_long(spec: RunSpec, epochs: int) -> Measurement:
    """Measure the second stage of a run, which takes many epochs, from a stage of one epoch and one of several.

    Args:
        spec: the run, with as many epochs as it has.
        epochs: of the longer stage, at least 2.

    Raises:
        ValueError: the run has one stage, or too few epochs are given.
    """
    if epochs < 2:
        raise ValueError(f"epochs={epochs}: two stages of different lengths are compared; give at least 2 epochs")
    one, several = (_Run(_with_epochs(spec, number)) for number in (1, epochs))
    for run in (one, several):
        run.stage()
    few, many = one.stage(), several.stage()
    config = resolve(spec, one.facts)
    stage_flops = _first_flops(spec, one.facts, 2) - _first_flops(spec, one.facts, 1)
    seconds = (config.get("epochs") - 1) * (many - few) / (epochs - 1) + few
    known = rates_of(config, one.facts.data)
    if known.growth is None:
        return Measurement(stage_flops / seconds, one.start, [few, many], one.engine)
    # Growth steps have their own rate, and are nearly all of the stage of one epoch.
    growth_flops = effort_of(config, _first_ticks(spec, one.facts, 2)).growth_flops
    rate = (stage_flops - growth_flops) / (seconds - few)
    return Measurement(rate, one.start, [few, many], one.engine, growth_flops / few)


class _Run:
    """A run that goes on stage by stage; it keeps no ledger."""

    def __init__(self, spec: RunSpec) -> None:
        begin = time.process_time()
        self.wait = spec.wait or 1
        self.env = spec.make_env()
        if self.wait >= self.env.ticks:
            raise ValueError(
                f"wait={self.wait} of {self.env.ticks} ticks: the run has one stage, and the first stage is not "
                "measured; choose a shorter waiting time"
            )
        self.learner = spec.make_agent(self.env)
        self.observation, _ = self.env.reset(seed=spec.seed, options={"predictor": self.learner.predictor})
        self.facts = facts_of(self.env)
        self.start = time.process_time() - begin

    @property
    def engine(self) -> str:
        return str(self.learner.config["engine"])

    def stage(self) -> float:
        """Go on to the end of a stage, and return its CPU seconds."""
        begin = time.process_time()
        for _ in range(min(self.wait, self.env.ticks - self.env.tick)):
            with self.env.meter:
                predictor = self.learner.observe(self.observation)
            self.observation, *_ = self.env.step(predictor)
        return time.process_time() - begin


def _with_epochs(spec: RunSpec, epochs: int) -> RunSpec:
    return dataclasses.replace(spec, settings={**spec.settings, "epochs": epochs})


@dataclass(frozen=True)
class _FirstTicks(DataFacts):
    """The facts about a stream that ends early; its mega-batches are as large as those of the whole stream."""

    train: int = 0

    @property
    def sizes(self) -> Sizes:
        return dataclasses.replace(super().sizes, train=self.train)


def _first_ticks(spec: RunSpec, facts: DataFacts, stages: int) -> _FirstTicks:
    """Return the facts about the ticks of the first stages of a run."""
    ticks = min(stages * (spec.wait or 1), facts.ticks)
    return _FirstTicks(**vars(facts) | {"ticks": ticks}, train=ticks * (facts.sizes.train // facts.ticks))


def _first_flops(spec: RunSpec, facts: DataFacts, stages: int) -> float:
    """Return the FLOPs of the first stages: training by the paper's rule, validation, answers on the test set."""
    effort = effort_of(resolve(spec, facts), _first_ticks(spec, facts, stages))
    return effort.training_flops + effort.other_flops
