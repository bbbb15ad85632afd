"""Members side by side, and stages on a device without values."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from agents.learners.ens import Ens
from agents.learners.firefly.firefly import Firefly
from agents.learners.gens import GEns
from agents.learners.gmoe import GMoE
from agents.learners.sm import SingleModel
from agents.learners.umix import UMix
from agents.networks.firefly_network import FireflyVGG19
from agents.networks.mixture import MixtureVGG19, build_mixture
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training import side_by_side
from agents.training.seeding import stage_generators
from agents.training.settings import StageSettings
from agents.training.stage import Curves, Examples, plain_engine, train_stage
from agents.training.trainer import Trainer
from alma_env.metering import Meter

SETTINGS = StageSettings(epochs=3, batch_size=16, learning_rate=0.05, weight_decay=1e-3, keep_initial=True)
CIFAR = dataclasses.replace(SETTINGS, epochs=2, augmentation="crop_flip")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int, seed: int) -> Examples:
    x = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=seeded(seed))
    return Examples(x, torch.randint(0, 10, (n,), generator=seeded(seed + 1)))


class Float64(nn.Module):
    """Normalises in float64, where rounding in a deep network stays small enough for a comparison."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.double() / 64 - 2


@pytest.mark.parametrize("optimizer", ["sgd", "adadelta"])
@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (lambda generator: MLP(3072, 6, 10, generator=generator), SETTINGS),
        (lambda generator: VGG19(2, 10, generator=generator), CIFAR),
    ],
    ids=["mlp", "vgg19"],
)
def test_members_side_by_side_have_the_numbers_and_the_cost_of_single_networks(
    build: Callable[[torch.Generator], nn.Module], settings: StageSettings, optimizer: Any
) -> None:
    settings = dataclasses.replace(settings, optimizer=optimizer)
    train, valid = images(40, 0), images(9, 5)
    apart = [build(seeded(member)).double() for member in range(3)]
    beside = copy.deepcopy(apart)
    meters = Meter(), Meter()
    with meters[0]:
        expected = [
            train_stage(Predictor(Float64(), body), train, valid, settings, own)
            for body, own in zip(apart, stage_generators(7, 1, 3), strict=True)
        ]
    with meters[1]:
        reports = side_by_side.train_side_by_side(Float64(), beside, train, valid, settings, stage_generators(7, 1, 3))
    assert meters[0].take() == meters[1].take()  # to the FLOP
    for report, one in zip(reports, expected, strict=True):
        assert report.best_epoch == one.best_epoch
        assert report.validation_loss == pytest.approx(one.validation_loss, rel=1e-5)
        assert report.initial == pytest.approx(one.initial)
    for ours, theirs in zip(beside, apart, strict=True):
        assert not ours.training
        for name, tensor in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=1e-7, atol=1e-7)


def test_members_side_by_side_train_in_the_engine_of_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes divide a stage by such an engine; the plain one would train the members in every process."""
    monkeypatch.setattr(side_by_side, "pays", lambda bodies, settings: True)
    stages: list[Predictor] = []

    def engine(predictor: Predictor, *stage: Any) -> Curves:
        stages.append(predictor)
        return plain_engine(predictor, *stage)

    Ens(PLAIN, Trainer(CIFAR, engine=engine), members=2).train(images(40, 0), images(9, 5))
    assert len(stages) == 1


def test_members_side_by_side_need_examples() -> None:
    members = [MLP(3072, 6, 10, generator=seeded(member)) for member in range(2)]
    with pytest.raises(ValueError, match="valid: 0 examples"):
        side_by_side.train_side_by_side(
            Float64(), members, images(40, 0), images(0, 5), SETTINGS, stage_generators(7, 1, 2)
        )


def mixture(generator: torch.Generator) -> Predictor:
    build = vgg19_of(lambda weights: MixtureVGG19(2, 10, generator=weights))
    return build_mixture(build, generator)


def vgg19_of(body: Callable[[torch.Generator], nn.Module]) -> Callable[[torch.Generator], Predictor]:
    return lambda generator: Predictor(Normalize(255, (0.5,) * 3, (0.25,) * 3), body(generator))


PLAIN = vgg19_of(lambda generator: VGG19(2, 10, generator=generator))
LEARNERS: dict[str, Callable[[Trainer], Any]] = {
    "sm": lambda trainer: SingleModel(PLAIN, trainer),
    "ens": lambda trainer: Ens(PLAIN, trainer, members=2),
    "umix": lambda trainer: UMix(PLAIN, trainer, members=2),
    "gens": lambda trainer: GEns(PLAIN, trainer),
    "gmoe": lambda trainer: GMoE(mixture, trainer, init_experts=2),
    "ff": lambda trainer: Firefly(vgg19_of(lambda generator: FireflyVGG19([2] * 16, 10, generator=generator)), trainer),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("id", LEARNERS)
def test_a_stage_never_waits_for_its_device(id: str, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor on the device ``meta`` has no values: a stage that reads one, or uses another device, ends in an error.

    On a GPU, the host can therefore run ahead of the device, and a CUDA graph can capture a step.
    """
    curves: list[Curves] = []
    monkeypatch.setattr(Curves, "report", lambda curve: curves.append(curve))
    monkeypatch.setattr(side_by_side, "pays", lambda bodies, settings: beside and len(bodies) > 1)
    learner = LEARNERS[id](Trainer(CIFAR, device="meta"))
    with Meter():
        learner.train(images(40, 0), images(9, 5))
    assert all(values.is_meta for curve in curves for values in (curve.loss, curve.error, curve.best_epoch))
    assert len(curves) == (2 if id == "ens" else 1)
