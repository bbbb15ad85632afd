"""Files of learned policies: what is saved with a model, and which files are refused."""

from __future__ import annotations

import json
import zipfile
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import agents
from agents.policies.learned import model_files
from agents.policies.progress import Progress
from agents.rl import save_policy
from agents.rl.learning.train import train_policy

pytest.importorskip("stable_baselines3")


def test_an_interrupted_save_of_a_policy_leaves_the_file_that_was_there(file, tmp_path, monkeypatch):
    model = train_policy("Digits-ALMA-Wait-Surrogate-v0", steps=64, episodes_at_once=2, recorded=str(file), width=4)
    saved = save_policy(model, tmp_path / "policy.zip")
    before = saved.read_bytes()

    def interrupted(path):
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_policy(model, saved)
    assert saved.read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))


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


@pytest.fixture
def saved(tmp_path):
    from stable_baselines3 import PPO

    return save_policy(
        PPO("MlpPolicy", gym.make("alma_env:Digits-ALMA-Wait-Surrogate-v0", width=4), seed=0), tmp_path / "policy.zip"
    )


def with_members(file, **changed):
    """Write the archive again with other contents of some members, whose dots are written as underscores."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, changed.get(name.replace(".", "_"), content))


@pytest.mark.parametrize("member", ["policy_pth", "data", "pytorch_variables_pth"])
def test_a_damaged_archive_is_refused(member, saved):
    with_members(saved, **{member: b""})
    with pytest.raises(ValueError, match=r"policy.zip': not a model of PPO, A2C or DQN.*PPO: \w+.*; give a file"):
        agents.LearnedPolicy(saved)


NORMALISATION = {"mean": [0.0] * 13, "variance": [1.0] * 13, "epsilon": 1e-8, "clip": 10.0}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"3",
        b"[]",
        b'{"mean": 1}',
        json.dumps(NORMALISATION | {"mean": [0.0] * 5}).encode(),
        json.dumps(NORMALISATION | {"mean": [None] * 13}).encode(),
        json.dumps(NORMALISATION | {"clip": "wide"}).encode(),
        json.dumps(NORMALISATION | {"variance": [-1.0] * 13}).encode(),
    ],
)
def test_a_wrong_normalisation_is_named_with_its_file(text, saved):
    with_members(saved, observation_normalisation_json=text)
    with pytest.raises(ValueError, match=r"policy.zip': its observation_normalisation.json holds no .*save_policy"):
        agents.LearnedPolicy(saved)


def test_a_policy_takes_a_price_beyond_those_of_its_training_for_the_nearest(tmp_path):
    model = train_policy("Digits-ALMA-Wait-Surrogate-v1", steps=64, episodes_at_once=2, width=4, pass_price=(5, 10))
    file = save_policy(model, tmp_path / "policy.zip")
    seen = []
    policy = agents.LearnedPolicy(file, pass_price=900, memory_price=5)
    assert agents.policy_record(policy)["pass_price"] == 900
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model_files.Model, "predict", lambda self, features, *_: seen.append(features) or (0, None))
        for price in (900, 10, 0, 5):
            agents.LearnedPolicy(file, pass_price=price)(Progress(1, 20, 1, 0, guess_loss=2.3))
    assert np.array_equal(seen[0], seen[1])
    assert np.array_equal(seen[2], seen[3])
    assert not np.array_equal(seen[0], seen[2])


@pytest.mark.parametrize(
    "text", [b"{", b"3", b'{"pass_price": [0, 10]}', b'{"pass_price": [9, 1], "memory_price": [0, 1]}']
)
def test_wrong_ranges_of_prices_are_named_with_their_file(text, saved):
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("prices.json", text)
    with pytest.raises(ValueError, match=r"policy.zip': its prices.json holds no ranges of prices .*save_policy"):
        agents.LearnedPolicy(saved)


def test_a_policy_that_is_replaced_during_a_run_is_refused_when_it_is_loaded_again(saved):
    policy = agents.LearnedPolicy(saved)
    with_members(saved, observation_normalisation_json=json.dumps(NORMALISATION).encode())
    model_files.load.cache_clear()
    with pytest.raises(ValueError, match=rf"policy.zip': the file has changed.*then {policy.digest}\); restore it"):
        policy(Progress(1, 20, 1, 0, guess_loss=2.3))


def test_a_model_without_its_environment_is_not_saved(saved, tmp_path):
    from stable_baselines3 import PPO

    with pytest.raises(ValueError, match=r"again.zip': the model has no environment.*PPO.load\(FILE, env=env\)"):
        save_policy(PPO.load(saved), tmp_path / "again.zip")
    assert not (tmp_path / "again.zip").exists()


def test_a_model_of_environments_in_other_processes_is_saved(tmp_path):
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import SubprocVecEnv

    env = SubprocVecEnv([partial(gym.make, "alma_env:Digits-ALMA-Wait-Surrogate-v0", width=4)])
    try:
        file = save_policy(PPO("MlpPolicy", env, seed=0), tmp_path / "policy.zip")
        assert env.reset().shape == (1, 13)  # its process goes on
    finally:
        env.close()
    assert agents.LearnedPolicy(file).digest
