"""Normalisations of a learner's own: both engines charge them, and run them equally often."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training.native.engine import native_engine
from agents.training.seeding import StageGenerators
from agents.training.settings import StageSettings
from agents.training.stage import Engine, Examples, StageReport, plain_engine, train_stage
from alma_env.metering import Charge, Meter

from ..random_examples import seeded
from .test_native import examples, needs_compiler
from .test_native_limits import same

pytestmark = needs_compiler
IMAGES, CLASSES = (3, 32, 32), 10
VALUES = 3 * 32 * 32


class Projected(Normalize):
    """Mixes the channels of an image by a matrix: 2 · 3 · 3 FLOPs per pixel."""

    def __init__(self) -> None:
        super().__init__(255, [0.5] * 3, [0.25] * 3)
        self.register_buffer("mixed", torch.eye(3) + 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(self.mixed, super().forward(x).flatten(2)).view(x.shape)


class Noisy(Projected):
    """Adds noise: each call gives other numbers."""

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return x + 0.1 * torch.randn_like(x)


def hooked() -> nn.Module:
    normalize, project = Normalize(255, [0.5] * 3, [0.25] * 3), Projected()
    normalize.register_forward_hook(lambda module, inputs, out: project(inputs[0]))
    return normalize


def own_forward() -> nn.Module:
    normalize, project = Normalize(255, [0.5] * 3, [0.25] * 3), Projected()
    normalize.forward = project.forward  # type: ignore[method-assign]
    return normalize


def mlp() -> nn.Module:
    return MLP(VALUES, 3, CLASSES, generator=seeded(0))


def vgg19() -> nn.Module:
    return VGG19(3, CLASSES, generator=seeded(0))


def stage(
    engine: Engine, normalize: nn.Module, body: nn.Module, settings: StageSettings, train: Examples, valid: Examples
) -> tuple[StageReport, dict[str, Tensor], Charge, Tensor]:
    """Return the report, the weights and the charge of a stage, and the next random number after it."""
    predictor, meter = Predictor(normalize, copy.deepcopy(body)), Meter()
    torch.manual_seed(0)
    with meter:
        report = train_stage(predictor, train, valid, settings, StageGenerators(seeded(3), seeded(4)), engine=engine)
    return report, predictor.body.state_dict(), meter.take(), torch.rand(())


@pytest.mark.parametrize("normalize", [Projected, Noisy, hooked, own_forward])
@pytest.mark.parametrize(
    ("body", "augmentation"), [(mlp, "none"), (vgg19, "none"), (vgg19, "crop_flip")], ids=["mlp", "vgg19", "crops"]
)
def test_its_flops_are_charged_as_by_the_plain_engine(
    normalize: Callable[[], nn.Module], body: Callable[[], nn.Module], augmentation: Any
) -> None:
    settings = StageSettings(epochs=1, batch_size=20, learning_rate=1e-3, augmentation=augmentation)
    parts = examples(20, IMAGES, 0), examples(9, IMAGES, 7)
    (report, state, charge, number), (native_report, native_state, native_charge, native_number) = (
        stage(engine, normalize(), body(), settings, *parts) for engine in (plain_engine, native_engine)
    )
    *_, of_class, _ = stage(plain_engine, Normalize(255, [0.5] * 3, [0.25] * 3), body(), settings, *parts)
    assert native_charge == charge
    assert charge.total - of_class.total == 29 * 2 * 3 * VALUES
    assert native_number == number
    assert native_report.validation_loss == pytest.approx(report.validation_loss, rel=1e-3)
    for name, tensor in state.items():
        torch.testing.assert_close(native_state[name], tensor, rtol=5e-3, atol=5e-4, msg=name)


def test_it_is_charged_once_if_the_plain_engine_trains_after_it() -> None:
    """The native engine meets the unfit inputs after it normalised them."""

    class Double(Projected):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).double()

    settings = StageSettings(epochs=1, batch_size=20, learning_rate=1e-3)
    part = examples(20, IMAGES, 0)
    charges = []
    for engine in (plain_engine, native_engine):
        meter, predictor = Meter(), Predictor(Double(), mlp())
        with meter, pytest.raises(RuntimeError, match="dtype"):
            train_stage(predictor, part, part, settings, StageGenerators(seeded(3), seeded(4)), engine=engine)
        charges.append(meter.take())
    assert charges[0] == charges[1]
    assert charges[0].total == 40 * 2 * 3 * VALUES


def test_a_normalisation_with_weights_to_train_is_the_error_of_the_plain_engine() -> None:
    class Trained(Projected):
        def __init__(self) -> None:
            super().__init__()
            del self.mixed
            self.mixed = nn.Parameter(torch.eye(3))

    parts = examples(20, IMAGES, 0), examples(9, IMAGES, 7)
    settings = StageSettings(epochs=2, batch_size=8)
    error, message = same(lambda: Predictor(Trained(), mlp()), *parts, settings)
    assert error is RuntimeError
    assert "through the graph a second time" in message
