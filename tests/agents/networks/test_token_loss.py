"""The cross-entropy of tokens compared with PyTorch's: value, gradient, cost and memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from agents.networks import token_loss
from agents.networks.token_loss import token_cross_entropy
from alma_env.metering import count

from ..random_examples import seeded


def case(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, output embeddings and targets of 7 tokens and 11 words; the logits are up to 100."""
    features = 10 * torch.randn(7, 5, generator=seeded()).to(dtype)
    words = 10 * torch.randn(11, 5, generator=seeded(1)).to(dtype)
    return features.requires_grad_(), words.requires_grad_(), torch.randint(0, 11, (7,), generator=seeded(2))


@pytest.mark.parametrize("at_once", [1, 25, 10_000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_value_and_gradient_equal_those_of_pytorch(
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


def test_only_the_logits_are_charged() -> None:
    features, words, targets = case(torch.float32)
    charge = count(lambda: token_cross_entropy(F.linear(features, words), targets).backward())
    assert charge.forward == {"training": 2 * 7 * 5 * 11}
    assert charge.total == 3 * 2 * 7 * 5 * 11


def test_without_gradients_the_logits_do_not_change() -> None:
    logits = torch.randn(7, 11, generator=seeded())
    before = logits.clone()
    token_cross_entropy(logits, torch.zeros(7, dtype=torch.int64))
    assert torch.equal(logits, before)


def test_a_second_backward_pass_raises() -> None:
    features, words, targets = case(torch.float32)
    loss = token_cross_entropy(F.linear(features, words), targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_gradient_is_stored_in_the_memory_of_the_logits() -> None:
    features, words, targets = case(torch.float32)
    logits = F.linear(features, words)
    addresses: list[int] = []
    logits.register_hook(lambda gradient: addresses.append(gradient.data_ptr()))
    token_cross_entropy(logits, targets).backward()
    assert addresses == [logits.data_ptr()]
