"""The table of costs: unknown operations, and costs that a user registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from alma_env.errors import UnknownCostError
from alma_env.metering import count
from alma_env.metering.costs import cost_table

from .costs import cost, randn


def test_no_operation_is_both_metered_and_free() -> None:
    assert not set(cost_table.FORMULAS) & set(cost_table._FREE_NAMES)


def test_every_group_of_free_operations_has_a_reason_and_no_name_occurs_twice() -> None:
    names = [name for group in cost_table.FREE.values() for name in group.split()]
    assert len(names) == len(set(names))
    assert all(len(reason.split()) > 2 for reason in cost_table.FREE)


UNKNOWN: dict[str, Callable[[], Any]] = {
    "aten::linalg_matrix_exp": lambda: torch.linalg.matrix_exp(randn(3, 3)),  # its products depend on the values
    "aten::_sparse_softmax": lambda: torch.sparse.softmax(randn(3, 3).to_sparse(), 1),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_operation_is_an_error_that_names_it_and_the_remedy(name: str) -> None:
    with pytest.raises(UnknownCostError) as caught:
        count(UNKNOWN[name])
    message = str(caught.value)
    assert message.startswith(name)
    assert f"alma_env.flops.register_cost(torch.ops.{name.replace('::', '.')}" in message
    assert "register_free" in message


@pytest.fixture
def custom() -> Iterator[Any]:
    calls: list[int] = []

    @torch.library.custom_op("alma_test::product", mutates_args=())
    def product(a: Tensor, b: Tensor) -> Tensor:
        calls.append(1)
        return a @ b

    product.calls = calls  # type: ignore[attr-defined]
    yield product
    cost_table._REGISTERED.clear()
    cost_table._clear_caches()


def test_a_custom_operation_is_unknown_until_its_cost_is_registered(custom: Any) -> None:
    a, b = randn(2, 3), randn(3, 5)
    with pytest.raises(UnknownCostError, match="alma_test::product"):
        count(custom, a, b)
    assert not custom.calls, "the error is raised before the operation runs"
    cost_table.register_cost(custom, lambda out, a, b: 2 * a.numel() * b.shape[1])
    assert count(custom, a, b).total == 60
    assert cost(torch.ops.alma_test.product.default, a, b) == 60
    cost_table.unregister(custom)
    with pytest.raises(UnknownCostError, match="alma_test::product"):
        count(custom, a, b)
    cost_table.register_free(torch.ops.alma_test.product, "it is part of a test")
    assert count(custom, a, b).total == 0


def test_invalid_registrations_are_refused(custom: Any) -> None:
    def formula(out: Any, *args: Any) -> int:
        return 1

    with pytest.raises(ValueError, match=r"aten::mm is metered .* already"):
        cost_table.register_cost(torch.ops.aten.mm, formula)
    with pytest.raises(ValueError, match="aten::mm is metered"):
        cost_table.register_free(torch.ops.aten.mm.default, "cheating")
    with pytest.raises(ValueError, match=r"aten::relu is free by definition already"):
        cost_table.register_cost(torch.ops.aten.relu, formula)
    with pytest.raises(TypeError, match="is not an operation of PyTorch"):
        cost_table.register_cost(torch.mm, formula)
    with pytest.raises(TypeError, match="formula=12.*callable"):
        cost_table.register_cost(custom, 12)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reason=''.*non-empty"):
        cost_table.register_free(custom, "")
    with pytest.raises(ValueError, match="is not registered"):
        cost_table.unregister(custom)
    cost_table.register_cost(custom, formula)
    with pytest.raises(ValueError, match=r"registered already.*unregister"):
        cost_table.register_cost(custom, formula)


@pytest.mark.parametrize("value", [1.5, -1, True, None])
def test_a_formula_must_return_a_non_negative_integer(custom: Any, value: Any) -> None:
    cost_table.register_cost(custom, lambda out, *args: value)
    with pytest.raises(ValueError, match=r"alma_test::product: its cost formula returned"):
        count(custom, randn(2, 3), randn(3, 5))
