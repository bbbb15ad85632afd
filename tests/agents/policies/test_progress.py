"""What a policy may return, and what it may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import agents
import alma_env
from agents import AnytimeAgent, Decision, Doubling
from agents.policies.progress import PolicyError


class Eager:
    def __call__(self, now: agents.Progress) -> bool:
        return True


def eager_policy() -> agents.Policy:
    return Eager()


@pytest.mark.parametrize("name", ["train", "replay", "restart"])
@pytest.mark.parametrize("value", ["no", 1, None, torch.tensor(True)])
def test_a_decision_of_neither_true_nor_false_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"{name}=.*: must be True or False; use {name}=True, or bool\(\)"):
        Decision(**{"train": True, name: value})


@pytest.mark.parametrize("train", [True, False])
def test_a_window_without_replay_is_refused(train: bool) -> None:
    with pytest.raises(ValueError, match="window=5 without replay: .*; use replay=True as well, or leave window out"):
        Decision(train, window=5)
    assert Decision(train, replay=True, window=5).window == 5


@pytest.mark.parametrize("window", [0, 2.5, "5"])
def test_a_window_that_is_no_number_of_mega_batches_is_refused(window: Any) -> None:
    with pytest.raises(ValueError, match=f"window={window!r}: must be a whole number of mega-batches, at least 1"):
        Decision(True, replay=True, window=window)


@pytest.mark.parametrize("policy", [Doubling, Eager])
def test_a_class_in_the_place_of_a_policy_is_refused_with_its_object_as_the_remedy(policy: Any) -> None:
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    name = policy.__name__
    message = rf"policy={name}: must be an object of this class, not the class; write policy={name}\(\)"
    with pytest.raises(TypeError, match=message):
        agents.make("sm", env, policy=policy)
    with pytest.raises(TypeError, match=message):
        AnytimeAgent(agents.make("sm", env, width=4).learner, policy, 3)
    with pytest.raises(TypeError, match=message):
        agents.policy_record(policy)


@pytest.mark.parametrize("policy", [agents.fixed_wait, eager_policy])
def test_a_function_that_returns_a_policy_is_refused_with_its_call_as_the_remedy(policy: Any) -> None:
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    message = (
        rf"policy={policy.__name__}: must be the policy that this function returns, .* policy=agents.fixed_wait\(10\)"
    )
    with pytest.raises(TypeError, match=message):
        agents.make("sm", env, policy=policy)
    with pytest.raises(TypeError, match=message):
        AnytimeAgent(agents.make("sm", env, width=4).learner, policy, 3)


def test_a_policy_that_returns_a_policy_is_told_apart_from_a_wrong_decision() -> None:
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    agent = agents.make("sm", env, width=4, policy=lambda now: Eager())
    place = r"policy=<lambda> \(test_progress.py, line \d+\)"
    with pytest.raises(PolicyError, match=f"{place}: must be the policy that this function returns"):
        agents.run(env, agent, seed=0)
