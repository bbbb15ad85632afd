"""The limits of the native engine: what it cannot compute is refused, or computed by the plain engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agents.networks.gate_tree import Routing
from agents.networks.mixture import MixtureMLP, MixtureVGG19
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.networks.uniform_mixture import UniformMixture
from agents.training.native.engine import native_engine
from agents.training.native.supported import supports
from agents.training.seeding import StageGenerators
from agents.training.settings import StageSettings
from agents.training.stage import Examples, StageReport, plain_engine, train_stage

from ..random_examples import seeded
from .test_native import (
    CIFAR,
    ENGINE_PAIR,
    examples,
    grown,
    mixture_of_experts,
    mlp,
    needs_compiler,
    run,
    vgg19,
    vgg19_of_experts,
)

pytestmark = needs_compiler
PIXELS = (1, 8, 8)
SHORT = StageSettings(epochs=3, batch_size=8)


def changed(body: nn.Module, **layers: nn.Module) -> nn.Module:
    """Replace layers of a sequential network, given as layer_1 and so on."""
    for name, layer in layers.items():
        body[int(name.removeprefix("layer_"))] = layer  # type: ignore[operator]
    return body


def with_norm(**settings: Any) -> nn.Module:
    body = vgg19()
    body.features[1] = nn.BatchNorm2d(4, **settings)  # type: ignore[operator, union-attr]
    return body


def with_buffer() -> nn.Module:
    body = mlp()
    body.register_buffer("temperature", torch.ones(3))
    return body


def tied(hidden: int = 64) -> nn.Module:
    body = MLP(64, hidden, 10, generator=seeded(0))
    body[3].weight = body[1].weight
    return body


def tied_members(whole: bool) -> nn.Module:
    first, second = mlp(0), mlp(1)
    second[1].weight = first[1].weight  # type: ignore[index]
    return UniformMixture([first, first if whole else second])


def with_other_routing() -> nn.Module:
    body = mixture_of_experts()
    body.mixtures[1].routing = Routing(tree=False)
    return body


def with_summary(*layers: nn.Module) -> nn.Module:
    body = vgg19_of_experts((0,))
    body.mixtures[2].summary = nn.Sequential(*layers)
    return body


def without_an_expert() -> nn.Module:
    body = vgg19_of_experts((0, 0))
    del body.mixtures[1].experts[2]
    return body


class Doubled(MLP):
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = 2 * super().forward(x)  # type: ignore[no-untyped-call]
        return logits


BODIES: dict[str, Callable[[], nn.Module]] = {
    "tanh": lambda: changed(mlp(), layer_2=nn.Tanh()),
    "dropout": lambda: changed(mlp(), layer_2=nn.Sequential(nn.ReLU(), nn.Dropout(0.0))),
    "layer without bias": lambda: changed(mlp(), layer_3=nn.Linear(5, 5, bias=False)),
    "layer that does not fit": lambda: changed(mlp(), layer_3=nn.Linear(9, 5)),
    "ReLU at the end": lambda: changed(mlp(), layer_5=nn.Sequential(nn.Linear(5, 10), nn.ReLU())),
    "additional buffer": with_buffer,
    "frozen layer": lambda: changed(mlp(), layer_3=nn.Linear(5, 5).requires_grad_(False)),
    "subclass": lambda: Doubled(64, 5, 10, generator=seeded(0)),
    "float64": lambda: mlp().double(),
    "meta device": lambda: mlp().to("meta"),
    "tied layers": tied,
    "same member twice": lambda: tied_members(True),
    "tied members": lambda: tied_members(False),
    "members of other widths": lambda: UniformMixture([mlp(), MLP(64, 9, 10, generator=seeded(0))]),
    "members of other kinds": lambda: UniformMixture([mlp(), MixtureMLP(64, 5, 10, generator=seeded(0))]),
    "eps": lambda: with_norm(eps=1e-2),
    "momentum": lambda: with_norm(momentum=0.5),
    "mean over all batches": lambda: with_norm(momentum=None),
    "BatchNorm without weights": lambda: with_norm(affine=False),
    "BatchNorm without running statistics": lambda: with_norm(track_running_stats=False),
    "trees and flat gates": with_other_routing,
    "gates that see other pixels": lambda: with_summary(nn.AdaptiveAvgPool2d((4, 2)), nn.Flatten()),
    "gates that see maxima": lambda: with_summary(nn.AdaptiveMaxPool2d(4), nn.Flatten()),
    "a missing expert": without_an_expert,
    "one block without a mixture": lambda: changed(vgg19_of_experts((0,)), layer_2=nn.Identity()),
    "experts of other kinds": lambda: changed(vgg19_of_experts((0,)), layer_2=mixture_of_experts()[1]),
}


@pytest.mark.parametrize("name", BODIES)
def test_networks_with_other_layers_or_common_weights_are_refused(name: str) -> None:
    assert not supports(BODIES[name](), StageSettings())


def outcome(engine: Any, predictor: Predictor, train: Examples, valid: Examples, settings: StageSettings) -> Any:
    """Return the report of a stage and the weights after it, or its error."""
    try:
        with torch.random.fork_rng():
            report = train_stage(
                predictor, train, valid, settings, StageGenerators(seeded(3), seeded(4)), engine=engine
            )
    except Exception as error:
        return type(error), str(error)
    return report, {name: tensor.clone() for name, tensor in predictor.body.state_dict().items()}


def same(make: Callable[[], Predictor], train: Examples, valid: Examples, settings: StageSettings = SHORT) -> Any:
    """Check that both engines have equal outcomes, to the last bit, and return that of the native engine."""
    plain, native = (outcome(engine, make(), train, valid, settings) for engine in (plain_engine, native_engine))
    assert native[0] == plain[0]
    if isinstance(plain[1], str):
        assert native[1] == plain[1]
    else:
        assert all(torch.equal(native[1][name], tensor) for name, tensor in plain[1].items())
    return native


@pytest.mark.parametrize("name", ["tanh", "tied layers", "same member twice", "members of other widths", "float64"])
def test_a_network_that_changed_after_the_choice_is_trained_by_the_plain_engine(name: str) -> None:
    normalize = Normalize(255, (0.5,), (0.25,))
    parts = examples(20, PIXELS, 0), examples(9, PIXELS, 7)
    torch.manual_seed(0)
    body = BODIES[name]().state_dict()

    def make() -> Predictor:
        predictor = Predictor(normalize, BODIES[name]())
        predictor.body.load_state_dict(body)
        return predictor

    same(make, *parts)


@pytest.mark.parametrize("label", [-1, 10, 2**33])
@pytest.mark.parametrize("in_training", [True, False])
@pytest.mark.parametrize("images", [True, False])
def test_labels_out_of_range_are_the_error_of_the_plain_engine(label: int, in_training: bool, images: bool) -> None:
    shape = (3, 32, 32) if images else PIXELS
    train, valid = examples(20, shape, 0), examples(9, shape, 7)
    (train if in_training else valid).y[4] = label
    make = vgg19 if images else mlp
    error, message = same(
        lambda: Predictor(Normalize(255, (0.5,), (0.25,)), make()), train, valid, dataclasses.replace(SHORT, epochs=1)
    )
    assert error is IndexError
    assert "out of bounds" in message


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_of_other_integers_are_read(dtype: torch.dtype) -> None:
    part = examples(20, PIXELS, 0)
    states = [
        run("native", mlp(), SHORT, train=Examples(part.x, y))[0].state_dict() for y in (part.y, part.y.to(dtype))
    ]
    assert all(torch.equal(states[1][name], tensor) for name, tensor in states[0].items())


class Function(nn.Module):
    """Normalisation by a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    "normalize",
    [
        nn.Identity(),
        Function(lambda x: x.double() / 255),
        Function(lambda x: x.float()[..., :5] / 255),
        Function(lambda x: torch.cat([x, x], 1).float() / 255),
        Normalize(255, (0.4, 0.5), (0.25, 0.25)),
    ],
    ids=["bytes", "float64", "too few", "too many", "two channels"],
)
@pytest.mark.parametrize(("images", "augmentation"), [(False, "none"), (True, "none"), (True, "crop_flip")])
def test_inputs_that_do_not_fit_are_the_error_of_the_plain_engine(
    normalize: nn.Module, images: bool, augmentation: Any
) -> None:
    shape = (1, 32, 32) if images else PIXELS
    settings = dataclasses.replace(SHORT, epochs=1, augmentation=augmentation)

    def make() -> Predictor:
        return Predictor(normalize, VGG19(3, 10, 1, generator=seeded(0)) if images else mlp())

    report, _ = same(make, examples(20, shape, 0), examples(9, shape, 7), settings)
    assert not isinstance(report, StageReport)


