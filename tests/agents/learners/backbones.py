"""Small networks with the settings of their stages and the data of each stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training.settings import StageSettings
from agents.training.stage import Examples

from ..random_examples import examples


def build_mlp(generator: torch.Generator, kind: type[nn.Module] = MLP) -> Predictor:
    return Predictor(Normalize(255, (0.5,), (0.25,)), kind(64, 6, 10, generator=generator))


def build_vgg19(generator: torch.Generator, kind: type[nn.Module] = VGG19) -> Predictor:
    return Predictor(Normalize(255, (0.5,) * 3, (0.25,) * 3), kind(2, 10, generator=generator))


@dataclass(frozen=True)
class Backbone:
    build: Callable[[torch.Generator], Predictor]
    settings: StageSettings
    shape: tuple[int, ...]
    per_stage: int

    def stage(self, number: int) -> tuple[Examples, Examples]:
        return self.examples(self.per_stage, 10 * number), self.examples(self.per_stage // 4, 10 * number + 5)

    def examples(self, n: int, seed: int) -> Examples:
        return examples(n, self.shape, seed)
