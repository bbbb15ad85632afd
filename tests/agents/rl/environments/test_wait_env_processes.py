"""A decision environment in other processes: its spec, its pickle, and vector environments."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress

import gymnasium as gym
import numpy as np
import pytest

from ...ledgers import without_seconds
from ..small_env import ID, SMALL, make


def test_the_spec_round_trips_through_json():
    env = make(learner="ens", members=2, flops_price=0.5)
    spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    assert gym.make(spec).unwrapped.reward.prices.flops == 0.5


def test_a_vector_environment_runs_in_processes():
    envs = gym.make_vec(ID, num_envs=2, vectorization_mode="async", **SMALL)
    try:
        envs.reset(seed=[3, 4])
        _, rewards, *_ = envs.step(np.array([1, 0]))
    finally:
        envs.close()
    single = make()
    single.reset(seed=3)
    assert single.step(1)[1] == rewards[0]


def test_processes_do_not_wait_for_ever_where_the_parent_has_used_pytorch():
    """A fork copies the state of the pool of threads, but not its threads."""
    script = (
        "import gymnasium, numpy, torch\n"
        "torch.set_num_threads(2)\n"
        "torch.randn(4_000_000).relu()\n"
        f"envs = gymnasium.make_vec({ID!r}, num_envs=1, vectorization_mode='async', ticks=2, width=512, epochs=1,\n"
        "    engine='plain', vector_kwargs={'context': 'fork'})\n"
        "envs.reset(seed=0)\n"
        "print(envs.step(numpy.array([1]))[1].shape)\n"
        "envs.close()\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", "-c", script]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True) as run:
        try:
            assert run.communicate(timeout=120)[0].strip() == "(1,)"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)  # a child that waits for ever outlives its parent


@pytest.mark.parametrize("steps", [0, 3, 6])
def test_an_environment_can_be_pickled_during_an_episode(steps):
    env = make(learner="gens", actions="flat").unwrapped
    env.reset(seed=1)
    for _ in range(steps):
        env.step(3)
    saved = pickle.dumps(env)
    assert len(saved) < 200_000  # no data
    again = pickle.loads(saved)
    assert again.action_masks().tolist() == env.action_masks().tolist()
    if steps == 6:
        env.reset()
        again.reset()
    for _ in range(3):
        observation, reward, *_, info = env.step(4)
        copied, its_reward, *_, its_info = again.step(4)
        assert np.array_equal(observation, copied)
        assert reward == its_reward
        assert info["cer"] == its_info["cer"]
    assert without_seconds(env.ledger) == without_seconds(again.ledger)


def test_the_pickle_of_own_arrays_holds_them_and_that_of_a_file_holds_its_name(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(2400, 6)).astype("float32"), np.arange(2400) % 3
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    small = {"ticks": 4, "width": 4, "epochs": 1}
    of_arrays = gym.make("alma_env:Arrays-ALMA-Wait-v0", train=(x, y), test=(x, y), **small)
    of_file = gym.make("alma_env:Arrays-ALMA-Wait-v0", data=str(tmp_path / "own.npz"), **small)
    saved, named = (pickle.dumps(env.unwrapped) for env in (of_arrays, of_file))
    assert len(saved) > x.nbytes
    assert len(named) < 20_000
    first, second = (pickle.loads(one).reset(seed=0)[0] for one in (saved, named))
    assert np.array_equal(first, second)


def test_an_environment_without_an_episode_can_be_pickled():
    again = pickle.loads(pickle.dumps(make()))
    assert again.reset(seed=0)[1]["tick"] == 0
