"""In a verification, an agent meets the environment of its own machine."""

from __future__ import annotations

import numpy as np
import pytest

from leaderboard.verification.contestant import RemoteEnv

from .cheaters.judged import play


def test_an_agent_asks_the_same_environment_as_on_its_own_machine(env):
    answers = []

    def contestant(channel, begun):
        remote = RemoteEnv(channel, begun)
        remote.reset(seed=0)
        answers.append((remote.megabatch(np.int64(1)), remote.examples_per_tick))
        for wrong in (1.0, True, "1"):
            with pytest.raises(TypeError, match="must be an integer"):
                remote.megabatch(wrong)

    play(env, contestant)
    ((found, examples),) = answers
    env.reset(seed=0)
    assert examples == env.examples_per_tick
    for part, arrays in env.megabatch(1).items():
        assert all(np.array_equal(found[part][name], array) for name, array in arrays.items())
