"""sb3-contrib runs unmodified: MaskablePPO with the masks of the environments, RecurrentPPO and QRDQN."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("sb3_contrib", reason="the package sb3-contrib is not installed")
from sb3_contrib import QRDQN, MaskablePPO, RecurrentPPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.env_util import make_vec_env

from agents.rl.learning.sb3 import SurrogateVecEnv
from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv

SMALL = {"ticks": 4, "width": 4, "epochs": 1}
REAL, SURROGATE = "alma_env:Digits-ALMA-Wait-v0", "alma_env:Digits-ALMA-Wait-Surrogate-v0"


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (RecurrentPPO, {"policy": "MlpLstmPolicy", "n_steps": 8, "batch_size": 8}),
        (QRDQN, {"policy": "MlpPolicy", "learning_starts": 4}),
        (MaskablePPO, {"policy": "MlpPolicy", "n_steps": 8, "batch_size": 8}),
    ],
)
@pytest.mark.parametrize(("id", "keywords"), [(REAL, SMALL), (SURROGATE, {"width": 4})])
def test_the_algorithms_train(algorithm, settings, id, keywords):
    model = algorithm(env=make_vec_env(id, n_envs=1, env_kwargs=keywords), seed=0, **settings).learn(8)
    assert model.num_timesteps >= 8


def test_maskable_ppo_never_chooses_a_void_action():
    """Before the first training replay and growth are void, so no episode begins with the actions 2, 3, 4."""
    env = gym.make(REAL, actions="flat", learner="gens", **SMALL)
    assert is_masking_supported(env)
    model = MaskablePPO("MlpPolicy", env, n_steps=8, batch_size=8, seed=0).learn(8)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        action, _ = model.predict(observation, action_masks=get_action_masks(env))
        assert action in (0, 1)


def test_maskable_ppo_takes_the_masks_of_the_vectorised_surrogate():
    env = SurrogateVecEnv(SurrogateVectorEnv(3, stream="Digits-ALMA-v0", width=4))
    env.reset()
    assert is_masking_supported(env)
    assert np.array_equal(get_action_masks(env), np.ones((3, 2), bool))
    assert MaskablePPO("MlpPolicy", env, n_steps=8, batch_size=8, seed=0).learn(24).num_timesteps >= 24
