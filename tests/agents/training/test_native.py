from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import agents
import alma_env
from agents.learners.gmoe import GMoE
from agents.networks.firefly_network import FireflyVGG19
from agents.networks.gate_tree import Routing
from agents.networks.mixture import MixtureMLP, MixtureNetwork, MixtureVGG19, mixture_body
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.networks.uniform_mixture import UniformMixture
from agents.training.engines import choose_engine, engine_named
from agents.training.native import library
from agents.training.native.supported import supports
from agents.training.seeding import StageGenerators
from agents.training.settings import EngineName, StageSettings
from agents.training.stage import Examples, StageReport, train_stage
from agents.training.trainer import Trainer
from alma_env.metering import Charge, Meter

from ..random_examples import seeded

needs_compiler = pytest.mark.skipif(library.compiler() is None, reason="there is no C++ compiler on this machine")
pytestmark = needs_compiler

ENGINE_PAIR: tuple[EngineName, EngineName] = ("plain", "native")
CIFAR = StageSettings(epochs=1, batch_size=24, weight_decay=1e-4, augmentation="crop_flip")


def mlp(seed: int = 0) -> nn.Module:
    return MLP(64, 5, 10, generator=seeded(seed))


def vgg19(seed: int = 0) -> nn.Module:
    return VGG19(4, 10, generator=seeded(seed))


NETWORKS = {
    "mlp": mlp,
    "deep mlp": lambda: _sequential(64, 20, 7, 33, 10),
    "mixture of mlps": lambda: UniformMixture([mlp(seed) for seed in range(3)]),
    "sum of mlps": lambda: UniformMixture([mlp(seed) for seed in range(3)], "sum"),
    "mixture of experts": lambda: mixture_of_experts(),
    # Their layers have several blocks of rows; the gates are in another block than the first experts.
    "wide mlp": lambda: MLP(64, 300, 10, generator=seeded(0)),
    "mixture of wide mlps": lambda: UniformMixture([MLP(64, 300, 10, generator=seeded(seed)) for seed in range(2)]),
    "mixture of wide experts": lambda: mixture_of_experts(width=70),
    "flat mixture of experts": lambda: mixture_of_experts(tree=False),
    "vgg19": vgg19,
    "wide vgg19": lambda: VGG19([3, 5, *[9] * 3, *[33] * 3, *[4] * 8], 10, generator=seeded(0)),
    "vgg19 without biases": lambda: FireflyVGG19([3, 5] * 8, 10, generator=seeded(0)),
    "mixture of vgg19s": lambda: UniformMixture([vgg19(seed) for seed in range(2)]),
    "vgg19 of one expert": lambda: vgg19_of_experts(()),
    "vgg19 of two experts": lambda: vgg19_of_experts((0,)),
    "vgg19 of three experts": lambda: vgg19_of_experts((0, 1), width=8),
    "vgg19 of five experts": lambda: vgg19_of_experts((0, 0, 2, 1)),
    "flat vgg19 of three experts": lambda: vgg19_of_experts((0, 0), tree=False),
}


def _sequential(inputs: int, *sizes: int) -> nn.Module:
    """Return an `MLP` of another depth."""
    body, layers = mlp(), [nn.Flatten()]
    for size in sizes:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    body.__dict__["_modules"] = nn.Sequential(*layers[:-1])._modules
    torch.manual_seed(0)
    for parameter in body.parameters():
        nn.init.uniform_(parameter, -0.3, 0.3)
    return body


def mixture_of_experts(tree: bool = True, width: int = 5) -> MixtureNetwork:
    """Return a network of four experts in its first layer and three in its second, all with other weights."""
    return grown(MixtureMLP(64, width, 10, generator=seeded(0)), [(0, 1, 0), (0, 0)], tree)


def vgg19_of_experts(splits: tuple[int, ...], width: int = 4, tree: bool = True) -> MixtureNetwork:
    """Return a VGG19 whose mixtures have this tree, except for the last one, which has a split less."""
    return grown(MixtureVGG19(width, 10, generator=seeded(0)), [splits, splits, splits, splits[:-1]], tree)


