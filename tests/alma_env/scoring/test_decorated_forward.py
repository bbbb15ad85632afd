"""The numbers that a decorator holds are counted, also where it names the function that it wraps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alma_env.scoring.fingerprint import fingerprint


def by_closure(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    hidden = torch.ones(64, 10)

    @functools.wraps(function)
    def wrapper(self: nn.Module, x: Tensor) -> Tensor:
        return x @ hidden

    return wrapper


class ByAttribute:
    def __init__(self, function: Callable[..., Tensor]) -> None:
        functools.update_wrapper(self, function)
        self.hidden = torch.ones(64, 10)

    def __get__(self, instance: object, owner: type) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, instance: nn.Module, x: Tensor) -> Tensor:
        return x @ self.hidden


def twice(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.no_grad()(by_closure(function))


def network(decorated: str, decorator: Callable[..., Any]) -> nn.Module:
    """Return a network with 650 parameters and a decorated method."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return self.helped(self.layer(x))

    def helped(self: Any, x: Tensor) -> Tensor:
        return x

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 10)

    methods = {"forward": forward, "helped": helped}
    for name, method in methods.items():
        setattr(Network, name, decorator(method) if name == decorated else method)
    return Network()


@pytest.mark.parametrize("decorator", [by_closure, ByAttribute, twice])
@pytest.mark.parametrize("decorated", ["forward", "helped"])
def test_the_numbers_of_a_decorator_are_counted(decorated: str, decorator: Callable[..., Any]) -> None:
    found = fingerprint(network(decorated, decorator))
    assert (found.parameters, found.buffers) == (650, 640)


@pytest.mark.parametrize("decorator", [torch.no_grad(), torch.inference_mode(), functools.lru_cache])
@pytest.mark.parametrize("decorated", ["forward", "helped"])
def test_decorators_of_the_libraries_hold_no_numbers(decorated: str, decorator: Callable[..., Any]) -> None:
    found = fingerprint(network(decorated, decorator))
    assert (found.parameters, found.buffers) == (650, 0)


def test_a_function_that_wraps_itself_is_searched_once() -> None:
    model = network("forward", by_closure)
    forward: Any = type(model).forward
    forward.__wrapped__ = forward
    assert fingerprint(model).buffers == 640
