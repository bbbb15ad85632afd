"""RLlib runs unmodified: PPO and DQN on the decision environment and on its surrogate."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("tree", reason="RLlib is not installed (dm-tree)")
pytest.importorskip("ray", reason="the package ray is not installed")
pytest.importorskip("lz4", reason="RLlib is not installed (lz4)")
pytest.importorskip("ormsgpack", reason="RLlib is not installed (ormsgpack)")

REAL, SURROGATE = "alma_env:Digits-ALMA-Wait-v0", "alma_env:Digits-ALMA-Wait-Surrogate-v0"


@pytest.fixture(scope="module")
def ray_of_two_cores():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.parametrize(("id", "keywords"), [(REAL, {"ticks": 4, "width": 4, "epochs": 1}), (SURROGATE, {"width": 4})])
def test_ppo_trains(ray_of_two_cores, id, keywords):
    from ray.rllib.algorithms.ppo import PPOConfig

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = (
            PPOConfig()
            .environment(id, env_config=keywords)
            .env_runners(num_env_runners=0)
            .training(train_batch_size=40, minibatch_size=20, num_epochs=1)
        )
        algorithm = config.build_algo()
        try:
            result = algorithm.train()
        finally:
            algorithm.stop()
    assert result["num_env_steps_sampled_lifetime"] >= 40
    assert result["env_runners"]["episode_return_mean"] < 0
