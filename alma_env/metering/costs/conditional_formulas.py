"""Costs of free operations in calls for which the reason of `alma_env.metering.costs.free_operations` does not hold.

A free operation does no more products than it has elements to read or write. Some free operations contract two operands
in certain calls: a matrix product would be free. Each of them has a formula here, which returns 0 for the other calls.

* An embedding bag with a weight for each look-up is a product of the weights with the table.
* The gradients of a normalisation's weights, and of the sampling points of a grid, are sums of products. They are part
  of a backward pass that also writes a product for each element of its input. Without this input gradient, the sums are
  a contraction.
* An update in place adds products up where several elements of the updated tensor lie at one place in memory.
* A loss sums one product per element. Only expanded operands, whose elements lie at fewer places, have more products
  than numbers.

A formula is called with the operation's output and then with its arguments; it returns FLOPs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alma_env.metering.costs.cost_formulas import Formula, by_qualified_name, multiply_adds


def stored_elements(tensor: Tensor) -> int:
    """Return the number of places in memory at which the elements of a tensor lie.

    >>> stored_elements(torch.zeros(3, 1).expand(3, 5)), stored_elements(torch.zeros(9).unfold(0, 4, 1))
    (3, 9)
    """
    if tensor.layout != torch.strided or tensor.is_nested:
        return tensor.numel()
    if tensor.is_contiguous():
        return tensor.numel()
    if tensor.numel() == 0:
        return 0
    axes = sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if stride and size > 1
    )
    span = 1  # places from the first to the last element along the axes so far
    for stride, size in axes:
        if stride < span:  # the places along this axis may be those along another one
            places = [stride * np.arange(size) for stride, size in axes]
            return len(np.unique(functools.reduce(np.add.outer, places)))
        span += stride * (size - 1)
    return prod(size for _, size in axes)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _unless_written(products: int, written: Iterable[Any]) -> int:
    """Return the cost of products that are summed up, or 0 if the operation writes an element for each of them."""
    return multiply_adds(products) if products > sum(map(stored_elements, _tensors(written))) else 0


def _unless_read(products: int, *tensors: Tensor) -> int:
    """Return the cost of products that are summed up, or 0 if a tensor has an element in memory for each of them."""
    return multiply_adds(products) if products > max(map(stored_elements, tensors)) else 0


# --- look-ups with weights ---


def _weighted_bag(out: Any, table: Tensor, indices: Tensor, *rest: Any, **options: Any) -> int:
    return _bag_cost(indices, table, _argument("per_sample_weights", 4, rest, options))


def _weighted_bag_backward(position: int) -> Formula:
    def cost(out: Any, grad: Tensor, indices: Tensor, *rest: Any, **options: Any) -> int:
        return _bag_cost(indices, grad, _argument("per_sample_weights", position, rest, options))

    return cost


def _bag_cost(indices: Tensor, rows: Tensor, weights: Any) -> int:
    return 0 if weights is None else multiply_adds(indices.numel() * rows.shape[-1])


def _bag_weights_gradient(out: Any, grad: Tensor, table: Tensor, indices: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(indices.numel() * table.shape[-1])


def _argument(name: str, position: int, rest: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return options[name] if name in options else rest[position] if position < len(rest) else None


# --- gradients that are sums of products ---


def _summed_gradient(out: tuple[Any, ...], grad: Tensor, *rest: Any, **options: Any) -> int:
    _, weights_gradient, *_ = out
    return 0 if weights_gradient is None else _unless_written(grad.numel(), out)


def _cudnn_grid_gradient(out: tuple[Any, ...], x: Tensor, grid: Tensor, grad: Tensor) -> int:
    return _unless_written(grad.numel(), out)


def _first_pass_of_batch_norm(out: Any, grad: Tensor, x: Tensor, *rest: Any, **options: Any) -> int:
    return _unless_read(grad.numel(), grad, x)  # a second pass writes the input gradient


# --- updates in place ---


def _update(out: Any, target: Any, *rest: Any, **options: Any) -> int:
    # An operation on lists returns nothing where it updates its first argument.
    updated = [out] if isinstance(out, Tensor) else out or target
    return sum(0 if t.is_contiguous() else _unless_written(t.numel(), [t]) for t in _tensors(updated))


# --- losses ---


def _sum_over_pairs(out: Tensor, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    if a.shape == b.shape and (a.is_contiguous() or b.is_contiguous()):
        return 0
    return _unless_read(prod(_broadcast(a, b)), a, b, out)


def _broadcast(a: Tensor, b: Tensor) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(a.shape, b.shape))  # type: ignore[no-untyped-call]


def _sum_over_classes(out: Tensor, a: Tensor, *rest: Any, **options: Any) -> int:
    return _unless_read(a.numel(), a)


def _sum_over_targets(out: Any, a: Tensor, target: Tensor, *rest: Any, **options: Any) -> int:
    return _unless_read(target.numel(), a, target)


CONDITIONS: dict[str, Formula] = by_qualified_name(
    {
        _weighted_bag: "_embedding_bag _embedding_bag_forward_only",
        # After gradient and indices: offsets and sizes, the size of the table, and the flags.
        _weighted_bag_backward(8): "_embedding_bag_backward",
        _weighted_bag_backward(6): "_embedding_bag_dense_backward",
        _bag_weights_gradient: "_embedding_bag_per_sample_weights_backward",
        _summed_gradient: (
            "native_batch_norm_backward batch_norm_backward miopen_batch_norm_backward cudnn_batch_norm_backward "
            "native_layer_norm_backward native_group_norm_backward _fused_rms_norm_backward "
            "grid_sampler_2d_backward grid_sampler_3d_backward _grid_sampler_2d_cpu_fallback_backward"
        ),
        _cudnn_grid_gradient: "cudnn_grid_sampler_backward",
        _first_pass_of_batch_norm: "batch_norm_backward_reduce",
        _update: "addcmul addcdiv lerp",
        _sum_over_pairs: (
            "mse_loss huber_loss smooth_l1_loss soft_margin_loss binary_cross_entropy "
            "binary_cross_entropy_with_logits kl_div dist"
        ),
        _sum_over_classes: "multi_margin_loss",
        _sum_over_targets: "nll_loss_forward nll_loss2d_forward",
    }
)
"""Formulas of free operations by qualified name, which includes the in-place form and the form on lists."""
