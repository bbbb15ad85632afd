"""Functions that are counted once and whose cost varies with a number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from alma_env.metering import Meter, cost_varies_with, count_once, phase


@count_once
def rows_of(mask: Tensor, x: Tensor) -> Tensor:
    rows = x[mask]
    cost_varies_with(len(rows))
    with phase("validation"):
        x @ x
    return rows @ x


def chosen(rows: int) -> Tensor:
    """A mask of fixed shape."""
    return torch.arange(8) < rows


def test_a_cost_that_varies_with_a_number_equals_the_full_count() -> None:
    x = torch.ones(8, 8)
    meter, in_full = Meter(), Meter()
    for rows in (3, 3, 5, 0, 8, 1, 7, 3):
        with meter:
            rows_of(chosen(rows), x)
        with in_full:
            rows_of.fn(chosen(rows), x)
        assert meter.take() == in_full.take()


def test_calls_are_counted_until_three_numbers_were_reported() -> None:
    modes: list[bool] = []

    @count_once
    def step(mask: Tensor, x: Tensor) -> None:
        modes.append(torch.utils._python_dispatch.is_in_torch_dispatch_mode())
        rows_of.fn(mask, x)

    with Meter():
        for rows in (3, 3, 5, 0, 8, 1):
            step(chosen(rows), torch.ones(8, 8))
    assert modes == [True] * 5 + [False] * 2, "the first call is also counted on copies"


@pytest.mark.parametrize("steps", [1, 6])
def test_numbers_reported_by_inner_functions_count_for_the_outer_function(steps: int) -> None:
    def twice(masks: list[Tensor], x: Tensor) -> None:
        for mask in masks:
            rows_of(mask, x)

    outer, meter, in_full, x = count_once(twice), Meter(), Meter(), torch.ones(8, 8)
    for first in range(steps):
        masks = [chosen(first), chosen(2 * first % 7)]
        with meter:
            outer(masks, x)
        with in_full:
            for mask in masks:
                rows_of.fn(mask, x)
    assert meter.take() == in_full.take()


def test_a_cost_that_is_not_affine_in_the_number_is_refused() -> None:
    @count_once
    def square(mask: Tensor, x: Tensor) -> None:
        rows = x[mask]
        cost_varies_with(len(rows))
        rows @ rows.T

    @count_once
    def late(mask: Tensor, x: Tensor) -> None:
        if mask.any():
            cost_varies_with(1)

    x = torch.ones(8, 8)
    with Meter():
        square(chosen(1), x), square(chosen(2), x)
        with pytest.raises(RuntimeError, match=r"square reported cost_varies_with\(3\).* a \+ b"):
            square(chosen(3), x)
        late(chosen(0), x)
        with pytest.raises(RuntimeError, match="report a number that the cost is proportional to, in each call"):
            late(chosen(1), x)


def test_cost_varies_with_does_nothing_outside_of_count_once() -> None:
    meter, x = Meter(), torch.ones(8, 8)
    rows_of(chosen(2), x)
    with meter:
        cost_varies_with(3)
        rows_of.fn(chosen(2), x)
    assert meter.total == 2 * 8 * 8 * (2 + 8)


def test_the_charges_of_a_call_whose_cost_varies_are_refused() -> None:
    @count_once
    def product(x: Tensor) -> Tensor:
        cost_varies_with(2)
        return torch.ones(2, 3) @ x

    with Meter(), pytest.raises(RuntimeError, match="product reported cost_varies_with.*call it instead"):
        product.charges(torch.rand(3, 3))