def grown(body: MixtureNetwork, trees: list[tuple[int, ...]], tree: bool) -> MixtureNetwork:
    for layer, splits in zip(body.mixtures, trees, strict=True):
        layer.routing = Routing(tree=tree)
        layer.regrow(splits, seeded(1))
    return body


def hard_gates(body: MixtureNetwork) -> nn.Module:
    body.mixtures[0].routing = Routing(gating="hard")
    return body


def examples(n: int, shape: tuple[int, ...], seed: int) -> Examples:
    y = torch.randint(0, 10, (n,), generator=seeded(seed + 1))
    x = torch.randint(0, 200, (n, *shape), dtype=torch.uint8, generator=seeded(seed))
    return Examples(x + (5 * y).byte().view(-1, *[1] * len(shape)), y)


def run(
    engine: EngineName, body: nn.Module, settings: StageSettings, n: int = 44, on_epoch: Any = None, **parts: Examples
) -> tuple[nn.Module, StageReport, Charge]:
    images = any(isinstance(layer, nn.Conv2d) for layer in body.modules())
    shape = (3, 32, 32) if images else (1, 8, 8)
    channels = (0.4, 0.5, 0.6) if images else (0.5,)
    predictor, meter = Predictor(Normalize(255, channels, [0.25] * len(channels)), copy.deepcopy(body)), Meter()
    order, augment = seeded(3), seeded(4)
    train, valid = parts.get("train", examples(n, shape, 0)), parts.get("valid", examples(19, shape, 7))
    with meter:
        report = train_stage(
            predictor,
            train,
            valid,
            settings,
            StageGenerators(order, augment),
            engine=engine_named(engine),
            on_epoch=on_epoch,
        )
    if next(predictor.body.parameters()).isfinite().all():
        assert meter.provenance(next(predictor.body.parameters())) is not None
    return predictor.body, report, meter.take()


def agree(body: nn.Module, settings: StageSettings, n: int = 44, tolerance: float = 1e-3) -> None:
    """Run a stage with both engines and compare losses, errors, best epoch, weights, buffers and FLOPs."""
    assert supports(body, settings)
    calls: list[int] = []
    plain, plain_report, plain_charge = run("plain", body, settings, n)
    native, report, charge = run("native", body, settings, n, calls.append)
    assert charge == plain_charge
    assert report.best_epoch == plain_report.best_epoch
    assert report.initial == (plain_report.initial and pytest.approx(plain_report.initial, rel=1e-4))
    assert report.validation_loss == pytest.approx(plain_report.validation_loss, rel=1e-3)
    assert report.validation_error == pytest.approx(plain_report.validation_error)
    state = native.state_dict()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=tolerance, atol=tolerance / 10, msg=name)
    assert calls == list(range(1, len(report.validation_loss) + 1))
    assert not native.training


@pytest.mark.parametrize("optimizer", ["adadelta", "sgd"])
@pytest.mark.parametrize("batch_size", [8, 44, 64])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"weight_decay": 1e-2, "momentum": 0.0, "rho": 0.5, "eps": 1e-3},
        {"select": "val_error"},
        {"select": "val_error", "patience": 2},
        {"keep_initial": True, "min_delta": 0.1},
    ],
    ids=str,
)
def test_every_setting_gives_the_numbers_of_the_plain_engine(
    optimizer: str, batch_size: int, changes: dict[str, Any]
) -> None:
    settings = StageSettings(epochs=7, optimizer=optimizer, batch_size=batch_size, learning_rate=0.1)
    agree(mlp(), dataclasses.replace(settings, **changes))


@pytest.mark.parametrize("name", [name for name in NETWORKS if "vgg" not in name])
def test_perceptrons_train_as_with_the_plain_engine(name: str) -> None:
    agree(NETWORKS[name](), StageSettings(epochs=4, batch_size=16, optimizer="adadelta", learning_rate=0.5))


@pytest.mark.parametrize("batch_size", [24, 40])
@pytest.mark.parametrize("width", range(1, 13))
def test_products_of_any_height_and_length_are_those_of_the_plain_engine(width: int, batch_size: int) -> None:
    # The matrix product cuts its rows, and the columns of a mini-batch, into tiles, by their numbers.
    settings = StageSettings(epochs=2, batch_size=batch_size, optimizer="sgd", learning_rate=0.05)
    agree(_sequential(64, width, 13 - width, 10), settings)