@pytest.mark.parametrize("channels", [1, 2])
def test_one_channel_can_be_broadcast_by_the_normalisation(channels: int) -> None:
    part = examples(20, (1, 32, 32), 0)
    states = []
    for engine in (plain_engine, native_engine):
        body = VGG19(3, 10, channels, generator=seeded(0))
        predictor = Predictor(Normalize(255, [0.5] * channels, [0.25] * channels), body)
        states.append(outcome(engine, predictor, part, part, dataclasses.replace(CIFAR, learning_rate=1e-3))[1])
    for name, tensor in states[0].items():
        torch.testing.assert_close(states[1][name], tensor, rtol=5e-3, atol=5e-4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("in_training", [True, False])
def test_an_input_that_is_not_finite_gives_no_best_epoch(value: float, images: bool, in_training: bool) -> None:
    shape = (3, 32, 32) if images else PIXELS
    parts = [Examples(part.x.float() / 64, part.y) for part in (examples(20, shape, 0), examples(9, shape, 7))]
    parts[0 if in_training else 1].x[3].fill_(value)
    make = vgg19 if images else mlp
    for engine in (plain_engine, native_engine):
        with pytest.warns(RuntimeWarning, match="no epoch of the stage had a finite validation loss"):
            report, state = outcome(engine, Predictor(nn.Identity(), make()), *parts, SHORT)
        assert report.best_epoch == 0
        assert all(math.isnan(loss) for loss in report.validation_loss)
        assert all(torch.equal(state[name], tensor) for name, tensor in make().state_dict().items())
        if engine is plain_engine:
            errors = report.validation_error
    assert report.validation_error == errors


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("min_delta", "patience"), [(0.1, None), (0.2, 4), (0.3, 2)])
def test_a_difference_of_exactly_min_delta_is_judged_as_by_the_plain_engine(
    seed: int, min_delta: float, patience: int | None
) -> None:
    settings = StageSettings(
        epochs=30, batch_size=16, learning_rate=0.05, select="val_error", min_delta=min_delta, patience=patience
    )
    reports = [run(engine, mlp(seed), settings, n=40, valid=examples(10, PIXELS, 7))[1] for engine in ENGINE_PAIR]
    assert reports[0].best_epoch == reports[1].best_epoch
    assert reports[0].validation_error == reports[1].validation_error


