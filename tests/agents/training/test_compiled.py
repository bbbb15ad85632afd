from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch

from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training.compiled import engine as compiled
from agents.training.compiled import program as compiled_program
from agents.training.engines import ENGINES, choose_engine, has_compiler
from agents.training.seeding import StageGenerators
from agents.training.settings import EngineName, StageSettings
from agents.training.stage import Examples, StageReport, train_stage
from alma_env.metering import Charge, Meter

ONE_STEP = StageSettings(epochs=7, batch_size=64, optimizer="adadelta", learning_rate=1.0)
MANY_STEPS = StageSettings(epochs=3, batch_size=8, optimizer="sgd", learning_rate=0.05, weight_decay=1e-2)

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler on this machine")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_mlp() -> Predictor:
    return Predictor(Normalize(255, (0.5,), (0.25,)), MLP(64, 4, 10, generator=seeded(0)))


def small_vgg19() -> Predictor:
    return Predictor(Normalize(255, (0.5,), (0.25,)), VGG19(2, 10, generator=seeded(0)))


def examples(n: int, seed: int = 0) -> Examples:
    x = torch.randint(0, 256, (n, 1, 8, 8), dtype=torch.uint8, generator=seeded(seed))
    return Examples(x, torch.randint(0, 10, (n,), generator=seeded(seed + 1)))


def run(
    engine: EngineName, settings: StageSettings, calls: list[int] | None = None
) -> tuple[Predictor, StageReport, Charge]:
    predictor, meter, order = small_mlp(), Meter(), seeded(3)
    with meter:
        (report,) = train_stage(
            predictor,
            examples(44),
            examples(9, seed=7),
            settings,
            [StageGenerators(order, seeded(4))],
            engine=ENGINES[engine],
            on_epoch=None if calls is None else calls.append,
        )
    if engine == "plain" or settings.batch_size < 44:  # a compiled epoch of one step draws no order
        assert torch.equal(torch.randperm(9, generator=order), _after(settings))
    return predictor, report, meter.take()


def _after(settings: StageSettings) -> torch.Tensor:
    order = seeded(3)
    for _ in range(settings.epochs):
        torch.randperm(44, generator=order)
    return torch.randperm(9, generator=order)


def agree(settings: StageSettings) -> StageReport:
    """Run a stage with both engines and compare losses, errors, best epoch, weights and FLOPs."""
    plain, plain_report, plain_charge = run("plain", settings)
    calls: list[int] = []
    fast, report, charge = run("compiled", settings, calls)
    assert report.best_epoch == plain_report.best_epoch
    assert report.initial == (plain_report.initial and pytest.approx(plain_report.initial, rel=1e-4))
    assert report.validation_loss == pytest.approx(plain_report.validation_loss, rel=1e-4)
    assert report.validation_error == pytest.approx(plain_report.validation_error)
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)
    assert charge == plain_charge
    assert calls == list(range(1, len(report.validation_loss) + 1))
    assert not fast.body.training
    return report


@needs_compiler
@pytest.mark.parametrize("settings", [ONE_STEP, MANY_STEPS], ids=["adadelta, one step", "sgd, many steps"])
def test_a_compiled_stage_equals_the_plain_one_and_repeats_to_the_last_bit(
    settings: StageSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "EPOCHS_PER_CALL", 2)  # less to compile; 7 epochs are three calls and one more epoch
    monkeypatch.setattr(compiled, "STEPS_PER_CALL", 2)  # 44 examples: two calls, one step and a mini-batch of 4
    agree(settings)
    first, second = (run("compiled", settings)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the arithmetic of the compiled engine without compiling it, which is faster for many settings."""
    compiled_program.program.cache_clear()
    monkeypatch.setattr(compiled_program, "_compile", lambda function: function)
    yield
    compiled_program.program.cache_clear()


@pytest.mark.usefixtures("uncompiled")
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
    optimizer: str, batch_size: int, changes: dict[str, object]
) -> None:
    settings = StageSettings(epochs=7, optimizer=optimizer, batch_size=batch_size, learning_rate=0.1)
    agree(dataclasses.replace(settings, **changes))


@pytest.mark.usefixtures("uncompiled")
def test_a_diverged_stage_keeps_the_weights_from_before_it_and_warns() -> None:
    with pytest.warns(RuntimeWarning, match="lower the learning rate"):
        predictor, report, _ = run("compiled", dataclasses.replace(MANY_STEPS, learning_rate=1e30))
    assert report.best_epoch == 0
    assert all(torch.equal(predictor.state_dict()[name], tensor) for name, tensor in small_mlp().state_dict().items())


def test_a_stage_that_the_compiled_engine_does_not_support_raises() -> None:
    for settings in (
        dataclasses.replace(ONE_STEP, precision="bf16"),
        dataclasses.replace(ONE_STEP, augmentation="crop_flip"),
    ):
        with pytest.raises(ValueError, match="use engine='plain'"):
            run("compiled", settings)
        with pytest.raises(ValueError, match="engine='compiled'"):
            choose_engine("compiled", small_mlp().body, settings, full_steps=10**9)
        assert choose_engine("auto", small_mlp().body, settings, full_steps=10**9) == "plain"
    assert choose_engine("auto", small_vgg19().body, ONE_STEP, full_steps=10**9) == "plain"
    assert choose_engine("auto", small_mlp().body, ONE_STEP, full_steps=10**9, device="cuda") == "plain"


@needs_compiler
def test_auto_compiles_only_long_runs() -> None:
    assert choose_engine("auto", small_mlp().body, ONE_STEP, full_steps=50_000) == "compiled"
    assert choose_engine("auto", small_mlp().body, ONE_STEP, full_steps=5_000) == "plain"
    assert choose_engine("plain", small_mlp().body, ONE_STEP, full_steps=10**9) == "plain"
    assert choose_engine("compiled", small_mlp().body, ONE_STEP, full_steps=1) == "compiled"


def test_auto_is_plain_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert choose_engine("auto", small_mlp().body, ONE_STEP, full_steps=10**9) == "plain"


def test_an_unknown_engine_raises() -> None:
    with pytest.raises(ValueError, match=r"engine='fast'.*auto, plain, compiled"):
        choose_engine("fast", small_mlp().body, ONE_STEP, full_steps=1)
