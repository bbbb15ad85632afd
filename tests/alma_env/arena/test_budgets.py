"""The budgets of single agents: an agent that breaks one is truncated, and the others continue."""

from __future__ import annotations

import numpy as np
import pytest

import alma_env
from alma_env.arena.arena import Arena

from .arenas import DIGITS, TICKS, make


@pytest.mark.parametrize("budget", ["flops_budget", "parameter_budget"])
def test_an_agent_that_breaks_a_budget_is_truncated_and_the_others_continue(budget):
    env = make(["b", "a", "c"], **{budget: {"b": 100}})
    env.reset(seed=0)
    env.step(dict.fromkeys(env.agents))
    if budget == "flops_budget":
        env.meters["b"].declare(101, reason="work")
    offered = env.action_space("b").sample()  # 640 parameters
    outcome = env.step({"a": env.action_space("a").sample(), "b": offered, "c": None})
    for by_agent in outcome:
        assert list(by_agent) == ["b", "a", "c"]
    observations, rewards, terminations, truncations, infos = outcome
    assert env.agents == ["a", "c"]
    assert terminations == {"a": False, "b": False, "c": False}
    assert truncations == {"a": False, "b": True, "c": False}
    assert rewards["b"] == pytest.approx(-0.9 * (TICKS - 1))
    assert [row.refused for row in env.ledgers["b"]] == [False, False] + [True] * (TICKS - 1)
    comp = 101 if budget == "flops_budget" else 0
    assert infos["a"]["rivals"]["b"] == {"error": 0.9, "parameters": 0, "comp": comp, "refused": True}
    # A truncated agent sees no mega-batch that the other agents have not seen.
    stream = alma_env.Stream(alma_env.load("Digits"), TICKS, seed=0)
    np.testing.assert_array_equal(observations["b"]["train"]["x"], stream.megabatch(3)["train"]["x"])
    with pytest.raises(ValueError, match="tick=4: mega-batches 1 to 3 have arrived"):
        env.megabatch(4)
    for _ in range(TICKS - 2):
        outcome = env.step(dict.fromkeys(env.agents))
        assert all(list(by_agent) == ["a", "c"] for by_agent in outcome)
    assert outcome[2] == {"a": True, "c": True}
    assert env.agents == []
    assert {len(ledger) for ledger in env.ledgers.values()} == {TICKS + 1}


def test_budgets_for_all_agents_and_by_name():
    env = make(flops_budget=100)
    assert {own["flops_budget"] for own in env.protocol()["agents"].values()} == {100}
    env = make(flops_budget={"a": 100})
    assert [own["flops_budget"] for own in env.protocol()["agents"].values()] == [100, None]
    template = alma_env.make(DIGITS, ticks=TICKS, parameter_budget=7)
    assert Arena(template, ["a"]).protocol()["agents"]["a"]["parameter_budget"] == 7
