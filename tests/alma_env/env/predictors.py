"""Predictors for digits."""

from __future__ import annotations

import torch
from torch import nn

TICKS = 5


class Noisy(nn.Module):
    """A predictor with BatchNorm and dropout, which depend on the training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 10))

    def forward(self, x):
        return self.body(x.flatten(1).float() / 16)


class Constant(nn.Module):
    """A predictor that always answers the same class."""

    def __init__(self, label: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(nn.functional.one_hot(torch.tensor(label), 10).float())

    def forward(self, x):
        return self.logits.expand(len(x), 10)
