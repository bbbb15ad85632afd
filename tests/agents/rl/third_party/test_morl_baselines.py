"""PCN of morl-baselines learns on the surrogate with vector rewards, unmodified."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mo_gymnasium", reason="the package mo-gymnasium is not installed")
pytest.importorskip("morl_baselines", reason="the package morl-baselines is not installed")
import mo_gymnasium
from morl_baselines.multi_policy.pcn.pcn import PCN

SURROGATE = "alma_env:Digits-ALMA-Wait-Surrogate-MO-v0"


def test_pcn_learns_and_acts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # PCN writes its weights into the current folder
    env, evaluation = (mo_gymnasium.make(SURROGATE, width=4) for _ in range(2))
    agent = PCN(env, scaling_factor=np.array([1, 1, 1, 0.1]), hidden_dim=16, batch_size=8, log=False, device="cpu")
    agent.train(
        total_timesteps=100,
        eval_env=evaluation,
        ref_point=np.array([-30.0, -1.0, -1.0]),
        num_er_episodes=2,
        num_step_episodes=1,
        num_model_updates=2,
        max_buffer_size=10,
    )
    assert agent.global_step >= 100
    observation, _ = evaluation.reset(seed=0)
    agent.set_desired_return_and_horizon(np.array([-3.0, -1e-4, -1e-2], np.float32), 20)
    assert agent.eval(observation) in evaluation.action_space
