"""The error of text is the perplexity on the hidden set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("tokenizers")
from alma_env import AlmaEnv, Ensemble, PredictorError
from alma_env.text import tokenizer as tokens

from ...predictors import Returning
from .predictors import LENGTH, VOCABULARY, Bigram, Make, Unigram, assert_same, hidden, train


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 50_000])
def test_the_error_at_tick_0_is_the_size_of_the_vocabulary(make: Make, vocabulary: int) -> None:
    env = make(vocabulary_size=vocabulary)
    _, info = env.reset(seed=0)
    assert info["error"] == vocabulary
    assert env.ledger[0].parameters == 0
    assert env._stream is not None
    filled = env._stream.data.vocabulary
    assert filled == VOCABULARY if vocabulary == VOCABULARY else filled < vocabulary
    assert env.step(None)[1] == -vocabulary


def test_with_a_given_tokenizer_the_error_at_tick_0_is_the_size_of_its_vocabulary(make: Make, tmp_path: Path) -> None:
    tokens.trained(["some other text"], 270).save(str(tmp_path / "mine.json"))
    env = make(tokenizer=tmp_path / "mine.json")
    observation, info = env.reset(seed=0)
    assert 257 <= info["error"] == env.data.classes <= 270
    assert observation in env.observation_space
    assert observation["train"]["x"].max() < env.data.classes


def test_the_error_of_a_unigram_predictor_is_its_perplexity(env: AlmaEnv) -> None:
    observation, _ = env.reset(seed=0)
    counts = np.bincount(observation["train"]["y"].ravel(), minlength=VOCABULARY) + 1.0
    probabilities = counts / counts.sum()
    with env.meter:
        model = Unigram(torch.from_numpy(counts).log())
        model(torch.zeros(1, 1))
    env.meter.declare(1, reason="counted in NumPy")
    _, reward, *_ = env.step(model)
    _, y = hidden(env)
    by_hand = np.exp(-np.log(probabilities)[y].mean())
    assert 1 < by_hand < VOCABULARY
    assert env.ledger[1].error == pytest.approx(by_hand, rel=1e-5)
    assert reward == -env.ledger[1].error


def test_rewards_are_minus_the_perplexities_and_the_score_has_their_mean(env: AlmaEnv) -> None:
    model = Bigram(0)
    env.reset(seed=0, options={"predictor": model})
    rewards = []
    while not env.done:
        with env.meter:
            train(model, env.observation())
        rewards.append(env.step(model)[1])
    assert rewards == sorted(rewards)  # it learns
    score = env.ledger.score()
    assert sum(rewards) == pytest.approx(-score.cer_from_1)
    assert score.mean_error_from_1 == pytest.approx(-np.mean(rewards))
    assert score.final_error == -rewards[-1] < env.ledger[0].error


def test_a_growing_ensemble_is_scored_again_on_the_hidden_set_of_another_seed(make: Make) -> None:
    members, env = [Bigram(seed) for seed in range(3)], make()

    def error(env: AlmaEnv, seed: int, size: int) -> float:
        return env.reset(seed=seed, options={"predictor": Ensemble(members[:size])})[1]["error"]

    episodes = [(0, 2), (1, 2), (1, 3), (0, 3)]
    errors = [error(env, *episode) for episode in episodes]
    assert errors == [error(make(), *episode) for episode in episodes]
    assert len(set(errors)) == 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: torch.zeros(len(x), VOCABULARY), r"shape \(64, 300\): .*\(batch, tokens, vocabulary\)"),
        (lambda x: torch.zeros(*x.shape, VOCABULARY - 1), r"\(64, 32, 299\): .* = \(64, 32, 300\)"),
        (lambda x: torch.zeros(len(x), VOCABULARY, LENGTH), r"shape \(64, 300, 32\)"),
        (lambda x: torch.full((*x.shape, VOCABULARY), torch.nan), "NaN logits.*None to keep the previous one"),
        (lambda x: torch.zeros(*x.shape, VOCABULARY, dtype=torch.int64), "dtype torch.int64"),
        (lambda x: nn.functional.one_hot(x.long(), VOCABULARY).float() * 1e6, "perplexity inf: .*None to keep"),
    ],
)
def test_a_predictor_that_cannot_be_scored_does_not_change_the_episode(
    env: AlmaEnv, answer: Callable[[Tensor], Any], message: str
) -> None:
    observation, _ = env.reset(seed=0, options={"predictor": Bigram(0)})
    before = env.state_dict()
    with pytest.raises(PredictorError, match=message):
        env.step(Returning(answer))
    assert env.state_dict() == before
    assert_same(env.observation(), observation)
    assert env.step(None)[1] == -env.ledger[0].error
