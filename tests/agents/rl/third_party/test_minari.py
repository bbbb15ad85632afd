"""Minari's DataCollector records episodes of the environments, unmodified."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("minari", reason="the package minari is not installed")
pytest.importorskip("jax", reason="the package jax is not installed, which minari[create] needs")
import minari

SMALL = {"ticks": 4, "width": 4, "epochs": 1}


@pytest.mark.filterwarnings("ignore::UserWarning:minari")  # a data set without author
@pytest.mark.parametrize(
    ("id", "keywords"),
    [("alma_env:Digits-ALMA-Wait-v0", SMALL), ("alma_env:Digits-ALMA-Wait-Surrogate-v0", {"width": 4})],
)
def test_the_data_collector_records_episodes(id, keywords, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    collector = minari.DataCollector(gym.make(id, **keywords), record_infos=True)
    rewards = []
    for seed in range(2):
        collector.reset(seed=seed)
        ended, total = False, 0.0
        while not ended:
            _, reward, ended, _, _ = collector.step(1)
            total += reward
        rewards.append(total)
    collector.create_dataset("alma/collected-v0", algorithm_name="always train")
    collector.close()
    saved = minari.load_dataset("alma/collected-v0")
    assert [episode.rewards.sum() for episode in saved.iterate_episodes()] == pytest.approx(rewards)
    assert all(np.isfinite(episode.infos["vector_reward"][1:]).all() for episode in saved.iterate_episodes())
    assert saved.recover_environment().spec.id == id.partition(":")[2]
