"""A linear network, its training inside or outside of the meter's block, and the weights of least squares."""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import nn

from alma_env import meter

REFUSED = "the predictor is refused until the work is declared"
FEATURES, CLASSES = 12, 3


def arrays(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, FEATURES)).astype(np.float32)
    return x, (x @ np.random.default_rng(7).normal(size=(FEATURES, CLASSES))).argmax(1)


def network():
    return nn.Sequential(nn.Linear(FEATURES, CLASSES))


def tensors(observation):
    return tuple(torch.from_numpy(observation["train"][name]) for name in ("x", "y"))


def fit(model, observation, steps=30):
    x, y = tensors(observation)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def charge():
    """Charge some FLOPs."""
    torch.ones(FEATURES, FEATURES) @ torch.ones(FEATURES, FEATURES)


def in_thread(what, *args):
    thread = threading.Thread(target=what, args=args)
    thread.start()
    thread.join()


def solution(observation):
    """Return the weights of least squares in NumPy: (classes, features), float32."""
    part = observation["train"]
    return np.linalg.lstsq(part["x"], np.eye(CLASSES)[part["y"]], rcond=None)[0].T.astype(np.float32, order="C")


@meter.count_once
def counted_step(model, optimizer, x, y):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
