"""One stage of several seeds in one batch gives the numbers, weights and FLOPs of one seed after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from agents.learners.ens import Ens
from agents.learners.gens import GEns
from agents.learners.seed_batch import BatchedLearner, train_batch
from agents.learners.sm import SingleModel
from agents.learners.umix import UMix
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training.compiled import program as compiled_program
from agents.training.settings import StageSettings
from agents.training.stage import Examples
from alma_env import shared
from alma_env.metering import Meter

SEEDS = 3
ADADELTA = StageSettings(epochs=4, batch_size=16, optimizer="adadelta", learning_rate=1.0)
SGD = StageSettings(
    epochs=2, batch_size=8, optimizer="sgd", learning_rate=0.05, weight_decay=1e-3, augmentation="crop_flip"
)
KINDS: dict[str, Callable[..., BatchedLearner]] = {
    "SM": SingleModel,
    "Ens": partial(Ens, members=2),
    "UMix": partial(UMix, members=2),
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build_mlp(hidden: int, generator: torch.Generator) -> Predictor:
    return Predictor(Normalize(255, (0.5,), (0.25,)), MLP(64, hidden, 10, generator=generator))


def build_vgg19(generator: torch.Generator) -> Predictor:
    # In double precision, since batch normalisation of few examples amplifies rounding.
    normalize = nn.Sequential(Normalize(255, (0.5,) * 3, (0.25,) * 3), ToDouble())
    return Predictor(normalize, VGG19(2, 10, generator=generator).double())


class ToDouble(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.double()


def examples(n: int, shape: Sequence[int], seed: int) -> Examples:
    x = torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=seeded(seed))
    return Examples(x, torch.randint(0, 10, (n,), generator=seeded(seed + 1)))


def agree(make: Callable[[int], BatchedLearner], shape: Sequence[int], n: int, *, stages: int = 2) -> None:
    """Train each seed separately and all seeds in a batch, and compare."""
    separate, batch = [make(seed) for seed in range(SEEDS)], [make(seed) for seed in range(SEEDS)]
    for stage in range(stages):
        train = [examples(n, shape, 100 * seed + stage) for seed in range(SEEDS)]
        valid = [examples(n // 4, shape, 100 * seed + 50 + stage) for seed in range(SEEDS)]
        own, together = Meter(), [Meter() for _ in range(SEEDS)]
        with shared(together):
            reports = train_batch(batch, train, valid)
        for seed, report in enumerate(reports):
            with own:
                expected = separate[seed].train(train[seed], valid[seed])
            assert dataclasses.replace(together[seed].take(), declared=()) == own.take()
            pairs = zip(getattr(report, "members", [report]), getattr(expected, "members", [expected]), strict=True)
            for ours, theirs in pairs:
                assert ours.best_epoch == theirs.best_epoch
                assert ours.validation_loss == pytest.approx(theirs.validation_loss, rel=1e-5)
                assert ours.validation_error == pytest.approx(theirs.validation_error)
            assert not batch[seed].predictor.training
            for name, tensor in separate[seed].predictor.state_dict().items():
                torch.testing.assert_close(batch[seed].predictor.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [6, 20])  # narrow and wide layers have different layouts
@pytest.mark.parametrize("batch_size", [16, 64])
def test_mlps_in_one_batch_train_like_one_after_another(kind: str, hidden: int, batch_size: int) -> None:
    settings = dataclasses.replace(ADADELTA, batch_size=batch_size)
    agree(lambda seed: KINDS[kind](partial(build_mlp, hidden), settings, seed=seed), (1, 8, 8), 40)


@pytest.mark.parametrize("kind", KINDS)
def test_vgg19s_in_one_batch_train_like_one_after_another(kind: str) -> None:
    agree(lambda seed: KINDS[kind](build_vgg19, SGD, seed=seed), (3, 32, 32), 20, stages=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_size", [16, 64])
@pytest.mark.usefixtures("uncompiled")
def test_the_compiled_engine_trains_mlps_in_one_batch(kind: str, batch_size: int) -> None:
    settings = dataclasses.replace(ADADELTA, batch_size=batch_size, epochs=6, keep_initial=True)
    make = partial(KINDS[kind], partial(build_mlp, 6), settings, engine="compiled")
    agree(lambda seed: make(seed=seed), (1, 8, 8), 40)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the arithmetic of the compiled engine without compiling it."""
    compiled_program.program.cache_clear()
    monkeypatch.setattr(compiled_program, "_compile", lambda function: function)
    yield
    compiled_program.program.cache_clear()


def test_a_seed_does_not_depend_on_the_other_seeds_to_the_last_bit() -> None:
    states = []
    for others in ((1, 2), (7, 8)):
        batch: list[Any] = [SingleModel(partial(build_mlp, 6), ADADELTA, seed=seed) for seed in (0, *others)]
        train_batch(
            batch,
            [examples(40, (1, 8, 8), 100 * learner.seed) for learner in batch],
            [examples(10, (1, 8, 8), 100 * learner.seed + 50) for learner in batch],
        )
        states.append(batch[0].predictor.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": dataclasses.replace(ADADELTA, epochs=1)}, "settings=.* in one batch"),
        ({"engine": "compiled"}, "engine='plain' and 'compiled'"),
    ],
)
def test_learners_that_differ_in_more_than_their_seeds_raise(changes: dict[str, Any], message: str) -> None:
    keywords: dict[str, Any] = {"settings": ADADELTA, "seed": 0}
    learners = [
        SingleModel(partial(build_mlp, 6), **keywords),
        SingleModel(partial(build_mlp, 6), **keywords | changes),
    ]
    with pytest.raises(ValueError, match=message):
        train_batch(learners, *([examples(40, (1, 8, 8), 0)] * 2 for _ in range(2)))


def test_learners_that_cannot_train_in_a_batch_raise_with_the_reason() -> None:
    make = partial(SingleModel, partial(build_mlp, 6))
    part = examples(40, (1, 8, 8), 0)
    growing: Any = GEns(partial(build_mlp, 6), ADADELTA, seed=0)
    clipped, patient = (dataclasses.replace(ADADELTA, **changes) for changes in ({"clip": 1.0}, {"patience": 2}))
    for learners, message in (
        ([make(ADADELTA, seed=0)], "1 learners.*at least 2"),
        ([growing, growing], "only SM, Ens and UMix"),
        ([make(clipped, seed=seed) for seed in range(2)], "clip=1.0.*norm"),
        ([make(patient, seed=seed) for seed in range(2)], "patience=2.*different epochs"),
    ):
        with pytest.raises(ValueError, match=message):
            train_batch(learners, [part] * len(learners), [part] * len(learners))
    with pytest.raises(ValueError, match="train: 40, 20 examples"):
        train_batch([make(ADADELTA, seed=0), make(ADADELTA, seed=1)], [part, examples(20, (1, 8, 8), 0)], [part] * 2)
