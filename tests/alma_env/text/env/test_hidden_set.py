"""The hidden set changes errors, and nothing that a learner sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("tokenizers")
from alma_env import AlmaEnv
from alma_env.text import tokenizer as tokens

from .predictors import LENGTH, TICKS, Bigram, Make, assert_same, hidden, play


def test_no_sequence_of_the_hidden_set_is_in_an_observation(env: AlmaEnv) -> None:
    env.reset(seed=0)
    seen = set()
    for t in range(1, TICKS + 1):
        for part in env.megabatch(t).values():
            # At every offset, not only at the start of a sequence.
            text = np.append(part["x"].ravel(), part["y"][-1, -1])
            seen |= {window.tobytes() for window in np.lib.stride_tricks.sliding_window_view(text, LENGTH)}
        if not env.done:
            env.step(None)
    x, _ = hidden(env)
    assert len(x) > 50
    assert not seen & {row.tobytes() for row in x}


def test_another_test_text_changes_errors_but_not_observations_or_weights(
    make: Make, folder: Path, tmp_path: Path
) -> None:
    text = (folder / "valid.txt").read_text(encoding="utf-8")
    played = []
    for name, test in (("one", text.upper()), ("two", text[::-1])):
        (tmp_path / f"{name}.txt").write_text(test, encoding="utf-8")
        env, model = make(test=tmp_path / f"{name}.txt"), Bigram(0)
        played.append((play(env, model), model.next.detach(), [row.error for row in env.ledger]))
    (observations, weights, errors), (others, other_weights, other_errors) = played
    for one, two in zip(observations, others, strict=True):
        assert_same(one, two)
    assert torch.equal(weights, other_weights)
    assert all(error != other for error, other in zip(errors, other_errors, strict=True))


def test_a_given_test_text_is_used_for_every_seed(make: Make, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("the same sentence again and again. " * 40)
    env = make(test=tmp_path / "test.txt")
    for seed in (0, 1):
        env.reset(seed=seed)
        x, y = hidden(env)
        assert env._stream is not None
        tokenizer = tokens.loaded(env._stream.data.tokenizer_file)
        text = tokenizer.decode([int(x[0, 0]), *y.ravel().tolist()])
        assert ("the same sentence again and again. " * 40).startswith(text)
        assert len(x) > 5
