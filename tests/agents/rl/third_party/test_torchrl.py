"""TorchRL runs unmodified: its environments, a collector, and DQN."""

from __future__ import annotations

import gymnasium as gym
import pytest
import torch
from torch import nn

pytest.importorskip("torchrl", reason="the package torchrl is not installed")
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, GymWrapper, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs
from torchrl.modules import EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

SMALL = {"ticks": 4, "width": 4, "epochs": 1}
REAL, SURROGATE = "alma_env:Digits-ALMA-Wait-v0", "alma_env:Digits-ALMA-Wait-Surrogate-v0"


@pytest.mark.parametrize(
    ("id", "keywords"),
    [
        (REAL, SMALL),
        (REAL, SMALL | {"actions": "multi", "learner": "gens"}),
        (SURROGATE, {}),
        ("alma_env:Digits-ALMA-Wait-Surrogate-MO-v0", {}),
    ],
)
def test_the_specs_of_gym_env_hold(id, keywords):
    env = GymEnv(id, **keywords)
    check_env_specs(env)
    reward = env.rollout(3)["next", "reward"]
    assert reward.shape == (3, 3 if "-MO-" in id else 1)


def test_the_vectorised_surrogate_names_its_mode_of_autoreset():
    envs = gym.make_vec(SURROGATE, 3, vectorization_mode="vector_entry_point", width=4)
    env = GymWrapper(envs)
    rollout = env.rollout(25, break_when_any_done=False)  # an episode has 20 ticks
    assert rollout["next", "reward"].shape == (3, 25, 1)
    assert rollout["next", "done"].squeeze(-1).nonzero().tolist() == [[0, 19], [1, 19], [2, 19]]


def test_dqn_learns_from_a_collector():
    torch.manual_seed(0)
    env = TransformedEnv(GymEnv(SURROGATE, width=4), StepCounter())
    network = nn.Sequential(nn.Linear(13, 32), nn.Tanh(), nn.Linear(32, 2))
    actor = QValueActor(module=network, spec=env.action_spec, in_keys=["observation"])
    explore = EGreedyModule(env.action_spec, annealing_num_steps=100)
    collector = Collector(env, TensorDictSequential(actor, explore), frames_per_batch=40, total_frames=80)
    replay = TensorDictReplayBuffer(storage=LazyTensorStorage(200), batch_size=16)
    loss = DQNLoss(actor, action_space=env.action_spec, delay_value=True)
    target, optimizer = SoftUpdate(loss, eps=0.99), torch.optim.Adam(loss.parameters(), 1e-3)
    before = [weight.clone() for weight in network.parameters()]
    for frames in collector:
        assert frames["next", "step_count"].max() <= 20
        replay.extend(frames.reshape(-1))
        optimizer.zero_grad()
        loss(replay.sample())["loss"].backward()
        optimizer.step()
        target.step()
        explore.step(frames.numel())
    collector.shutdown()
    assert any(not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))
