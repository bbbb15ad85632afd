"""A policy learned on a surrogate drives real runs."""

from __future__ import annotations

import gymnasium as gym
import pytest

import agents
import agents.runs.run_folder
import alma_env
from agents.rl import recordings
from agents.rl.train import train_policy

from .synthetic import waits

pytest.importorskip("stable_baselines3")


@pytest.fixture
def file(tmp_path):
    recordings.save([*waits(noise=0.1), *waits(noise=0.1, width=9)], tmp_path / "waits.npz")
    return tmp_path / "waits.npz"


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "dqn"])
def test_a_learned_policy_drives_a_run_and_its_file_can_move(algorithm, file, tmp_path):
    settings = {"learning_starts": 10} if algorithm == "dqn" else {}
    model = train_policy(
        "Digits-ALMA-Wait-Surrogate-v0",
        algorithm=algorithm,
        steps=400,
        episodes_at_once=8,
        settings=settings,
        recorded=str(file),
        width=4,
    )
    model.save(tmp_path / "policy.zip")
    policy = agents.LearnedPolicy(tmp_path / "policy.zip")
    env = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", env, width=4, epochs=1, policy=policy)
    ledger = agents.run(env, agent, 0, tmp_path / "run")
    decided = [row.tick for row in ledger if "training" in row.flops]
    assert decided == [record.tick for record in agent.history]
    assert all(row.flops["policy"] > 0 for row in ledger.rows[1:])  # decisions are charged

    moved = tmp_path / "elsewhere.zip"
    (tmp_path / "policy.zip").rename(moved)
    again = agents.make("sm", env, width=4, epochs=1, policy=agents.LearnedPolicy(moved))
    assert agents.run(env, again, 0, tmp_path / "run").to_json() == ledger.to_json()


def test_a_learned_policy_decides_as_its_model_does_in_the_decision_environment(file, tmp_path):
    model = train_policy("Digits-ALMA-Wait-Surrogate-v0", steps=64, episodes_at_once=2, recorded=str(file), width=4)
    model.save(tmp_path / "policy.zip")
    env = gym.make("alma_env:Digits-ALMA-Wait-v0", width=4, epochs=1)
    observation, _ = env.reset(seed=0)
    ended, actions = False, []
    while not ended:
        action, _ = model.predict(observation, deterministic=True)
        actions.append(int(action))
        observation, _, ended, _, _ = env.step(action)
    alma = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", alma, width=4, epochs=1, policy=agents.LearnedPolicy(tmp_path / "policy.zip"))
    agents.run(alma, agent, 0)
    assert [record.tick for record in agent.history] == [n + 1 for n, action in enumerate(actions) if action]


def test_files_without_a_policy_are_refused(tmp_path):
    from stable_baselines3 import PPO

    with pytest.raises(ValueError, match="no.zip': .*not found; give .*model.save"):
        agents.LearnedPolicy(tmp_path / "no.zip")
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(ValueError, match="text.zip': not a model of PPO, A2C or DQN"):
        agents.LearnedPolicy(tmp_path / "text.zip")
    PPO("MlpPolicy", "CartPole-v1").save(tmp_path / "cart.zip")
    with pytest.raises(ValueError, match="not those of a waiting policy; use a model trained on"):
        agents.LearnedPolicy(tmp_path / "cart.zip")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"env_id": "CartPole-v1"},
            "env_id='CartPole-v1'.*: not a decision environment .*; the ids are .*Digits-ALMA-Wait-v0",
        ),
        ({"env_id": "Digits-ALMA-Wait-MO-v0"}, "not a decision environment whose rewards are numbers"),
        ({"reward": "vector"}, "reward='vector': not a decision environment whose rewards are numbers"),
        ({"algorithm": "sac"}, "algorithm='sac': must be one of ppo, a2c, dqn"),
        ({"steps": 0}, "steps=0: must be at least 1 decision"),
        ({"seed": -1}, "seed=-1: must be from 0 to"),
        ({"epochs": 3}, "epochs=3: Digits-ALMA-Wait-Surrogate-v0 has no such keyword; it has .*width"),
    ],
)
def test_wrong_arguments_of_training_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        train_policy(**({"env_id": "Digits-ALMA-Wait-Surrogate-v0"} | arguments))
