"""The engine that replays epochs: it computes and charges what the plain engine does."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
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
from agents.networks.gate_tree import Routing
from agents.networks.mixture import MixtureMLP
from agents.networks.mlp_vgg import MLP, VGG19, Predictor
from agents.networks.uniform_mixture import UniformMixture
from agents.training.engines import choose_engine
from agents.training.graphs import graphs_engine, supports_graphs
from agents.training.seeding import stage_generators
from agents.training.stage import Curves, plain_engine, train_stage
from agents.training.trainer import Trainer
from alma_env.metering import Meter

from ..random_examples import seeded
from .graph_stages import BODIES, CIFAR, SETTINGS, foreign, growing, images, mixture, normalize, outcome, vgg19_of


class Repeated:
    """A recorder for CPUs: the recorded work is the work itself."""

    recordings = 0

    def __enter__(self) -> Repeated:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.recordings += 1
        return work

    def keep_pace(self) -> None:
        pass


def repeating(*stage: Any) -> Curves:
    return graphs_engine(*stage, recorder=Repeated())


@pytest.mark.parametrize("name", BODIES)
def test_a_replayed_stage_has_the_numbers_and_the_charges_of_the_plain_engine(name: str) -> None:
    settings = SETTINGS if "mlp" in name else CIFAR
    report, state, charge, done = outcome(repeating, BODIES[name](), settings)
    expected, expected_state, expected_charge, expected_done = outcome(plain_engine, BODIES[name](), settings)
    assert report == expected
    assert charge == expected_charge
    assert done == expected_done == [1, 2, 3, 4]
    for name, tensor in expected_state.items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 1},
        {"batch_size": 8},  # 40 = 5 · 8: no smaller mini-batch at the end
        {"batch_size": 64},  # one mini-batch, smaller than the batch size
        {"epochs": 30, "patience": 2, "learning_rate": 1.0},
        {"epochs": 9, "patience": 1, "min_delta": 10.0},  # ends after the first two epochs
        {"patience": 1, "min_delta": 10.0, "keep_initial": True},  # ends after the first
        {"keep_initial": True, "select": "val_error"},
        {"optimizer": "adadelta"},
        {"optimizer": "adam"},
        {"precision": "bf16"},
        {"validation_batch": 4},
    ],
    ids=str,
)
def test_every_setting_gives_the_numbers_of_the_plain_engine(changes: dict[str, Any]) -> None:
    settings = dataclasses.replace(SETTINGS, **changes)
    body = MLP(3072, 6, 10, generator=seeded(0))
    ours, theirs = (outcome(engine, body, settings) for engine in (repeating, plain_engine))
    assert ours[0] == theirs[0]
    assert ours[2:] == theirs[2:]
    for name, tensor in theirs[1].items():
        torch.testing.assert_close(ours[1][name], tensor, rtol=0, atol=0)


def test_an_epoch_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Repeated()
    predictor, (own,) = Predictor(normalize(), BODIES["mlp"]()), stage_generators(7, 1)
    train_stage(
        predictor,
        images(40, 0),
        images(9, 5),
        SETTINGS,
        own,
        engine=lambda *stage: graphs_engine(*stage, recorder=recorder),
    )
    assert recorder.recordings == 3  # a step on 16 examples, one on 8, and the validation


def test_the_members_of_an_ensemble_are_replayed_one_after_another() -> None:
    charges, reports = [], []
    for engine in (plain_engine, repeating):
        learner = Ens(PLAIN, Trainer(CIFAR, engine=engine), members=2)
        with Meter() as meter:
            reports.append(learner.train(images(40, 0), images(9, 5)))
        charges.append(meter.take())
    assert charges[0] == charges[1]
    assert reports[0] == reports[1]


PLAIN = vgg19_of(lambda generator: VGG19(2, 10, generator=generator))
LEARNERS: dict[str, Callable[[Trainer], Any]] = {
    "sm": lambda trainer: SingleModel(PLAIN, trainer),
    "ens": lambda trainer: Ens(PLAIN, trainer, members=2),
    "umix": lambda trainer: UMix(PLAIN, trainer, members=2),
    "gens": lambda trainer: GEns(PLAIN, trainer),
    "gmoe": lambda trainer: GMoE(growing, trainer, init_experts=2),
    "ff": lambda trainer: Firefly(vgg19_of(lambda generator: FireflyVGG19([2] * 16, 10, generator=generator)), trainer),
}


@pytest.mark.parametrize("engine", [plain_engine, repeating])
@pytest.mark.parametrize("id", LEARNERS)
def test_a_stage_never_waits_for_its_device(id: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor on the device ``meta`` has no values: a stage that reads one, or uses another device, ends in an error.

    On a GPU, the host can therefore run ahead of the device, and a CUDA graph can record a step.
    """
    curves: list[Curves] = []
    monkeypatch.setattr(Curves, "report", lambda curve: curves.append(curve))
    learner = LEARNERS[id](
        Trainer(dataclasses.replace(CIFAR, epochs=2, keep_initial=True), device="meta", engine=engine)
    )
    with Meter():
        learner.train(images(24, 0), images(9, 5))
    assert all(values.is_meta for curve in curves for values in (curve.loss, curve.error, curve.best_epoch))
    assert len(curves) == (2 if id == "ens" else 1)


