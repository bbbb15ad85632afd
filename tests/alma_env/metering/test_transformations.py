"""Transformations of PyTorch cost what the code that they transform costs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from alma_env.metering import count

from .counted_work import PRODUCT, batch, mlp, product


def test_compiled_vectorised_and_functional_code_costs_what_eager_code_costs() -> None:
    net, (x, y) = mlp(), batch()
    parameters = dict(net.named_parameters())
    eager = count(lambda: F.cross_entropy(net(x), y).backward())

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(net, parameters, (x,)), y)

    assert count(torch.func.grad(loss), parameters, x, y) == eager
    assert count(torch.vmap(net), x[:, None]).total == count(net, x).total
    compiled = torch.compile(net, backend="eager")
    assert count(lambda: F.cross_entropy(compiled(x), y).backward()) == eager
    compiled(x)
    assert count(lambda: F.cross_entropy(compiled(x), y).backward()) == eager
    with torch.autocast("cpu", torch.bfloat16):
        assert count(lambda: F.cross_entropy(net(x), y).backward()) == eager
    per_example = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    assert count(per_example, parameters, x[:, None], y[:, None]) == eager
    assert count(lambda: torch.jit.trace(net, x, check_trace=False)(x)).total >= count(net, x).total


def test_the_inner_operations_of_a_tensor_subclass_are_counted() -> None:
    class Wrapped(Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args = [a.inner if isinstance(a, Wrapped) else a for a in args]
            return func(*args, **(kwargs or {}))

        @staticmethod
        def __new__(cls, inner: Tensor) -> Any:
            wrapped = torch.Tensor._make_wrapper_subclass(cls, inner.shape)  # type: ignore[attr-defined]
            wrapped.inner = inner
            return wrapped

    assert count(lambda: Wrapped(torch.ones(4, 4)) @ torch.ones(4, 4)).total == PRODUCT
    ragged = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    assert count(lambda: ragged @ torch.ones(4, 4)).total == 2 * 5 * 4 * 4


def test_fake_tensors_compute_nothing() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def infer() -> None:
        with FakeTensorMode():
            product()

    assert count(infer).total == 0
