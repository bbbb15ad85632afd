"""FLOPs of attention, from the shapes of query, key and value; see `cost_formulas`.

A formula is called with the operation's output and then with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from alma_env.metering.costs.cost_formulas import Formula, after_first, by_qualified_name, multiply_adds

Shapes = Sequence[tuple[int, ...]]  # of query, key and value


def _attention_multiply_adds(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> tuple[int, int]:
    """Return the multiply-adds of query·key and of weights·value, for shapes (..., heads, length, depth).

    Causal masks save nothing. Keys and values that several query heads share are counted for each head.
    """
    pairs = prod(query[:-1]) * key[-2]
    return pairs * query[-1], pairs * value[-1]


def _attention(out: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(sum(_attention_multiply_adds(query.shape, key.shape, value.shape)))


def _attention_backward_cost(query: Tensor, key: Tensor, value: Tensor, shapes: Iterable[Shapes]) -> int:
    """Return the FLOPs of the plain operations: two products for each forward product if all inputs need gradients."""
    needs_grad = [query.requires_grad, key.requires_grad, value.requires_grad]
    if not any(needs_grad):  # inside torch.func transforms, requires_grad is not set
        needs_grad = [True, True, True]
    score_products = int(needs_grad[0]) + int(needs_grad[1])
    value_products = int(needs_grad[2]) + int(needs_grad[0] or needs_grad[1])
    total = 0
    for shape in shapes:
        scores, values = _attention_multiply_adds(*shape)
        total += score_products * scores + value_products * values
    return multiply_adds(total)


def _attention_backward(out: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return _attention_backward_cost(query, key, value, [(query.shape, key.shape, value.shape)])


def _sequence_shapes(
    query: Tensor, key: Tensor, value: Tensor, ends_q: Any, ends_k: Any, longest_q: int, longest_k: int
) -> list[Shapes]:
    """Return (heads, length, depth) of query, key and value, per sequence of inputs (..., length, heads, depth)."""

    def lengths(ends: Tensor | None, longest: int, operand: Tensor) -> list[int]:
        if ends is None:
            return [operand.shape[-3]] * prod(operand.shape[:-3])
        if ends.device.type == "meta":  # the lengths are data
            return [longest] * (ends.numel() - 1)
        return [int(length) for length in ends.diff().tolist()]

    pairs = zip(lengths(ends_q, longest_q, query), lengths(ends_k, longest_k, key), strict=True)
    heads = query.shape[-2]
    return [((heads, q, query.shape[-1]), (heads, k, key.shape[-1]), (heads, k, value.shape[-1])) for q, k in pairs]


def _packed_attention_cost(query: Tensor, key: Tensor, value: Tensor, *lengths: Any) -> int:
    shapes = _sequence_shapes(query, key, value, *lengths)
    return multiply_adds(sum(sum(_attention_multiply_adds(*shape)) for shape in shapes))


def _flash_attention(out: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return _packed_attention_cost(query, key, value, *rest[:4])


def _efficient_attention(out: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return _packed_attention_cost(query, key, value, *rest[1:5])  # after the bias


def _packed_attention_backward(
    out: Any, grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any
) -> int:
    lengths = rest[2:6]  # after the result and its logsumexp, or the bias and the result
    return _attention_backward_cost(query, key, value, _sequence_shapes(query, key, value, *lengths))


def _sequence_lengths(x: Tensor) -> list[int]:
    """Return the lengths of the sequences of x: (batch, length, features), possibly nested (then without padding)."""
    if x.is_nested:
        return [int(length) for length in x._nested_tensor_size()[:, 0].tolist()]
    return [x.shape[1]] * x.shape[0]


def _multi_head_attention(
    out: Any, query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, *rest: Any, **options: Any
) -> int:
    # Inputs (batch, length, width): the projections of query, key and value, attention, the projection of the output.
    lengths = zip(_sequence_lengths(query), _sequence_lengths(key), strict=True)
    return multiply_adds(sum(2 * (q + k) * width * width + 2 * q * k * width for q, k in lengths))


def _transformer_layer(out: Any, x: Tensor, width: int, heads: int, *rest: Any, **options: Any) -> int:
    hidden_weight = rest[11]  # after both projections, activation, norm_first, eps and both norms
    tokens = sum(_sequence_lengths(x))
    return _multi_head_attention(None, x, x, x, width, heads) + multiply_adds(2 * tokens * hidden_weight.numel())


# --- attention with functions of single scores ---

_FLEX = ("query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options", "score_mod_other_buffers")
_FLEX_BACKWARD = (*_FLEX[:3], "out", "logsumexp", "grad_out", "grad_logsumexp", "fw_graph", "joint_graph", *_FLEX[4:])
Function = tuple[Callable[..., Any], tuple[Any, ...], int]  # a function, its arguments, and how often it runs


def functions_of_scores(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Function]:
    """Return the functions that an operation calls for each pair of query and key: they can compute anything."""
    if name not in {"higher_order::flex_attention", "higher_order::flex_attention_backward"}:
        return []
    backward = name.endswith("backward")
    names = (*(_FLEX_BACKWARD if backward else _FLEX), "mask_mod_other_buffers")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    query, key = given["query"], given["key"]
    pairs = prod(query.shape[:-1]) * key.shape[-2]
    score, place = query.detach().new_zeros(()), [torch.zeros((), dtype=torch.int32, device=query.device)] * 4
    buffers, mask_buffers = (tuple(given.get(name, ())) for name in (_FLEX[-1], "mask_mod_other_buffers"))
    mask = (given["block_mask"][-1], (*place, *mask_buffers), pairs)
    if not backward:
        return [(given["score_mod"], (score, *place, *buffers), pairs), mask]
    gradient = given["joint_graph"]
    if gradient is None:  # it is made of the function: about twice the cost
        return [(given["fw_graph"], (score, *place, *buffers), 3 * pairs), mask]
    return [(gradient, (score, *place, score, *buffers), pairs), mask]


FORMULAS: dict[str, Formula] = by_qualified_name(
    {
        _attention: (
            "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
            "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
            "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math_for_mps "
            "higher_order::flex_attention"
        ),
        after_first(_attention_backward): (
            "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward "
            "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
            "_scaled_dot_product_fused_attention_overrideable_backward"
        ),
        _attention_backward: "higher_order::flex_attention_backward",
        _flash_attention: "_flash_attention_forward",
        after_first(_flash_attention): "_flash_attention_forward_no_dropout_inplace",
        _efficient_attention: "_efficient_attention_forward",
        _packed_attention_backward: "_flash_attention_backward _efficient_attention_backward",
        _multi_head_attention: "_native_multi_head_attention",
        _transformer_layer: "_transformer_encoder_layer_fwd",
    }
)
