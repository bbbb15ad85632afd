"""Predictors of the next token, episodes with training, and the hidden set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alma_env import AlmaEnv

LENGTH, VOCABULARY, TICKS = 32, 300, 4
Make = Callable[..., AlmaEnv]


class Unigram(nn.Module):
    """A predictor with equal logits at every position."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.float())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits.expand(*tokens.shape, -1)


class Bigram(nn.Module):
    """A predictor from the present to the next token: a random table of low rank."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.present, self.next = (nn.Parameter(torch.randn(VOCABULARY, 8, generator=draw) / 2) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.embedding(tokens, self.present) @ self.next.T


def hidden(env: AlmaEnv) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    assert env._stream is not None
    return env._stream.test


def train(model: nn.Module, observation: Any, steps: int = 2) -> None:
    """A few steps of training."""
    x, y = (torch.from_numpy(observation["train"][name][:64]).long() for name in ("x", "y"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()


def play(env: AlmaEnv, model: nn.Module, seed: int = 0) -> list[Any]:
    """Play an episode with training at every tick; return the observations."""
    observation, _ = env.reset(seed=seed, options={"predictor": model})
    observations = [observation]
    while not env.done:
        with env.meter:
            train(model, observation)
        observation, *_ = env.step(model)
        observations.append(observation)
    return observations


def assert_same(one: Any, two: Any) -> None:
    for part in ("train", "valid"):
        for name in ("x", "y"):
            np.testing.assert_array_equal(one[part][name], two[part][name])