class Interrupted(Repeated):
    """Ctrl-C while the host waits for the second replayed epoch."""

    waits = 0

    def keep_pace(self) -> None:
        self.waits += 1
        if self.waits == 2:
            raise KeyboardInterrupt


def stopped_in_epoch_3(engine: Any, on_epoch: Callable[[int], None] | None = None) -> tuple[Any, list[str]]:
    """Return the charges of a stage that ends with an interrupt, and why its weights are foreign."""
    predictor, (own,) = Predictor(normalize(), BODIES["mlp"]()), stage_generators(7, 1)
    with Meter() as meter:
        with pytest.raises(KeyboardInterrupt):
            train_stage(predictor, images(40, 0), images(9, 5), SETTINGS, own, engine=engine, on_epoch=on_epoch)
        predictor(images(4, 0).x)  # the meter goes on counting
    return meter.take(), [foreign(meter, tensor) for tensor in predictor.body.parameters()]


def test_an_interrupt_leaves_the_charges_of_the_epochs_that_were_computed() -> None:
    def fail(epoch: int) -> None:
        if epoch == 3:
            raise KeyboardInterrupt

    expected = stopped_in_epoch_3(plain_engine, fail)
    assert expected[1] == [""] * 6
    assert stopped_in_epoch_3(repeating, fail) == expected
    assert stopped_in_epoch_3(lambda *stage: graphs_engine(*stage, recorder=Interrupted())) == expected


@pytest.mark.parametrize("engine", [plain_engine, repeating])
def test_a_callback_works_under_the_meter(engine: Any) -> None:
    """What it computes is charged after every epoch, and weights that it takes from elsewhere are foreign."""
    meters: list[Meter] = []
    for callback in (lambda body: None, lambda body: torch.ones(50, 40) @ torch.ones(40, 30), replace_weights):
        predictor, (own,) = Predictor(normalize(), BODIES["mlp"]()), stage_generators(7, 1)
        with Meter() as meter:
            train_stage(
                *(predictor, images(40, 0), images(9, 5), SETTINGS, own),
                engine=engine,
                on_epoch=lambda epoch, callback=callback, body=predictor.body: callback(body),
            )
        meters.append(meter)
        reasons = [foreign(meter, tensor) for tensor in predictor.body.parameters()]
        assert all(reasons) if callback is replace_weights else not any(reasons)
    assert meters[1].total - meters[0].total == SETTINGS.epochs * 2 * 50 * 40 * 30


@torch.no_grad()
def replace_weights(body: nn.Module) -> None:
    weights = next(body.parameters())
    weights.copy_(torch.from_numpy(np.random.default_rng(0).random(tuple(weights.shape), np.float32)))


