"""Observations of text: token ids, the seed of the stream, and Gymnasium's checks."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("tokenizers")
from alma_env import AlmaEnv
from alma_env.arena.arena import Arena

from .predictors import LENGTH, TICKS, VOCABULARY, Make, assert_same


@pytest.mark.filterwarnings("ignore:.*action space.*:UserWarning")
def test_gymnasiums_checker_passes_through_the_registered_id(folder: Path) -> None:
    from gymnasium.utils.env_checker import check_env

    env = gym.make("alma_env:Text-ALMA-v0", train="tiny", vocabulary_size=VOCABULARY, cache=folder / "cache")
    check_env(env.unwrapped, skip_render_check=False)


def test_an_observation_has_token_ids_and_their_next_tokens(env: AlmaEnv) -> None:
    observation, _ = env.reset(seed=0)
    for _ in range(TICKS + 1):
        assert observation in env.observation_space
        for part in observation.values():
            x, y = part["x"], part["y"]
            assert x.dtype == y.dtype == np.int32
            assert x.shape == y.shape == (len(x), LENGTH)
            assert 0 <= x.min() <= x.max() < VOCABULARY
            np.testing.assert_array_equal(y[:, :-1], x[:, 1:])
            np.testing.assert_array_equal(y[:-1, -1], x[1:, 0])
        assert len(observation["train"]["x"]) == env.examples_per_tick
        if not env.done:
            observation, *_ = env.step(None)


def test_the_validation_set_is_equal_at_every_tick(env: AlmaEnv) -> None:
    first, _ = env.reset(seed=0)
    train_parts = [first["train"]["x"].tobytes()]
    while not env.done:
        later, *_ = env.step(None)
        np.testing.assert_array_equal(later["valid"]["x"], first["valid"]["x"])
        train_parts.append(later["train"]["x"].tobytes())
    assert len(set(train_parts)) == TICKS  # the last one is returned twice


def test_the_seed_determines_the_stream(make: Make) -> None:
    one, two = make(), make()
    observation, _ = one.reset(seed=3)
    assert_same(observation, two.reset(seed=3)[0])
    assert_same(one.step(None)[0], two.step(None)[0])
    other, _ = two.reset(seed=4)
    assert not np.array_equal(other["train"]["x"][:50], observation["train"]["x"][:50])
    # Without a seed, the environment's generator draws one.
    drawn = [env.reset()[0] for env in (one, two)]
    assert one.stream_seed != two.stream_seed
    assert not np.array_equal(drawn[0]["train"]["x"][:50], drawn[1]["train"]["x"][:50])


def test_examples_per_tick_is_known_before_the_first_reset_and_depends_on_the_seed(make: Make) -> None:
    env = make()
    before = env.examples_per_tick
    observations = {seed: env.reset(seed=seed)[0] for seed in (0, 3)}
    assert before == len(observations[0]["train"]["x"])
    assert env.examples_per_tick == len(observations[3]["train"]["x"])
    assert make(ticks=2).examples_per_tick > before


def test_in_the_arena_every_agent_gets_separate_arrays(make):
    game = Arena(make(), 2)
    observations, _ = game.reset(seed=0)
    kept = observations["agent_1"]["train"]["x"].copy()
    for part in ("train", "valid"):
        observations["agent_0"][part]["x"][:] = 0
    np.testing.assert_array_equal(observations["agent_1"]["train"]["x"], kept)
    np.testing.assert_array_equal(game.megabatch(1)["train"]["x"], kept)
    assert observations["agent_1"]["valid"]["x"].any()
    while game.agents:
        observations, *_ = game.step({agent: game.action_space(agent).sample() for agent in game.agents})
    assert observations["agent_0"] in game.observation_space("agent_0")
    assert [len(ledger) for ledger in game.ledgers.values()] == [game.ticks + 1] * 2


def test_no_tick_leaves_a_file_open(make: Make) -> None:
    env, files = make(), Path("/proc/self/fd")
    if not files.exists():
        pytest.skip("only Linux lists the open files of a process")
    env.reset(seed=0)
    before = len(list(files.iterdir()))
    while not env.done:
        env.step(None)
    assert len(list(files.iterdir())) <= before
