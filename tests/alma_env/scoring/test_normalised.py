"""The kept test inputs give the answers of raw inputs to the last bit, and no predictor can change them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from alma_env.errors import PredictorError
from alma_env.scoring import evaluation, normalised
from alma_env.scoring.ensemble import Ensemble
from alma_env.scoring.normalised import NormalisedInputs, Normalize, Predictor
from alma_env.scoring.tasks import Classification

X = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 4)).astype(np.uint8)
Y = np.random.default_rng(1).integers(0, 5, 50)


def normalize(mean: float = 0.5) -> Normalize:
    return Normalize(255.0, (mean, 0.4, 0.3), (0.2, 0.3, 0.4))


def body(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.ReLU(inplace=True), nn.Linear(8, 5))


def run(predictor: nn.Module, inputs: NormalisedInputs | None = None) -> tuple[torch.Tensor, float, bool]:
    frozen = evaluation.freeze(predictor)
    return evaluation.run(frozen, X, Y, task=Classification(5), batch_size=20, inputs=inputs)


@pytest.mark.parametrize("make", [Predictor, nn.Sequential], ids=lambda make: make.__name__)
def test_kept_inputs_give_the_same_logits_and_flops(make):
    inputs = NormalisedInputs()
    for seed in range(3):
        predictor = make(normalize(), body(seed))
        kept, flops, steady = run(predictor, inputs)
        raw, *others = run(predictor)
        assert torch.equal(kept, raw)
        assert (flops, steady) == tuple(others)
    assert [len(batch) for batch in inputs._kept] == [20, 20, 10]


def test_another_normalisation_is_computed_again():
    inputs = NormalisedInputs()
    for mean in (0.5, 0.1):
        predictor = Predictor(normalize(mean), body())
        assert torch.equal(run(predictor, inputs)[0], run(predictor)[0])


class Overwrites(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = body()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.layer(x)
        x.numpy()[:] = 0  # does not change the version of the tensor
        x.data.zero_()
        return logits


def test_a_body_that_overwrites_its_inputs_does_not_change_the_kept_ones():
    inputs = NormalisedInputs()
    predictor = Predictor(normalize(), Overwrites())
    first = run(predictor, inputs)[0]
    assert torch.equal(run(predictor, inputs)[0], first)
    assert torch.equal(run(predictor)[0], first)


class Halved(Normalize):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / 2


class Reversed(Predictor):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -super().forward(x)


def hooked() -> Predictor:
    predictor = Predictor(normalize(), body())
    predictor.normalize.register_forward_hook(lambda module, args, out: out + 1)
    return predictor


def replaced() -> Predictor:
    predictor = Predictor(normalize(), body())
    predictor.normalize.forward = lambda x: x.float()
    return predictor


@pytest.mark.parametrize(
    "make",
    [
        lambda: Predictor(Halved(255.0, (0.5,), (0.2,)), body()),
        lambda: Reversed(normalize(), body()),
        lambda: nn.Sequential(normalize(), body(), nn.Softmax(1)),
        lambda: Predictor(normalize().double(), body().double()),
        lambda: Ensemble([body()], normalize()),
        hooked,
        replaced,
    ],
)
def test_no_inputs_are_kept_for_a_predictor_that_may_compute_something_else(make):
    inputs = NormalisedInputs()
    run(Predictor(normalize(), body()), inputs)
    assert inputs.batches_for(make(), X, 20, torch.device("cpu")) is None
    try:
        raw = run(make())[0]
    except PredictorError:  # float32 inputs, float64 weights
        return
    assert torch.equal(run(make(), inputs)[0], raw)


def test_no_inputs_are_kept_while_a_hook_listens_to_all_modules():
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: None)
    try:
        assert NormalisedInputs().batches_for(Predictor(normalize(), body()), X, 20, torch.device("cpu")) is None
    finally:
        handle.remove()


def test_an_error_names_the_raw_batch():
    message = r"raised RuntimeError on a raw batch of shape \(20, 3, 4, 4\) and dtype torch.uint8"
    for constants in ((0.5, 0.4, 0.3), (0.5, 0.4)):  # the body fails, or the normalisation
        predictor = Predictor(Normalize(255.0, constants, constants), nn.Linear(3, 5))
        with pytest.raises(PredictorError, match=message):
            run(predictor, NormalisedInputs())


def test_large_inputs_are_not_kept_and_a_copy_keeps_none(monkeypatch):
    inputs, predictor = NormalisedInputs(), Predictor(normalize(), body())
    run(predictor, inputs)
    assert inputs._kept
    assert not copy.deepcopy(inputs)._kept
    monkeypatch.setattr(normalised, "LIMIT", 4 * X.size - 1)
    inputs = NormalisedInputs()
    assert torch.equal(run(predictor, inputs)[0], run(predictor)[0])
    assert not inputs._kept
