"""The vectorised surrogates compute only the features that have changed: the observations are those of all features."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.surrogate_vector import SurrogateVectorEnv

EPISODES = 16
MADE = {
    "v0": lambda **keywords: SurrogateVectorEnv(EPISODES, stream="Digits-ALMA-v0", width=(4, 32), **keywords),
    "v1": lambda **keywords: DecisionSurrogateVectorEnv(
        EPISODES, stream="Digits-ALMA-v0", learner="gens", pass_price=(0, 100), memory_price=(0, 1), **keywords
    ),
}


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("version", MADE)
def test_observations_of_episodes_that_wait_train_and_start_again_are_those_of_all_their_features(version, mode):
    env = MADE[version](autoreset_mode=mode)
    generator = np.random.default_rng(0)
    shown, _ = env.reset(seed=0)
    for _ in range(3 * env.ticks):
        assert np.array_equal(shown, env._features(slice(None)))
        before, kept = shown, shown.copy()
        most_wait = generator.integers(env.single_action_space.n, size=EPISODES) * (generator.random(EPISODES) < 0.3)
        shown, _, ended, _, _ = env.step(most_wait)
        assert np.array_equal(before, kept)  # a user may keep an observation
        if mode is AutoresetMode.DISABLED and ended.any():
            shown, _ = env.reset(options={"reset_mask": ended})


def test_a_reset_of_some_episodes_leaves_the_observations_of_the_others():
    env = MADE["v1"](autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    before, *_ = env.step(np.ones(EPISODES, int))
    some = np.arange(EPISODES) % 2 == 0
    after, _ = env.reset(options={"reset_mask": some})
    assert np.array_equal(after[~some], before[~some])
    assert (after[some] != before[some]).any(axis=1).all()