@pytest.mark.parametrize("name", [name for name in NETWORKS if "vgg" in name])
def test_vgg19_trains_as_with_the_plain_engine(name: str) -> None:
    # Two steps: rounding changes which of two nearly equal pixels a pooling chooses, and the networks drift apart.
    agree(NETWORKS[name](), dataclasses.replace(CIFAR, learning_rate=1e-3), n=31, tolerance=5e-3)


def test_a_growing_vgg19_trains_as_with_the_plain_engine_after_each_growth_step() -> None:
    settings = dataclasses.replace(CIFAR, learning_rate=1e-3)

    def build(generator: torch.Generator) -> Predictor:
        return Predictor(Normalize(255, [0.5] * 3, [0.25] * 3), MixtureVGG19(4, 10, generator=generator))

    learner = GMoE(build, Trainer(settings, engine=engine_named("native")), grow_by=(1, 2))
    parts = examples(31, (3, 32, 32), 0), examples(19, (3, 32, 32), 7)
    for experts in (1, 2, 4):
        body = mixture_body(learner.predictor)
        assert [layer.leaves for layer in body.mixtures] == [experts] * 4
        # One step: in several, the plain engine leaves the path of float64.
        agree(body, settings, n=24, tolerance=5e-3)
        learner.train(*parts)
        learner.grow(*parts)


def test_a_vgg19_of_one_expert_is_the_vgg19_to_the_last_bit() -> None:
    plain, mixture = (run("native", NETWORKS[name](), CIFAR)[0] for name in ("vgg19", "vgg19 of one expert"))
    for ours, theirs in zip(mixture.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "body",
    [
        vgg19(),
        VGG19(33, 10, generator=seeded(0)),  # by Winograd's algorithm
        *(vgg19_of_experts(splits) for splits in [(), (0,), (0, 1), (0, 0, 2, 1)]),
        *(vgg19_of_experts(splits, width=8) for splits in [(0,), (0, 0, 0, 0)]),
        vgg19_of_experts((0, 0), tree=False),
    ],
    ids=lambda body: f"{type(body).__name__} of {sum(p.numel() for p in body.parameters())} parameters",
)
def test_a_step_is_no_further_from_float64_than_that_of_the_plain_engine(body: nn.Module) -> None:
    # In a single mini-batch rounding can make a pooling choose another pixel, in more poolings with more experts. Then
    # another one must show it.
    seeds = range(3 if isinstance(body, MixtureNetwork) else 1)
    # Two groups, so that a wrong gradient of the gates is not lost among those of the convolutions.
    groups = [[name for name, _ in body.named_parameters() if ("gates" in name) == gates] for gates in (False, True)]
    errors: dict[EngineName, list[list[float]]] = {engine: [] for engine in ENGINE_PAIR}
    for seed in seeds:
        part = examples(64, (3, 32, 32), seed)
        true = _exact_gradients(body, part)
        for engine in ENGINE_PAIR:
            errors[engine].append(_errors_of_a_step(engine, body, groups, part, true))
        by_group = zip(zip(*errors["native"], strict=True), zip(*errors["plain"], strict=True), strict=True)
        if all(min(native) < max(2 * max(plain), 1e-4) for native, plain in by_group):
            return
    pytest.fail(f"the native engine is further from float64 in every mini-batch: {errors}")


def _exact_gradients(body: nn.Module, part: Examples) -> dict[str, Any]:
    """Return the gradient of the loss for each parameter, computed in float64."""
    exact = copy.deepcopy(body).double()
    F.cross_entropy(exact(Normalize(255, (0.4, 0.5, 0.6), [0.25] * 3)(part.x).double()), part.y).backward()
    return {name: parameter.grad for name, parameter in exact.named_parameters()}


def _errors_of_a_step(
    engine: EngineName, body: nn.Module, groups: list[list[str]], part: Examples, true: dict[str, Any]
) -> list[float]:
    """Return the relative error of each group of parameters after a step with a learning rate of 1."""
    settings = StageSettings(epochs=1, batch_size=64, learning_rate=1.0, momentum=0.0)
    before, after = dict(body.named_parameters()), dict(run(engine, body, settings, train=part)[0].named_parameters())
    errors = []
    for names in filter(None, groups):
        step = torch.cat([(before[name] - after[name]).detach().reshape(-1) for name in names])
        gradient = torch.cat([true[name].reshape(-1) for name in names])
        errors.append(float((step - gradient).norm() / gradient.norm()))
    return errors


