"""The cross-entropy of tokens against PyTorch's: its value, its gradient, its cost and its memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from agents import token_loss
from agents.token_loss import token_cross_entropy
from alma_env.meter import count


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def case(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Features, output embeddings and targets of 7 tokens and 11 words, with logits of up to 100."""
    features = 10 * torch.randn(7, 5, generator=seeded()).to(dtype)
    words = 10 * torch.randn(11, 5, generator=seeded(1)).to(dtype)
    return features.requires_grad_(), words.requires_grad_(), torch.randint(0, 11, (7,), generator=seeded(2))


@pytest.mark.parametrize("at_once", [1, 25, 10_000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_is_the_cross_entropy_with_its_gradient(
    dtype: torch.dtype, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_loss, "_AT_ONCE", at_once)
    features, words, targets = case(dtype)
    precise = torch.promote_types(dtype, torch.float32)
    loss = F.cross_entropy(F.linear(features, words).to(precise), targets)
    expected = torch.autograd.grad(3 * loss, (features, words))
    ours = token_cross_entropy(F.linear(features, words), targets)
    gradients = torch.autograd.grad(3 * ours, (features, words))
    assert ours.dtype == precise
    torch.testing.assert_close(ours, loss)
    torch.testing.assert_close(gradients, expected)


def test_it_costs_what_the_logits_cost() -> None:
    features, words, targets = case(torch.float32)
    charge = count(lambda: token_cross_entropy(F.linear(features, words), targets).backward())
    assert charge.forward == {"training": 2 * 7 * 5 * 11}
    assert charge.total == 3 * 2 * 7 * 5 * 11


def test_without_gradients_the_logits_stay_as_they_are() -> None:
    logits = torch.randn(7, 11, generator=seeded())
    before = logits.clone()
    token_cross_entropy(logits, torch.zeros(7, dtype=torch.int64))
    assert torch.equal(logits, before)


def test_a_second_backward_pass_is_refused() -> None:
    features, words, targets = case(torch.float32)
    loss = token_cross_entropy(F.linear(features, words), targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_gradient_lies_where_the_logits_were() -> None:
    features, words, targets = case(torch.float32)
    logits = F.linear(features, words)
    places: list[int] = []
    logits.register_hook(lambda gradient: places.append(gradient.data_ptr()))
    token_cross_entropy(logits, targets).backward()
    assert places == [logits.data_ptr()]