@pytest.mark.parametrize("engine", [plain_engine, repeating])
def test_networks_that_were_built_before_the_meter_ran_are_not_taken_for_trained_ones(engine: Any) -> None:
    """The backward passes of a stage were all seen or charged, so they are no unseen training of the next network."""
    predictors = [Predictor(normalize(), MLP(3072, 6, 10, generator=seeded(seed))) for seed in range(2)]
    with Meter() as meter:
        for predictor, own in zip(predictors, stage_generators(7, 1, 2), strict=True):
            train_stage(predictor, images(40, 0), images(9, 5), SETTINGS, own, engine=engine)
    assert [foreign(meter, tensor) for each in predictors for tensor in each.body.parameters()] == [""] * 12


def test_training_outside_of_the_meter_is_unseen_training() -> None:
    first, second = (Predictor(normalize(), MLP(3072, 6, 10, generator=seeded(seed))) for seed in range(2))
    own = stage_generators(7, 1, 2)
    meter = Meter()
    train_stage(first, images(40, 0), images(9, 5), SETTINGS, own[0], engine=repeating)
    with meter:
        train_stage(second, images(40, 0), images(9, 5), SETTINGS, own[1], engine=repeating)
    assert "trained while the meter was not running" in foreign(meter, next(second.body.parameters()))


def test_losses_of_float64_networks_are_not_rounded() -> None:
    body = MLP(3072, 6, 10, generator=seeded(0)).double()
    losses = []
    for engine in (plain_engine, repeating):
        predictor = Predictor(InFloat64(), copy.deepcopy(body))
        (own,) = stage_generators(7, 1)
        report = train_stage(predictor, images(40, 0), images(9, 5), SETTINGS, own, engine=engine)
        losses.append(report.validation_loss)
    assert losses[0] == losses[1]


class InFloat64(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.double() / 64 - 2


def test_on_a_cpu_the_plain_engine_computes_the_stage() -> None:
    ours, theirs = (outcome(engine, BODIES["mlp"](), SETTINGS) for engine in (graphs_engine, plain_engine))
    assert ours[0] == theirs[0]


def dropping() -> nn.Module:
    body = MLP(3072, 6, 10, generator=seeded(0))
    body[2] = nn.Dropout(0.5)
    return body


def hard_gated() -> nn.Module:
    body: Any = mixture(MixtureMLP, 3072, 6, 10)
    for layer in body.mixtures:
        layer.routing = Routing(gating="hard")
    return body


def hooked() -> nn.Module:
    body = MLP(3072, 6, 10, generator=seeded(0))
    remaining = iter([0.5, 0.6])  # a hook may do another thing at each step
    body[1].register_forward_hook(lambda module, inputs, out: out * next(remaining, 1))
    return body


@pytest.mark.parametrize(
    "body",
    [dropping, hard_gated, lambda: UniformMixture([UniformMixture([hard_gated()])]), hooked],
    ids=["dropout", "hard gates", "hard gates inside", "hook"],
)
def test_a_network_whose_steps_differ_is_trained_by_the_plain_engine(body: Callable[[], nn.Module]) -> None:
    assert not supports_graphs(body(), SETTINGS)
    recorder, (own,) = Repeated(), stage_generators(7, 1)
    train_stage(
        Predictor(normalize(), body()),
        images(40, 0),
        images(9, 5),
        SETTINGS,
        own,
        engine=lambda *stage: graphs_engine(*stage, recorder=recorder),
    )
    assert recorder.recordings == 0


@pytest.mark.parametrize("changes", [{"accumulation": 2}, {"clip": 1.0}, {"epochs": 2, "updates": 4}], ids=str)
def test_settings_whose_steps_differ_are_refused_by_name(changes: dict[str, Any]) -> None:
    settings = dataclasses.replace(SETTINGS, **changes)
    assert choose_engine("auto", BODIES["vgg19"](), settings, device="cuda") == "plain"
    with pytest.raises(ValueError, match="engine='graphs': needs one process on a GPU"):
        choose_engine("graphs", BODIES["vgg19"](), settings, device="cuda")


@pytest.mark.parametrize("name", BODIES)
def test_the_engine_of_a_gpu_is_graphs(name: str) -> None:
    assert choose_engine("auto", BODIES[name](), CIFAR, device="cuda") == "graphs"
    with pytest.raises(ValueError, match="engine='graphs': needs one process on a GPU"):
        choose_engine("graphs", BODIES[name](), CIFAR, device="cpu")