@pytest.mark.parametrize(
    "name",
    [
        *("mlp", "mixture of experts", "vgg19", "wide vgg19", "mixture of vgg19s", "vgg19 of three experts"),
        "flat vgg19 of three experts",
    ],
)
def test_results_do_not_depend_on_threads_or_repetition_to_the_last_bit(name: str) -> None:
    states, threads = [], torch.get_num_threads()
    try:
        for count in (1, 1, 2, 3):
            torch.set_num_threads(count)
            states.append(
                run("native", NETWORKS[name](), CIFAR if "vgg" in name else StageSettings(epochs=2))[0].state_dict()
            )
    finally:
        torch.set_num_threads(threads)
    for state in states[1:]:
        assert all(torch.equal(state[key], tensor) for key, tensor in states[0].items())


def test_a_diverged_stage_keeps_the_weights_from_before_it_and_warns() -> None:
    settings = StageSettings(epochs=3, batch_size=8, learning_rate=1e30)
    with pytest.warns(RuntimeWarning, match="lower the learning rate"):
        body, report, _ = run("native", mlp(), settings)
    assert report.best_epoch == 0
    assert all(torch.equal(body.state_dict()[name], tensor) for name, tensor in mlp().state_dict().items())


@pytest.mark.parametrize(("side", "dtype"), [(40, torch.uint8), (32, torch.float32)])
def test_images_that_it_does_not_read_are_trained_by_the_plain_engine(side: int, dtype: torch.dtype) -> None:
    part = examples(24, (3, side, side), 0)
    part = Examples(part.x.to(dtype), part.y)
    plain, native = (run(name, vgg19(), CIFAR, train=part, valid=part)[0].state_dict() for name in ENGINE_PAIR)
    assert all(torch.equal(native[name], tensor) for name, tensor in plain.items())


def test_float_images_are_read_without_augmentation() -> None:
    part = examples(24, (3, 32, 32), 0)
    settings = dataclasses.replace(CIFAR, augmentation="none")
    states = [
        run("native", vgg19(), settings, train=Examples(part.x.to(dtype), part.y))[0].state_dict()
        for dtype in (torch.uint8, torch.float32)
    ]
    assert all(torch.equal(states[1][name], tensor) for name, tensor in states[0].items())


def test_an_interrupt_between_epochs_ends_the_stage() -> None:
    def interrupt(epoch: int) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("native", mlp(), StageSettings(epochs=10**6), on_epoch=interrupt)


@pytest.mark.parametrize("id", ["sm", "ens", "umix", "gens", "gmoe"])
def test_a_run_has_the_ledger_of_the_plain_engine(id: str) -> None:
    ledgers = []
    for engine in ENGINE_PAIR:
        env = alma_env.make("Digits-ALMA-v0")
        agent = agents.make(id, env, width=4, wait=3, epochs=3, engine=engine)
        ledgers.append(agents.run(env, agent, 0))
        assert agent.config["engine"] == engine
    assert [row.flops for row in ledgers[0]] == [row.flops for row in ledgers[1]]
    assert [row.error for row in ledgers[0]] == pytest.approx([row.error for row in ledgers[1]], abs=0.02)


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        (mlp, {"precision": "bf16"}),
        (mlp, {"augmentation": "crop_flip"}),
        (mlp, {"optimizer": "adam"}),
        (mlp, {"clip": 1.0}),
        (lambda: FireflyVGG19([3] * 16, 10, residuals=[1] * 16, generator=seeded(0)), {}),
        (lambda: hard_gates(MixtureMLP(64, 5, 10, generator=seeded(0))), {}),
        (lambda: hard_gates(MixtureVGG19(3, 10, generator=seeded(0))), {}),
        (lambda: nn.Linear(64, 10), {}),
    ],
)
def test_what_it_cannot_compute_is_refused(body: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"engine='native': needs .*engine='auto'"):
        choose_engine("native", body(), dataclasses.replace(StageSettings(), **changes))
