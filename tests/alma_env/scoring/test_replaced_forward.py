"""A class of PyTorch is trusted only while its forward is PyTorch's."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from alma_env.scoring.fingerprint import fingerprint
from alma_env.scoring.held_objects import is_library_class

WEIGHTS = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))


def hidden(self: nn.Module, x: Tensor) -> Tensor:
    return x @ WEIGHTS


def named_as(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return x @ WEIGHTS

    return forward


REPLACEMENTS = {
    "a function": lambda original: hidden,
    "a function that names the original": named_as,
    "a decorator of PyTorch": lambda original: torch.no_grad()(hidden),
    "no function": lambda original: functools.partialmethod(hidden),
}


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


@pytest.mark.parametrize("replacement", REPLACEMENTS)
@pytest.mark.parametrize("kind", [nn.Linear, nn.Flatten])
def test_a_replaced_forward_is_another_predictor(kind, replacement, monkeypatch):
    model = linear()
    before = fingerprint(model)  # the class is known from here on
    monkeypatch.setattr(kind, "forward", REPLACEMENTS[replacement](kind.forward))
    assert not fingerprint(model).same_as(before)
    monkeypatch.undo()
    assert fingerprint(model).same_as(before)


@pytest.mark.parametrize("replacement", ["a function", "a decorator of PyTorch"])
def test_the_numbers_that_a_replaced_forward_reads_are_counted(replacement, monkeypatch):
    before = fingerprint(linear())
    monkeypatch.setattr(nn.Linear, "forward", REPLACEMENTS[replacement](nn.Linear.forward))
    found = fingerprint(linear())
    assert (found.parameters, found.buffers - before.buffers) == (650, 640)


def test_a_replaced_code_of_a_forward_is_another_predictor(monkeypatch):
    model = linear()
    before = fingerprint(model)
    monkeypatch.setattr(nn.Linear.forward, "__code__", hidden.__code__)
    assert not fingerprint(model).same_as(before)


def test_a_class_that_inherits_a_replaced_forward_is_not_trusted_either(monkeypatch):
    inheriting = nn.modules.linear.NonDynamicallyQuantizableLinear  # the output of nn.MultiheadAttention
    assert is_library_class(inheriting)
    monkeypatch.setattr(nn.Linear, "forward", hidden)
    assert not is_library_class(inheriting)


def test_all_layers_of_pytorch_are_trusted():
    layers = [kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.Module)]
    assert len(layers) > 100
    assert [kind for kind in layers if not is_library_class(kind)] == []
