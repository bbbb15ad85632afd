"""The effort of a run, known before the run: stages, mini-batch steps, training examples and FLOPs.

Training FLOPs follow the paper's rule: 6 per forward multiply-add of a training example, plus the passes of a growth
step. Firefly chooses the widths of its layers while it grows; here all layers have the same width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.data_facts import DataFacts
from agents.catalogue.methods import method_for
from agents.catalogue.run_config import RunConfig
from agents.networks.switch_size import SIZES, forward_flops, parameter_count
from agents.policies import Progress
from agents.policies.growing import growth as read_growth
from alma_env import AlmaEnv
from alma_env.data.stream import checked_fraction

# The time of a training example is proportional to the parameters of its network plus this number. Fitted to runs of
# single models, ensembles and uniform mixtures of MLPs with 3,000 to 280,000 parameters, on MNIST and one core.
_OVERHEAD_PARAMETERS = 30_000


@dataclass(frozen=True)
class PlannedStage:
    """A stage of a run with a fixed waiting time.

    Attributes:
        tick: tick of the stage, 1..B.
        mega_batches: number of mega-batches that it trains on.
        growth_steps: number of growth steps up to this stage, its own included.
        steps: number of growth steps directly before it.
    """

    tick: int
    mega_batches: int
    growth_steps: int = 0
    steps: int = 0


@cache  # progress displays call this at every tick
def planned_stages(ticks: int, wait: int, *, replay: bool = False, growth: str = "never") -> tuple[PlannedStage, ...]:
    """Return the stages of a stream: one at every ``wait``-th tick, and one at the last tick.

    Growth that depends on a loss (``stall``) is not known beforehand; its stages have no growth steps.

    Raises:
        ValueError: the schedule of growth is unknown.

    >>> [(stage.tick, stage.mega_batches, stage.growth_steps) for stage in planned_stages(5, 2, growth="every")]
    [(2, 2, 0), (4, 2, 1), (5, 1, 2)]
    """
    steps_at = read_growth(growth)
    stages: list[PlannedStage] = []
    total = last = 0
    for tick in [*range(wait, ticks, wait), ticks]:
        steps = steps_at(Progress(tick, ticks, pending=tick - last, stages=len(stages)))
        total += steps
        stages.append(PlannedStage(tick, tick if replay else tick - last, total, steps))
        last = tick
    return tuple(stages)


def planned(agent: AgentConfig, ticks: int) -> tuple[PlannedStage, ...]:
    """Return the stages of an agent; for a policy that decides during the run, the largest possible number."""
    if agent.wait is None:
        return planned_stages(ticks, 1)
    return planned_stages(ticks, agent.wait, replay=bool(agent.replay), growth=agent.growth or "never")


@dataclass(frozen=True)
class Effort:
    """The effort of a run with a fixed waiting time.

    Attributes:
        stages: the stages, in order.
        steps: mini-batch steps of all stages.
        examples: training examples of all stages, counted once per epoch.
        training_flops: training FLOPs by the paper's rule, growth included.
        growth_flops: those of them that growth steps take.
        other_flops: FLOPs of validation and of the answers on the test set.
        parameters: parameters of one network after the last growth step.
    """

    stages: tuple[PlannedStage, ...]
    steps: int
    examples: int
    training_flops: float
    growth_flops: float
    other_flops: float
    parameters: float


def effort_of(config: RunConfig, facts: DataFacts) -> Effort:
    """Return the effort of a run; ValueError for other policies than a fixed waiting time, or data of unknown size."""
    agent, sizes = config.agent, facts.sizes
    if agent.wait is None:
        raise ValueError(f"policy={agent.policy!r}: the effort is known beforehand only for a fixed waiting time")
    stages = planned(agent, facts.ticks)
    per_tick = sizes.train if facts.is_text else sizes.train // facts.ticks
    valid = 0
    if not facts.is_text:
        valid = math.floor(checked_fraction(sizes.train, facts.ticks, facts.protocol["valid_fraction"]) * per_tick)
    members = members_of(agent)
    epochs, updates, batch = (agent.stage[name] for name in ("epochs", "updates", "batch_size"))
    steps = total = 0
    training = growth = other = 0.0
    newest = members
    for stage in stages:
        if stage.steps and agent.method in _GROW_BY_MEMBERS:
            newest = members * stage.steps  # a stage trains all members that were added directly before it
        examples = stage.mega_batches * (per_tick - valid)
        processed = examples * epochs if updates is None else updates * batch
        steps += updates if updates is not None else epochs * math.ceil(examples / batch)
        total += processed
        macs = _macs(agent, facts, stage.growth_steps)
        validated = sizes.valid if facts.is_text else stage.mega_batches * valid
        training += 6 * newest * macs * processed
        growth += _growth_flops(agent, facts, stage, examples, validated)
        other += 2 * newest * macs * (validated * epochs + sizes.test)
    return Effort(
        stages, steps, total, training + growth, growth, other, _parameters(agent, facts, stages[-1].growth_steps)
    )


def training_examples(env: AlmaEnv, agent: AgentConfig, until: int | None = None) -> int:
    """Return the training examples of an agent in all epochs, up to tick ``until`` or to the last tick."""
    epochs: int = agent.stage.get("epochs", 1)  # an agent of the user may have no such setting
    stages = [stage for stage in planned(agent, env.ticks) if until is None or stage.tick <= until]
    return epochs * sum(stage.mega_batches for stage in stages) * env.examples_per_tick


def expected_work(env: AlmaEnv, agent: AgentConfig, first_parameters: int) -> int:
    """Return the expected time of a run, relative to other runs; the untrained predictor has `first_parameters`."""
    settings = agent.stage
    work = 0.0
    for stage in planned(agent, env.ticks):
        if settings.get("updates") is None:
            examples = stage.mega_batches * env.examples_per_tick * settings.get("epochs", 1)
        else:  # on text, the examples per tick are unknown until the stream is created
            examples = settings["updates"] * settings["batch_size"]
        work += examples * (first_parameters * size_ratio(agent, stage.growth_steps) + _OVERHEAD_PARAMETERS)
    return max(round(work), 1)


def size_ratio(agent: AgentConfig, growth_steps: int) -> float:
    """Return about how many times the first stage's parameters a stage trains after a number of growth steps.

    A growing ensemble trains only new members, which have a constant size.
    """
    if agent.method == "ff":
        return _firefly_width(agent, growth_steps) ** 2
    return _experts(agent, growth_steps) / _experts(agent, 0)


def _firefly_width(agent: AgentConfig, growth_steps: int) -> float:
    """Return how many times the initial width the layers of Firefly have after a number of growth steps.

    With the budget ``parameters``, their number grows by the growth rate, and it is nearly quadratic in the width.
    """
    grown = float(1 + agent.record["growth_rate"] * growth_steps)
    return grown if agent.record["budget"] == "neurons" else math.sqrt(grown)


def networks(agent: AgentConfig, growth_steps: int) -> int:
    """Return the experts of each layer in all networks of the predictor, after a number of growth steps.

    A single model has 1, and so has an agent that is neither an ensemble nor a mixture of this package. An ensemble has
    one for each member, and a mixture one for each expert of a layer.

    >>> networks(AgentConfig({"id": "ens", "members": 5, "backbone": "mlp"}), 0)
    5
    >>> networks(AgentConfig({"id": "gens", "members": 1, "backbone": "mlp"}), 3)
    4
    """
    times = 1 + growth_steps if agent.method in _GROW_BY_MEMBERS else 1
    return _experts(agent, growth_steps) * members_of(agent) * times


def members_of(agent: AgentConfig) -> int:
    """Return the number of networks that a stage trains.

    >>> members_of(AgentConfig({"id": "oracle", "of": "ens", "backbone": "mlp"}))
    5
    """
    if agent.method is None:
        return 1
    if agent.method == "oracle":  # its members are those of the other method's defaults
        return int(method_for(agent.record["of"], agent.backbone or "").keywords.get("members", 1))
    return int(agent.record.get("members", 1))


_GROW_BY_MEMBERS = ("gens", "gens-moe")


def _experts(agent: AgentConfig, growth_steps: int) -> int:
    """Return the number of experts in each layer of the trained network; for text, in each Switch layer."""
    if agent.method == "gmoe":
        by = agent.record.get("grow_by", 1)
        added = [by] if isinstance(by, int) else list(by)
        first: int = (agent.width or 1) if agent.backbone == "switch" else agent.record.get("init_experts", 1)
        return int(first + sum(added[:growth_steps]) + max(growth_steps - len(added), 0) * added[-1])
    if agent.backbone == "switch":
        return int(agent.width or 1)
    return int(agent.record.get({"moe": "init_experts", "gens-moe": "experts"}.get(agent.method or "", ""), 1))


def _gate_outputs(agent: AgentConfig, experts: int) -> int:
    """Return the outputs of the gates of each mixture layer: two for each split of a tree, else one for each expert."""
    return 2 * (experts - 1) if agent.record.get("tree", True) or experts == 1 else experts


def _macs(agent: AgentConfig, facts: DataFacts, growth_steps: int) -> float:
    """Return the multiply-adds of one forward pass of the trained network."""
    width, sizes, experts = _width(agent), facts.sizes, _experts(agent, growth_steps)
    gates = _gate_outputs(agent, experts)
    if agent.backbone == "mlp":
        one = sizes.features * width + width**2
        return experts * one + sizes.classes * width + gates * (sizes.features + width)
    if agent.backbone == "switch":
        return forward_flops(sizes.vocabulary, SIZES[agent.record["size"]], experts, sizes.tokens) / 2
    if agent.method == "ff":
        width *= _firefly_width(agent, growth_steps)
    one = 16_848 * width**2 + (27_648 + sizes.classes) * width
    return one + (experts - 1) * 7_632 * width**2 + gates * 64 * width


def _parameters(agent: AgentConfig, facts: DataFacts, growth_steps: int) -> float:
    """Return the number of parameters of the trained network."""
    width, sizes, experts = _width(agent), facts.sizes, _experts(agent, growth_steps)
    gates = _gate_outputs(agent, experts)
    if agent.backbone == "mlp":
        expert = width**2 + (sizes.features + 2) * width
        return experts * expert + (width + 1) * sizes.classes + gates * (sizes.features + width + 2)
    if agent.backbone == "switch":
        size = replace(SIZES[agent.record["size"]], context=sizes.tokens)
        return parameter_count(sizes.vocabulary, size, experts)
    if agent.method == "ff":
        first: float = 135 * width**2 + (59 + sizes.classes) * width + sizes.classes
        if agent.record["budget"] == "parameters":
            return first * size_ratio(agent, growth_steps)
        width *= _firefly_width(agent, growth_steps)
        return 135 * width**2 + (59 + sizes.classes) * width + sizes.classes
    return (
        135 * width**2
        + (75 + sizes.classes) * width
        + sizes.classes
        + (experts - 1) * (126 * width**2 + 42 * width)
        + gates * (64 * width + 4)
    )


def _growth_flops(agent: AgentConfig, facts: DataFacts, stage: PlannedStage, examples: int, valid: int) -> float:
    """Return the FLOPs of the growth steps before a stage.

    gMoE evaluates the validation part once for each of them, unless it splits at random. Firefly passes the training
    examples through the over-grown network, forward and backward: once to tune it, and once for each point of the
    score.
    """
    if not stage.steps or agent.method not in ("gmoe", "ff") or agent.record.get("split_by") == "random":
        return 0.0
    before = range(stage.growth_steps - stage.steps, stage.growth_steps)
    if agent.method == "gmoe":
        return 2 * valid * sum(_macs(agent, facts, steps) for steps in before)
    passes = 1 + max(agent.record["score_points"], 1)
    wide = [_width(agent) * _firefly_width(agent, steps) + agent.record["candidates"] for steps in before]
    return float(6 * passes * examples * sum(9 * one**2 * 1_872 + 27 * one * 1_024 + 10 * one for one in wide))


def _width(agent: AgentConfig) -> float:
    if agent.width is None:
        raise ValueError(f"agent {agent.id!r} without a width: its effort is known only for the paper's methods")
    return agent.width
