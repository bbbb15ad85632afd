"""What users bring: wrapped environments, agents that only observe, and policies that return a bool or have a name."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import agents
import alma_env
from alma_env import AlmaEnv, Row

TICKS = 4
QUICK: dict[str, Any] = {"width": 4, "epochs": 1}


@pytest.fixture
def env() -> AlmaEnv:
    return alma_env.make("Digits-ALMA-v0", ticks=TICKS)


def rows_of(ledger: alma_env.Ledger) -> list[dict[str, Any]]:
    return [{**vars(row), "seconds": None} for row in ledger]


def test_a_wrapped_environment_gives_the_same_run(env: AlmaEnv, tmp_path: Any) -> None:
    wrapped = gym.wrappers.RecordEpisodeStatistics(gym.make("alma_env:Digits-ALMA-v0", ticks=TICKS))
    expected = agents.run(env, agents.make("sm", env, **QUICK), 0, tmp_path / "bare")
    agent = agents.make("sm", wrapped, **QUICK)
    assert rows_of(agents.run(wrapped, agent, 0, tmp_path / "wrapped")) == rows_of(expected)
    assert len({(tmp_path / name / "config.json").read_text() for name in ("bare", "wrapped")}) == 1


def test_an_environment_that_is_no_stream_is_refused(env: AlmaEnv) -> None:
    for other in (gym.make("alma_env:Digits-ALMA-Wait-v0", ticks=TICKS), gym.make("CartPole-v1"), "Digits-ALMA-v0"):
        with pytest.raises(TypeError, match=r"env of type \w+: agents learn on a stream; use alma_env.make"):
            agents.make("sm", other)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="agents learn on a stream"):
            agents.run(other, agents.make("sm", env, **QUICK), 0)  # type: ignore[arg-type]


class Newest:
    """Takes one step on each mega-batch."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
        self.seen: list[int] = []

    def observe(self, observation: Any) -> nn.Module:
        x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
        self.seen.append(len(x))
        F.cross_entropy(self.net(x.double()), y).backward()
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter -= 0.01 * parameter.grad
        return Raw(self.net)


class Raw(nn.Module):
    """Takes the raw inputs of the environment."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x.double())


def test_any_object_with_observe_runs(env: AlmaEnv) -> None:
    player, reported = Newest(), list[Row]()
    ledger = agents.run(env, player, 0, on_tick=reported.append)
    assert len(ledger) == TICKS + 1
    assert len(player.seen) == TICKS
    assert reported == ledger.rows
    assert ledger[0].error == pytest.approx(0.9)  # the uniform guess
    assert all(row.comp > 0 for row in ledger.rows[1:])
    with_predictor = Newest()
    with_predictor.predictor = Raw(with_predictor.net)  # type: ignore[attr-defined]
    assert agents.run(env, with_predictor, 0)[0].parameters == 650


def test_an_object_with_observe_has_no_folder_and_other_objects_do_not_run(env: AlmaEnv, tmp_path: Any) -> None:
    for keywords in ({"folder": tmp_path / "run"}, {"record": True}):
        with pytest.raises(ValueError, match=f"{next(iter(keywords))}=.* with an agent of type Newest: only .*Anytime"):
            agents.run(env, Newest(), 0, **keywords)
    assert not list(tmp_path.iterdir())
    for other in (object(), len, "sm"):
        with pytest.raises(TypeError, match=r"agent of type \w+: must have observe\(observation\)"):
            agents.run(env, other, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_a_policy_may_return_a_bool(env: AlmaEnv, kind: Any) -> None:
    policies = [lambda now: kind(now.tick % 2 == 0), agents.FixedWait(2)]
    one, other = (agents.run(env, agents.make("sm", env, **QUICK, policy=policy), 0) for policy in policies)
    assert rows_of(one) == rows_of(other)


@pytest.mark.parametrize("returned", [None, 1, (True, False), "train"])
def test_any_other_return_value_of_a_policy_is_refused_with_the_rule(env: AlmaEnv, returned: Any) -> None:
    agent = agents.make("sm", env, **QUICK, policy=lambda now: returned)
    rule = r"policy <lambda> \(test_players\.py, line \d+\) returned .* at tick 1: must be an agents\.Decision, or True"
    with pytest.raises(TypeError, match=rule):
        agents.run(env, agent, 0)


def test_a_policy_has_the_names_of_the_command_line(env: AlmaEnv, tmp_path: Any) -> None:
    assert agents.make("sm", env, policy="doubling:first=2").policy == agents.Doubling(first=2)
    assert agents.make("gens", env, policy="doubling").policy == agents.Doubling(growth="every")
    agents.run(env, agents.make("sm", env, **QUICK, policy="doubling"), 0, tmp_path)
    again = agents.make("sm", env, **QUICK, policy=agents.Doubling())
    assert len(agents.run(env, again, 0, tmp_path)) == TICKS + 1  # the same configuration
    with pytest.raises(ValueError, match="policy=twice: unknown policy; choose one of fixed"):
        agents.make("sm", env, policy="twice")
    with pytest.raises(ValueError, match="policy=doubling:by=2: 'by=2' is not a field"):
        agents.make("sm", env, policy="doubling:by=2")
    with pytest.raises(TypeError, match=r"policy=5: must be a function from agents\.Progress to agents\.Decision"):
        agents.make("sm", env, policy=5)  # type: ignore[arg-type]
