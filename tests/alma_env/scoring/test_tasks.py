"""The error of a tick, compared with hand-computed values, for classes and for text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from alma_env.scoring.ensemble import Ensemble
from alma_env.scoring.evaluation import Answer, answer, freeze
from alma_env.scoring.fingerprint import fingerprint
from alma_env.scoring.incremental import ScoredEnsemble, score
from alma_env.scoring.tasks import Classification, LanguageModelling

X = np.array([[0, 1, 2], [2, 2, 0]], dtype=np.int32)
Y = np.array([[1, 2, 0], [2, 0, 1]], dtype=np.int32)
TEXT = LanguageModelling(3)


class Bigrams(nn.Module):
    """A predictor from the present to the next token."""

    def __init__(self, table: list[list[float]]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor(table))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens.long()]


def bigrams(seed: int) -> Bigrams:
    return Bigrams(torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)).tolist())


def test_the_uniform_guess() -> None:
    assert Classification(4).guess == 0.75
    assert TEXT.guess == 3.0
    kept = TEXT.keep(torch.zeros(2, 3, 3), Y)
    assert TEXT.error(kept, Y) == pytest.approx(3.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_answer_is_the_lowest_class_with_the_highest_logit(dtype: torch.dtype) -> None:
    inf, nan = math.inf, math.nan
    rows = [[0, 1, 2], [2, 2, 0], [-inf, -inf, -inf], [0, inf, inf], [0.0, -0.0, -1], [nan, 0, 5]]
    answers = np.array([2, 0, 0, 1, 0, 0])  # NaN counts as the highest
    for count in (1, 2, 6):  # without ties; with a tie; with ties and NaN
        kept = torch.tensor(rows[:count], dtype=dtype)
        for label in range(3):
            labels = np.full(count, label)
            assert Classification(3).error(kept, labels) == np.mean(answers[:count] != label)
    assert Classification(1).error(torch.tensor([[nan], [1]], dtype=dtype), np.zeros(2, dtype=int)) == 0


def test_perplexity_by_hand() -> None:
    model = bigrams(0)
    probabilities = model.table.detach().double().softmax(1)
    surprises = [-math.log(probabilities[x, y]) for x, y in zip(X.flatten(), Y.flatten(), strict=True)]
    for batch_size in (1, 2, 5):
        answered = answer(freeze(model), X, Y, task=TEXT, batch_size=batch_size)
        assert answered.error == pytest.approx(math.exp(sum(surprises) / 6), rel=1e-6)


def score_text(ensemble: Ensemble, before: ScoredEnsemble | None) -> tuple[Answer, ScoredEnsemble | None]:
    return score(ensemble, fingerprint(ensemble), X, Y, task=TEXT, batch_size=1, steady_flops=None, before=before)


def test_the_perplexity_of_an_ensemble_averages_probabilities() -> None:
    members = [bigrams(seed) for seed in range(3)]
    mean = torch.stack([member.table.detach().double().softmax(1) for member in members]).mean(0)
    surprise = np.mean([-math.log(mean[x, y]) for x, y in zip(X.flatten(), Y.flatten(), strict=True)])
    ensemble: Ensemble = Ensemble(members)
    before: ScoredEnsemble | None = None
    for count in (1, 2, 3):
        part = Ensemble(members[:count])
        answered, before = score_text(part, before)
        assert before is not None
        whole = answer(freeze(part), X, Y, task=TEXT, batch_size=1)
        assert answered.error == pytest.approx(whole.error, rel=1e-6)
        assert answered.inference_flops == whole.inference_flops
    assert answered.error == pytest.approx(math.exp(surprise), rel=1e-6)
    single = [math.log(answer(freeze(member), X, Y, task=TEXT, batch_size=2).error) for member in members]
    assert math.log(answered.error) <= np.mean(single)  # Jensen
    assert answer(freeze(ensemble), X, Y, task=TEXT, batch_size=2).error == pytest.approx(answered.error, rel=1e-6)


def test_an_average_of_logits_is_run_as_a_whole() -> None:
    ensemble = Ensemble([bigrams(0), bigrams(1)], space="logit")
    answered, scored = score_text(ensemble, None)
    assert scored is None
    assert answered == answer(freeze(ensemble), X, Y, task=TEXT, batch_size=1)
