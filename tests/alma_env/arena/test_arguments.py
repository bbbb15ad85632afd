"""The arguments of an arena, and the package that it needs."""

from __future__ import annotations

import runpy
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from alma_env import arena
from alma_env.errors import MissingPackageError

from .arenas import make


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"agents": []}, ValueError, "at least 1 agent"),
        ({"agents": 0}, ValueError, "at least 1 agent"),
        ({"agents": "ab"}, TypeError, "must be a list of names"),
        ({"agents": ["a", 1]}, TypeError, "1 must be a non-empty string"),
        ({"agents": ["a", "a"]}, ValueError, "'a' occurs twice"),
        ({"flops_budget": {"c": 1}}, ValueError, "flops_budget of agent 'c': unknown agent"),
        ({"flops_budget": {"a": 0}}, ValueError, "flops_budget=0: a budget must be positive"),
        ({"seats": 2}, ValueError, "seats=2: only with a shared budget"),
        ({"shared_flops_budget": 0}, ValueError, "shared_flops_budget=0: a budget must be positive"),
        ({"shared_flops_budget": 0.5}, TypeError, "shared_flops_budget=0.5: must be a whole number"),
        ({"shared_flops_budget": "1"}, TypeError, "shared_flops_budget='1'"),
        ({"shared_flops_budget": 9, "seats": 3}, ValueError, "seats=3: must lie between 1 and the number of agents, 2"),
        ({"shared_flops_budget": 9, "seats": 1.5}, TypeError, "seats=1.5: must be a whole number"),
        ({"colour": "red"}, TypeError, "colour"),
    ],
)
def test_arguments_that_break_a_rule_are_refused(keywords, error, message):
    with pytest.raises(error, match=message):
        make(**keywords)


def test_numbers_of_numpy_are_numbers():
    env = make(np.int64(2), shared_flops_budget=np.float32(1e9))
    assert (env.possible_agents, env.shared_flops_budget) == (["agent_0", "agent_1"], 10**9)


def test_a_wrapped_environment_or_a_negative_seed_is_refused_by_its_name():
    with pytest.raises(TypeError, match=r"env=<.*: must be an AlmaEnv; pass env\.unwrapped"):
        arena.Arena(gymnasium.make("alma_env:Digits-ALMA-v0"))
    with pytest.raises(ValueError, match="^seed=-1: the seed of a stream must be"):
        make().reset(seed=-1)


def test_only_the_arena_needs_pettingzoo(monkeypatch):
    command = (
        "import sys, alma_env, agents.cli.command, agents.cli.runs.run_sweep; sys.exit('pettingzoo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", command]).returncode == 0
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "alma_env.arena.arena")
    with pytest.raises(MissingPackageError, match=r"pip install 'alma-env\[rl\]'"):
        runpy.run_module("alma_env.arena.arena")
