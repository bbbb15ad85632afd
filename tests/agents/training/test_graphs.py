"""The engine that replays epochs: it computes and charges what the plain engine does."""

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
from agents.networks.gate_tree import Routing
from agents.networks.mixture import MixtureMLP, MixtureVGG19, build_mixture
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.networks.uniform_mixture import UniformMixture
from agents.training.engines import choose_engine
from agents.training.graphs import graphs_engine, supports_graphs
from agents.training.seeding import stage_generators
from agents.training.settings import StageSettings
from agents.training.stage import Curves, Examples, StageReport, plain_engine, train_stage
from agents.training.trainer import Trainer
from alma_env.metering import Meter

SETTINGS = StageSettings(epochs=4, batch_size=16, learning_rate=0.05, weight_decay=1e-3)
CIFAR = dataclasses.replace(SETTINGS, augmentation="crop_flip")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


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


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int, seed: int) -> Examples:
    x = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=seeded(seed))
    return Examples(x, torch.randint(0, 10, (n,), generator=seeded(seed + 1)))


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


def outcome(
    engine: Any, body: nn.Module, settings: StageSettings, device: str = "cpu"
) -> tuple[StageReport, dict[str, torch.Tensor], Any, list[int]]:
    done: list[int] = []
    predictor = Predictor(normalize(), copy.deepcopy(body)).to(device)
    (own,) = stage_generators(7, 1)
    with Meter() as meter:
        report = train_stage(predictor, images(40, 0), images(9, 5), settings, own, engine=engine, on_epoch=done.append)
    for tensor in predictor.body.parameters():
        made = meter.provenance(tensor)
        assert made is not None
        assert not made.foreign
    return report, predictor.body.state_dict(), meter.take(), done


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


def vgg19_of(body: Callable[[torch.Generator], nn.Module]) -> Callable[[torch.Generator], Predictor]:
    return lambda generator: Predictor(normalize(), body(generator))


def growing(generator: torch.Generator) -> Predictor:
    return build_mixture(vgg19_of(lambda weights: MixtureVGG19(2, 10, generator=weights)), generator)


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
        learner.train(images(40, 0), images(9, 5))
    assert all(values.is_meta for curve in curves for values in (curve.loss, curve.error, curve.best_epoch))
    assert len(curves) == (2 if id == "ens" else 1)


def test_a_callback_that_fails_leaves_the_charges_of_the_epochs_that_were_computed() -> None:
    """The meter counts what was computed before the error, and goes on counting."""

    def fail(epoch: int) -> None:
        if epoch == 3:
            raise KeyboardInterrupt

    charges = []
    for engine in (plain_engine, repeating):
        predictor, (own,) = Predictor(normalize(), BODIES["mlp"]()), stage_generators(7, 1)
        with Meter() as meter:
            with pytest.raises(KeyboardInterrupt):
                train_stage(predictor, images(40, 0), images(9, 5), SETTINGS, own, engine=engine, on_epoch=fail)
            predictor(images(4, 0).x)
        charges.append(meter.take())
    assert charges[0] == charges[1]


def test_a_network_whose_steps_differ_is_trained_by_the_plain_engine() -> None:
    body: Any = mixture(MixtureMLP, 3072, 6, 10)
    for layer in body.mixtures:
        layer.routing = Routing(gating="hard")
    assert not supports_graphs(body, SETTINGS)
    recorder, (own,) = Repeated(), stage_generators(7, 1)
    train_stage(
        Predictor(normalize(), body),
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


@needs_gpu
@pytest.mark.parametrize("name", BODIES)
def test_graphs_train_as_the_plain_engine_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    settings = dataclasses.replace(SETTINGS if "mlp" in name else CIFAR, optimizer="adadelta", learning_rate=0.1)
    report, state, charge, _ = outcome(graphs_engine, BODIES[name](), settings, "cuda")
    expected, expected_state, expected_charge, _ = outcome(plain_engine, BODIES[name](), settings, "cuda")
    assert charge == expected_charge
    assert report.validation_loss == pytest.approx(expected.validation_loss, rel=1e-2)
    for name, tensor in expected_state.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-2, atol=1e-2)


@needs_gpu
def test_stages_of_a_growing_network_are_replayed_on_a_gpu() -> None:
    """Each stage records anew: growth changed the network."""
    reports: list[Any] = []
    for engine in (plain_engine, graphs_engine):
        trainer = Trainer(dataclasses.replace(CIFAR, optimizer="adadelta"), device="cuda", engine=engine)
        learner = GMoE(growing, trainer)
        for stage in range(3):
            if stage:
                learner.grow(images(40, stage), images(9, 5))
            report = learner.train(images(40, stage), images(9, 5))
        reports.append(report)
    assert reports[0].validation_loss == pytest.approx(reports[1].validation_loss, rel=0.05)