@pytest.mark.parametrize("sizes", [(1, 1), (2, 17), (17, 1), (33, 130)])
@pytest.mark.parametrize("classes", [1, 2, 100, 300])
@pytest.mark.parametrize("batch_size", [1, 16, 1000])
def test_few_examples_and_many_classes_train_as_with_the_plain_engine(
    sizes: tuple[int, int], classes: int, batch_size: int
) -> None:
    settings = StageSettings(epochs=2, batch_size=batch_size, optimizer="adadelta", learning_rate=0.3)
    train, valid = (examples(size, PIXELS, seed) for size, seed in zip(sizes, (0, 7), strict=True))
    train, valid = (Examples(part.x, part.y * 31 % classes) for part in (train, valid))
    body = MLP(64, 5, classes, generator=seeded(0))
    (plain, plain_report, plain_charge), (native, report, charge) = (
        run(engine, body, settings, train=train, valid=valid) for engine in ENGINE_PAIR
    )
    assert charge == plain_charge
    assert report.validation_loss == pytest.approx(plain_report.validation_loss, rel=1e-3, abs=1e-6)
    state = native.state_dict()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-3, atol=1e-4)


ALL_SMALL = [(width, classes) for width in (1, 2, 3) for classes in range(1, 6)]
# The classes of a mixture are computed by the code of a VGG19: each width, each number, and both ends together suffice.
FEW_SMALL = [(1, 1), (1, 5), (2, 2), (2, 4), (3, 1), (3, 3), (3, 5)]


@pytest.mark.parametrize(
    ("kind", "width", "classes"),
    [
        *((kind, *sizes) for kind in (MLP, VGG19) for sizes in ALL_SMALL),
        *((MixtureVGG19, *sizes) for sizes in FEW_SMALL),
    ],
)
def test_the_smallest_networks_take_a_step_on_one_example_as_with_the_plain_engine(
    kind: Any, width: int, classes: int
) -> None:
    """A buffer that is too small for them would be written past its end."""
    shape = PIXELS if kind is MLP else (3, 32, 32)
    sizes = {"inputs": 64, "hidden": width} if kind is MLP else {"width": width}
    body = kind(**sizes, classes=classes, generator=seeded(0))
    if isinstance(body, MixtureVGG19):
        body = grown(body, [(0,)] * 4, True)
    part = examples(1, shape, 0)
    part = Examples(part.x, part.y % classes)
    settings = StageSettings(epochs=1, batch_size=1, learning_rate=0.1)
    (plain, _, plain_charge), (native, _, charge) = (
        run(engine, body, settings, train=part, valid=part) for engine in ENGINE_PAIR
    )
    assert charge == plain_charge
    state = native.state_dict()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-3, atol=1e-4)
