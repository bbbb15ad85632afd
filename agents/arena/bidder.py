"""How one of the paper's agents plays for a shared budget: it bids what its next training will cost, and else waits.

The environment says what one answer of the deployed predictor costs (``inference_flops``). A stage of E epochs on n
training and v validation examples then costs about

    E · (3 n + v) · inference_flops                    backward passes cost twice what forward passes do

times what the agent's last stage really cost beside this formula: less than 1 where the first layer needs no input
gradient or only a new member is trained, more than 1 where growth is expensive. An agent bids this, with an allowance,
for each tick at which its policy would train, as far as the pool could pay for it, and nothing for others. Where its
grant is smaller than its bid, it waits: its mega-batches pile up, so that its next bid is higher, and of two agents
alike the one that has waited longer goes first.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from agents.anytime import AnytimeAgent, MegaBatch
from agents.policies import Decision, Policy, Progress
from alma_env import Ledger
from alma_env.meter import Meter

# What is bid beyond the estimate. Breaking a grant ends an agent's episode, bidding too much only costs the rest of it.
ALLOWANCE = 1.05
FIRST_GROWTH_ALLOWANCE = 4.0  # what growth costs is not known before it has happened once,
GROWTH_ALLOWANCE = 2.0  # and changes with what it makes


def wait(now: Progress) -> Decision:
    """The policy of an agent that may not train."""
    return Decision(train=False)


class Bidder:
    """Bids for an agent, and keeps it within its grants.

    Args:
        agent: an ``AnytimeAgent`` that has not run yet. Its policy is asked only where it may train.
        meter: that it is charged on.

    Raises:
        ValueError: the agent is a Firefly that grows.
    """

    def __init__(self, agent: AnytimeAgent, meter: Meter) -> None:
        growth = getattr(agent.policy, "growth", "every")
        if agent.config["id"] == "ff" and growth != "never":
            raise ValueError(
                f"growth={growth!r} of agent 'ff' with a shared budget: Firefly's growth may cost hundreds of stages "
                "and nothing shows how much before, so that no bid can cover it; use growth=never, or a flops_budget"
            )
        self.agent = agent
        self.meter = meter
        self.bid = 0  # for the tick that comes next
        self._policy: Policy = agent.policy
        self._estimate = 0.0  # FLOPs by the formula, of the stage that was bid for
        self._grows = False  # whether it would grow before that stage
        self._has_grown = False
        self._factor = 1.0  # what the last stage cost, as a part of that

    def observe(self, observation: MegaBatch, grant: int) -> nn.Module | None:
        """Take in a mega-batch, and train if the policy says so and the grant is what was bid.

        Call it inside ``with meter:``.
        """
        self.agent.policy = self._policy if grant >= self.bid > 0 else wait
        before, stages = self.meter.total, self.agent.stages
        predictor = self.agent.observe(observation)
        if self.agent.stages > stages and self._estimate > 0:
            factor = (self.meter.total - before) / self._estimate
            # With patience the last stage may have ended early, and the next one may not.
            self._factor = factor if self._settings["patience"] is None else max(factor, 1.0)
            self._has_grown |= self._grows
        return predictor

    def next_bid(self, observation: MegaBatch, ledger: Ledger, pool: int) -> int:
        """FLOPs to bid for the next tick; 0 where the policy would wait then, or the pool could not pay for it.

        Args:
            observation: the mega-batch that has arrived last, or first; all have the same size.
            ledger: the agent's own so far.
            pool: FLOPs that are left for all.
        """
        now = self.agent.progress()
        self.bid = 0
        if now.tick == now.ticks:
            return 0
        next_time = dataclasses.replace(now, tick=now.tick + 1, pending=now.pending + 1, flops=self.meter.total)
        decision = copy.deepcopy(self._policy)(next_time)  # a copy: it may remember what it was asked
        if decision.train:
            gathered = next_time.tick if decision.replay else next_time.pending
            self._estimate = self._stage_flops(observation, gathered, ledger[-1].inference_flops)
            self._grows = decision.grow > 0 and now.stages > 0
            bid = math.ceil(self._estimate * self._factor * self._allowance())
            self.bid = bid if bid <= pool else 0
        return self.bid

    def _allowance(self) -> float:
        if not self._grows:
            return ALLOWANCE
        return GROWTH_ALLOWANCE if self._has_grown else FIRST_GROWTH_ALLOWANCE

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
