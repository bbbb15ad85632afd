"""Linear predictors, arrays for them, and the numbers of least squares."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

FEATURES, CLASSES = 40, 3
NUMBERS = FEATURES * CLASSES


def arrays(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, FEATURES)).astype(np.float32)
    return x, (x @ np.random.default_rng(7).normal(size=(FEATURES, CLASSES))).argmax(1)


def solution(observation):
    """Return the weights of least squares in NumPy: a list of (features * classes) numbers."""
    part = observation["train"]
    return np.linalg.lstsq(part["x"], np.eye(CLASSES)[part["y"]], rcond=None)[0].ravel().tolist()


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return self.layer(x)


class Hiding(nn.Module):
    """Answers with numbers that `read` returns."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(CLASSES))
        self.prepare()

    def prepare(self):
        pass

    def read(self):
        raise NotImplementedError

    def hide(self, numbers):
        raise NotImplementedError

    def forward(self, x):
        weights = torch.as_tensor(self.read(), dtype=torch.float32).view(FEATURES, CLASSES)
        return x @ weights + self.bias
