"""The formulas of the metered operations: one multiply-add is 2 FLOPs (ALMA paper, section 3).

Matrix products, convolutions, attention and recurrent layers are charged their multiply-adds, computed from the shapes
of the operands. A fused kernel is charged the cost of the plain operations that it replaces, so that the count depends
neither on the device, nor on the kernel, nor on whether a mask lets the kernel skip work. Biases, scalings, masks and
activations inside a fused kernel are elementwise, hence free (see `alma_env.metering.costs.free_operations`).

A formula is called with the operation's output and then with its arguments; it returns FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor

Formula = Callable[..., int]
T = TypeVar("T")


def multiply_adds(count: int) -> int:
    """Return the FLOPs of `count` multiply-adds."""
    return 2 * count


def after_first(formula: Formula) -> Formula:
    """Return `formula` for an operation with one more argument in front.

    It is the buffer that the operation writes to, a term that it adds, or the gradient of its output.
    """

    def shifted(out: Any, first: Any, *rest: Any, **options: Any) -> int:
        return formula(first, *rest, **options)  # a formula reads no more of an output than its shape

    return shifted


def by_qualified_name(families: dict[T, str]) -> dict[str, T]:
    """Return the value of each operation by its qualified name (`aten::mm`); the namespace `aten` is the default."""
    return {
        name if "::" in name else f"aten::{name}": value for value, names in families.items() for name in names.split()
    }


# --- matrix products ---

_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def _stored(sparse: Tensor) -> int:
    """Return the number of elements that a sparse matrix stores; only these are multiplied."""
    return (sparse._values() if sparse.layout == torch.sparse_coo else sparse.values()).numel()


def _sparse_products(a: Tensor, b: Tensor) -> int:
    # Each element in column k of `a` is multiplied by each element in row k of `b`.
    a, b = (operand.to_sparse(layout=torch.sparse_coo).coalesce() for operand in (a, b))
    columns = torch.bincount(a.indices()[1], minlength=a.shape[1])
    rows = torch.bincount(b.indices()[0], minlength=a.shape[1])
    return int((columns * rows).sum())


def _matrix_product(out: Any, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    # (..., m, k) @ (..., k, n), also with a vector on either side: each element of `a` is used for every column of `b`.
    if a.layout in _SPARSE and b.layout in _SPARSE:
        return multiply_adds(_sparse_products(a, b))
    if a.layout in _SPARSE:
        return multiply_adds(_stored(a) * (b.shape[-1] if b.dim() > 1 else 1))
    if b.layout in _SPARSE:
        return multiply_adds(_stored(b) * (a.shape[-2] if a.dim() > 1 else 1))
    return multiply_adds(a.numel() * (b.shape[-1] if b.dim() > 1 else 1))


def _sampled_matrix_product(out: Any, base: Tensor, a: Tensor, *rest: Any, **options: Any) -> int:
    # One product of a row and a column for each element that `base` stores.
    return multiply_adds(_stored(base) * a.shape[-1])


def _linear_combination(out: Any, terms: Tensor, coefficients: Tensor) -> int:
    # (n, m) coefficients of m terms: n sums.
    return multiply_adds(coefficients.shape[0] * terms.numel())


def _rank_one_update(out: Any, base: Any, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(a.numel() * b.numel())


def _list_of_products(out: Any, lefts: Sequence[Tensor], rights: Sequence[Tensor], *rest: Any, **options: Any) -> int:
    return sum(_matrix_product(None, a, b) for a, b in zip(lefts, rights, strict=True))


def _grouped_product(out: Tensor, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    # The groups are assumed to cover their ragged dimension: the ends of the groups are data, not shape.
    if a.dim() == 2 and b.dim() == 2:  # (m, Σk) @ (Σk, n) -> (groups, m, n)
        return multiply_adds(a.numel() * b.shape[1])
    if a.dim() == 3 and b.dim() == 2:  # (groups, m, k) @ (k, Σn) -> (m, Σn)
        return multiply_adds(a.shape[1] * b.numel())
    return multiply_adds(a.numel() * b.shape[-1])  # (Σm, k) or (groups, m, k) @ (groups, k, n)


def _affine(out: Tensor, x: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(out.numel() * x.shape[-1])  # not from the weight's shape: the weight may be packed


def _affine_backward(out: Any, x: Tensor, grad: Tensor, weight: Tensor, mask: Sequence[bool]) -> int:
    return (int(mask[0]) + int(mask[1])) * multiply_adds(x.numel() * weight.shape[0])


def _affine_input_gradient(out: Any, size: Any, grad: Tensor, weight: Tensor) -> int:
    return multiply_adds(grad.numel() * weight.shape[-1])


def _affine_weight_gradient(out: Any, grad: Tensor, x: Tensor, *rest: Any) -> int:
    return multiply_adds(grad.numel() * x.shape[-1])


def _trilinear(out: Any, a: Tensor, b: Tensor, c: Tensor, *rest: Any) -> int:
    # One multiply-add for each term of the sum over all three operands, which are expanded along the axes in `rest`.
    def sizes(operand: Tensor, expanded: list[int]) -> list[int]:
        shape = iter(operand.shape)
        return [1 if axis in expanded else next(shape) for axis in range(operand.dim() + len(expanded))]

    shapes = zip(*map(sizes, (a, b, c), rest), strict=True)
    return multiply_adds(prod(max(axis) for axis in shapes))


# --- convolutions ---


def _convolution_cost(x: Sequence[int], weight: Sequence[int], out: Sequence[int], transposed: bool) -> int:
    # Every filter element is used once at each position of the output, or of the input if transposed, padding included.
    # The shape of a grouped filter already has fewer input channels.
    positions = (x if transposed else out)[2:]
    return multiply_adds(x[0] * prod(positions) * prod(weight))


def _convolution(out: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> int:
    _bias, _stride, _padding, _dilation, transposed, *_ = rest
    return _convolution_cost(x.shape, weight.shape, out.shape, transposed)


def _plain_convolution(out: Tensor, x: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    return _convolution_cost(x.shape, weight.shape, out.shape, transposed=False)


def _fused_sum_convolution(out: Tensor, x: Tensor, other: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    return _convolution_cost(x.shape, weight.shape, out.shape, transposed=False)


def _transposed_convolution(out: Tensor, x: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    return _convolution_cost(x.shape, weight.shape, out.shape, transposed=True)


def _convolution_backward(out: Any, grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> int:
    _bias_sizes, _stride, _padding, _dilation, transposed, _output_padding, _groups, mask = rest
    # Both gradients pair the same elements as the forward pass.
    return (int(mask[0]) + int(mask[1])) * _convolution_cost(x.shape, weight.shape, grad.shape, transposed)


def _plain_convolution_backward(out: Any, grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    mask = next((item for item in (*rest, *options.values()) if _is_mask(item)), (True, True))
    return (int(mask[0]) + int(mask[1])) * _convolution_cost(x.shape, weight.shape, grad.shape, transposed=False)


def _is_mask(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) > 0 and all(isinstance(flag, bool) for flag in item)


def _time_first_convolution(out: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> int:
    return multiply_adds(out.shape[0] * out.shape[1] * weight.numel())  # (T, B, C)


FORMULAS: dict[str, Formula] = by_qualified_name(
    {
        _matrix_product: "mm bmm mv dot vdot _int_mm _scaled_mm _scaled_mm_v2 _sparse_sparse_matmul",
        after_first(_matrix_product): "addmm baddbmm addbmm addmv _addmm_activation _sparse_addmm",
        _sampled_matrix_product: "sparse_sampled_addmm",
        _linear_combination: "_compute_linear_combination",
        _rank_one_update: "addr",
        _list_of_products: "_foreach_mm",
        _grouped_product: "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2",
        _affine: "linear mkldnn_linear mkldnn::_linear_pointwise mkl::_mkl_linear",
        _affine_backward: "linear_backward mkldnn_linear_backward",
        _affine_input_gradient: "mkldnn_linear_backward_input",
        _affine_weight_gradient: "mkldnn_linear_backward_weights",
        _trilinear: "_trilinear",
        _convolution: "convolution _convolution convolution_overrideable",
        _plain_convolution: (
            "cudnn_convolution cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution "
            "miopen_convolution_relu miopen_convolution_add_relu miopen_depthwise_convolution mkldnn_convolution "
            "_mps_convolution _nnpack_spatial_convolution _slow_conv2d_forward slow_conv3d_forward "
            "slow_conv_dilated2d slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d mkldnn::_convolution_pointwise"
        ),
        _fused_sum_convolution: "mkldnn::_convolution_pointwise.binary",
        after_first(_plain_convolution): "mkldnn::_convolution_pointwise_.binary",
        _transposed_convolution: (
            "cudnn_convolution_transpose miopen_convolution_transpose _mps_convolution_transpose slow_conv_transpose2d "
            "slow_conv_transpose3d mkldnn::_convolution_transpose_pointwise"
        ),
        _convolution_backward: "convolution_backward convolution_backward_overrideable",
        _plain_convolution_backward: "_slow_conv2d_backward",
        _time_first_convolution: "conv_tbc",
    }
)
