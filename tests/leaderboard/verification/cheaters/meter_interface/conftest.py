"""A custom operation that multiplies matrices, and its operands."""

from __future__ import annotations

import pytest
import torch

from alma_env.metering.costs import cost_table

PRODUCT = 2 * 4 * 5 * 6


@pytest.fixture
def product():
    """A custom operation that multiplies matrices; its registration is removed after the test."""

    @torch.library.custom_op("alma_gallery::product", mutates_args=())
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    yield product
    cost_table._REGISTERED.clear()
    cost_table._clear_caches()


def operands():
    return torch.ones(4, 5), torch.ones(5, 6)
