"""Small stages, which the tests of the engine with CUDA graphs train."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from agents.networks.firefly_network import FireflyVGG19
from agents.networks.mixture import MixtureMLP, MixtureVGG19, build_mixture
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.networks.uniform_mixture import UniformMixture
from agents.training.seeding import stage_generators
from agents.training.settings import StageSettings
from agents.training.stage import Examples, StageReport, train_stage
from alma_env.metering import Meter

from ..random_examples import examples, seeded

SETTINGS = StageSettings(epochs=4, batch_size=16, learning_rate=0.05, weight_decay=1e-3)
CIFAR = dataclasses.replace(SETTINGS, augmentation="crop_flip")


def images(n: int, seed: int) -> Examples:
    return examples(n, (3, 32, 32), seed)


def normalize() -> nn.Module:
    return Normalize(255, (0.5,) * 3, (0.25,) * 3)


def mixture(kind: type[nn.Module], *sizes: int) -> nn.Module:
    def build(weights: torch.Generator) -> Predictor:
        return Predictor(normalize(), kind(*sizes, generator=weights))

    return build_mixture(build, seeded(0), experts=3).body


BODIES: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: MLP(3072, 6, 10, generator=seeded(0)),
    "vgg19": lambda: VGG19(2, 10, generator=seeded(0)),
    "firefly": lambda: FireflyVGG19([2] * 16, 10, residuals=[1] * 16, generator=seeded(0)),
    "umix": lambda: UniformMixture([VGG19(2, 10, generator=seeded(member)) for member in range(2)]),
    "experts-mlp": lambda: mixture(MixtureMLP, 3072, 6, 10),
    "experts-vgg19": lambda: mixture(MixtureVGG19, 2, 10),
}


def foreign(meter: Meter, tensor: torch.Tensor) -> str:
    made = meter.provenance(tensor)
    assert made is not None
    return made.foreign


def outcome(
    engine: Any, body: nn.Module, settings: StageSettings, device: str = "cpu"
) -> tuple[StageReport, dict[str, torch.Tensor], Any, list[int]]:
    done: list[int] = []
    predictor = Predictor(normalize(), copy.deepcopy(body)).to(device)
    (own,) = stage_generators(7, 1)
    with Meter() as meter:
        report = train_stage(predictor, images(40, 0), images(9, 5), settings, own, engine=engine, on_epoch=done.append)
    assert not any(foreign(meter, tensor) for tensor in predictor.body.parameters())
    return report, predictor.body.state_dict(), meter.take(), done


def vgg19_of(body: Callable[[torch.Generator], nn.Module]) -> Callable[[torch.Generator], Predictor]:
    return lambda generator: Predictor(normalize(), body(generator))


def growing(generator: torch.Generator) -> Predictor:
    return build_mixture(vgg19_of(lambda weights: MixtureVGG19(2, 10, generator=weights)), generator)
