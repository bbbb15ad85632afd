"""A growing learner grows before the stages that its growth schedule lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import agents
import alma_env
from agents import AnytimeAgent, Decision, StageReport, fixed_wait
from agents.policies.growing import growth


class Losses:
    """A learner with given validation losses that records before which stages it grew."""

    def __init__(self, losses):
        self.predictor = torch.nn.Identity()
        self.losses = losses
        self.stage = 0
        self.grown: list[int] = []

    def train(self, train, valid):
        self.stage += 1
        return StageReport((self.losses[self.stage - 1],), (0.5,), 1)

    def grow(self, train, valid):
        self.grown.append(self.stage + 1)


def grown(policy, ticks=12, losses=None) -> list[int]:
    """Return the stages before which a learner grows, once per growth step."""
    learner = Losses(losses or [1.0] * ticks)
    agent = AnytimeAgent(learner, policy, ticks)
    part = {"x": np.zeros((2, 3), np.float32), "y": np.zeros(2, np.int64)}
    for _ in range(ticks):
        agent.observe({"train": part, "valid": part})
    return learner.grown


@pytest.mark.parametrize(
    ("schedule", "wait", "expected"),
    [
        ("never", 2, []),
        ("every", 2, [2, 3, 4, 5, 6]),
        ("every:1", 2, [2, 3, 4, 5, 6]),
        ("every:2", 2, [2, 4, 6]),
        ("every:3", 2, [3, 6]),
        ("every:7", 2, []),
        ("at:6", 2, [3]),
        ("at:5", 2, [3]),
        ("at:5", 5, []),  # never before the first stage
        ("at:6", 5, [2]),
        ("at:9,3", 1, [3, 9]),
        ("at:7,8", 5, [2, 2]),  # two steps before one stage
        ("at:12", 5, [3]),
        ("at:13", 5, []),
    ],
)
def test_growth_follows_its_schedule(schedule, wait, expected):
    assert grown(fixed_wait(wait, growth=schedule)) == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("stall", [4, 6]), ("stall:0.1", [4, 5, 6]), ("stall:0", [4, 6]), ("stall:100", [3, 4, 5, 6])],
)
def test_growth_at_a_stall_compares_the_last_two_stages(schedule, expected):
    losses = [3.0, 2.0, 2.0, 1.95, float("nan"), 1.0]  # of stages 1 to 6
    assert grown(fixed_wait(1, growth=schedule), ticks=6, losses=losses) == expected


def test_a_policy_grows_by_any_number_of_steps():
    assert grown(lambda now: Decision(train=True, grow=now.tick == 3), ticks=4) == [3]
    assert grown(lambda now: Decision(train=True, grow=3 if now.tick == 2 else 0), ticks=4) == [2, 2, 2]
    assert Decision(train=True, grow=True) == Decision(train=True, grow=1)
    assert repr(Decision(train=np.True_, replay=np.False_, grow=np.int64(2), restart=np.True_)) == repr(
        Decision(train=True, replay=False, grow=2, restart=True)
    )
    for bad in (-1, 0.5, "yes"):
        with pytest.raises(ValueError, match=f"grow={bad!r}.*growth steps.*0 or more.*grow=1"):
            Decision(train=True, grow=bad)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("always", "growth='always'.*never, every, every:m, at:.*growth='every'"),
        ("never:2", "growth='never:2'.*one of"),
        ("at", "growth='at'.*one of"),
        ("", "growth=''.*one of"),
        ("every:0", "growth='every:0'.*'0'.*at least 1.*growth='every:2'"),
        ("every:", "''.*whole number"),
        ("every:1.5", r"'1\.5'.*whole number"),
        ("at:3,x", "'x'.*whole number"),
        ("at:-3", "'-3'.*at least 1"),
        ("stall:low", "growth='stall:low'.*'low'.*at least 0.*growth='stall:0.01'"),
        ("stall:-1", "'-1'.*at least 0"),
        ("stall:inf", "'inf'.*finite"),
        (2, "growth=2: "),
    ],
)
def test_an_unknown_growth_schedule_raises(schedule, message):
    with pytest.raises(ValueError, match=message):
        growth(schedule)
    with pytest.raises(ValueError, match="growth="):
        fixed_wait(2, growth=schedule)


@pytest.fixture
def env():
    return alma_env.make("Digits-ALMA-v0", ticks=8)


def make(env, id="sm", **keywords):
    return agents.make(id, env, **{"width": 8, "epochs": 2, **keywords})


def test_a_growing_agent_grows_before_every_stage_by_default(env):
    members = {
        schedule: [row.parameters for row in agents.run(env, make(env, id="gens", wait=2, growth=schedule), 0)]
        for schedule in (None, "every", "every:2", "never")
    }
    one = members["never"][0]
    assert members[None] == members["every"] == [one * n for n in (1, 1, 1, 1, 2, 2, 3, 3, 4)]
    assert members["every:2"] == [one * n for n in (1, 1, 1, 1, 2, 2, 2, 2, 3)]
    assert set(members["never"]) == {one}


def test_growth_of_an_agent_that_cannot_grow_raises(env):
    with pytest.raises(ValueError, match="growth='every': agent 'sm' cannot grow; .*gens"):
        make(env, growth="every")
    with pytest.raises(ValueError, match="growth='every:2': agent 'sm' cannot grow"):
        make(env, policy=fixed_wait(2, growth="every:2"))
    with pytest.raises(ValueError, match="growth='every' with a policy"):
        make(env, id="gens", policy=fixed_wait(2), growth="every")
    assert make(env, growth="never").config["policy"]["growth"] == "never"
