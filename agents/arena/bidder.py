"""Bids of the paper's agents for a shared budget: an agent bids the cost of its next stage, and waits without a grant.

The ledger gives the cost of one answer of the deployed predictor (``inference_flops``). A stage of E epochs on n
training and v validation examples costs about

    E · (3 n + v) · inference_flops                    a backward pass costs two forward passes

An agent multiplies this estimate by the ratio of real to estimated cost of its last stage. The ratio is less than 1 if
the first layer needs no input gradient or only a new member is trained, and more than 1 if growth is expensive. The bid
is the product times an allowance at each tick at which the policy would train, if the pool could pay the bid. At other
ticks the bid is 0. If the grant is smaller than the bid, the agent waits: its mega-batches accumulate, so its next bid
is higher, and of two equal agents the one that has waited longer wins.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from agents.catalogue.agent_config import AgentConfig
from agents.learners.anytime import AnytimeAgent, MegaBatch
from agents.policies import Decision, Progress
from agents.policies.progress import decision_of, megabatches_of
from alma_env import Ledger
from alma_env.metering.meter import Meter

# Factors of the estimate. Exceeding a grant ends an agent's episode; a bid that is too high only costs the difference.
ALLOWANCE = 1.05
FIRST_GROWTH_ALLOWANCE = 4.0  # the cost of growth is unknown before the first growth step
GROWTH_ALLOWANCE = 2.0  # the cost of growth changes with the size of the network
WAIT = Decision(train=False)
_NEEDED = ("epochs", "updates", "batch_size", "keep_initial", "patience")  # settings of a stage, for the estimate


def wait(now: Progress) -> Decision:
    """Never train: the policy of an agent without a grant. Run folders of earlier versions name this function."""
    return WAIT


class Bidder:
    """Bids for an agent and keeps it within its grants.

    Args:
        agent: an ``AnytimeAgent`` that has not run yet. `next_bid` asks its policy, once for each tick and outside of
            the meter; so the cost of a learned policy is not charged.
        meter: the meter that charges the agent.

    Raises:
        ValueError: the agent is a Firefly that grows, or its configuration has no settings of a stage.
    """

    def __init__(self, agent: AnytimeAgent, meter: Meter) -> None:
        growth = getattr(agent.policy, "growth", "every")
        id = agent.config.get("id", type(agent.learner).__name__)
        if AgentConfig(agent.config).method == "ff" and growth != "never":
            raise ValueError(
                f"growth={growth!r} of agent 'ff' with a shared budget: growth of Firefly may cost hundreds of stages "
                "and cannot be estimated, so no bid covers it; use growth=never, or a flops_budget"
            )
        if missing := [name for name in _NEEDED if name not in agent.config.get("stage", {})]:
            raise ValueError(
                f"agent {id!r} with a shared budget: config['stage'] has no {', '.join(missing)}, from which "
                "a bid is computed; record them, as an agent of agents.make does, or use a flops_budget"
            )
        self.agent = agent
        self.meter = meter
        self.bid = 0  # for the next tick
        self._decision = WAIT  # of the policy, for the next tick
        self._estimate = 0.0  # FLOPs of the stage in the bid, by the formula
        self._growth_steps = 0  # of the agent before that stage
        self._has_grown = False
        self._factor = 1.0  # real cost of the last stage divided by its estimate

    def observe(self, observation: MegaBatch, grant: int) -> nn.Module | None:
        """Gather a mega-batch, and train if the policy decides so and the grant covers the bid.

        Call this inside ``with meter:``.
        """
        before, stages = self.meter.total, self.agent.stages
        self.agent.gather(observation)
        predictor = self.agent.carry_out(self._decision if grant >= self.bid > 0 else WAIT)
        if self.agent.stages > stages and self._estimate > 0:
            self._factor = (self.meter.total - before) / self._estimate
            self._has_grown |= self._growth_steps > 0
        return predictor

    def next_bid(self, observation: MegaBatch, ledger: Ledger, pool: int) -> int:
        """Return the FLOPs to bid for the next tick; 0 if the policy would wait, or if the pool could not pay the bid.

        The observation is any mega-batch, because all have the same size.
        """
        now = self.agent.progress()
        self.bid = 0
        if now.tick == now.ticks:
            return 0
        next_time = dataclasses.replace(now, tick=now.tick + 1, pending=now.pending + 1, flops=self.meter.total)
        decision = self._decision = decision_of(self.agent.policy, next_time)
        if decision.train:
            gathered = megabatches_of(next_time.tick, next_time.pending, replay=decision.replay, window=decision.window)
            self._estimate = self._stage_flops(observation, gathered, ledger[-1].inference_flops)
            self._growth_steps = decision.grow if now.stages > 0 else 0
            bid = math.ceil(self._estimate * self._ratio(ledger) * self._allowance())
            self.bid = bid if bid <= pool else 0
        return self.bid

    def _ratio(self, ledger: Ledger) -> float:
        """Return the expected ratio of real to estimated cost."""
        if self._settings["patience"] is None:
            return self._factor
        # The last stage may have stopped early; the next stage may not. The estimate is that of the network in the
        # ledger. If it has just grown, the number of parameters tells how much more a whole stage costs.
        parameters = sum(parameter.numel() for parameter in self.agent.predictor.parameters())
        return max(self._factor, 1.0, parameters / max(ledger[-1].parameters, 1))

    def _allowance(self) -> float:
        if not self._growth_steps:
            return ALLOWANCE
        first = GROWTH_ALLOWANCE if self._has_grown else FIRST_GROWTH_ALLOWANCE
        return float(first * GROWTH_ALLOWANCE ** (self._growth_steps - 1) * ALLOWANCE)

    def _stage_flops(self, observation: MegaBatch, mega_batches: int, inference_flops: float) -> float:
        train, valid = (len(observation[part]["y"]) for part in ("train", "valid"))
        epochs, updates = self._settings["epochs"], self._settings["updates"]
        trained = epochs * train * mega_batches if updates is None else updates * self._settings["batch_size"]
        validations = epochs + self._settings["keep_initial"]
        validated = validations * valid * (1 if self.agent.held_out_valid else mega_batches)
        passes: int = 3 * trained + validated
        return passes * inference_flops

    @property
    def _settings(self) -> Mapping[str, Any]:
        stage: Mapping[str, Any] = self.agent.config["stage"]
        return stage
