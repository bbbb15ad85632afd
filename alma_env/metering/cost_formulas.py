"""What the metered operations cost: one multiply-add is 2 FLOPs (ALMA paper, section 3).

Charged are the multiply-adds of matrix products, convolutions, attention and recurrent layers, from the shapes of the
operands alone. A fused kernel is charged what the plain operations that it replaces would be charged, so that the count
does not depend on the device, on the kernel or on whether a mask lets the kernel skip work. Biases, scalings, masks and
activations inside a fused kernel are elementwise, hence free (see `alma_env.flops`).

A formula is called with the operation's output and then with its arguments; it returns FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

Formula = Callable[..., int]


def multiply_adds(count: int) -> int:
    """FLOPs of `count` multiply-adds."""
    return 2 * count


def _after_buffer(formula: Formula) -> Formula:
    """`formula` for an operation whose first argument is the buffer that it writes to."""

    def shifted(out: Any, buffer: Tensor, *rest: Any, **options: Any) -> int:
        return formula(buffer, *rest, **options)

    return shifted


# --- matrix products ---


_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def _stored(sparse: Tensor) -> int:
    """Elements that a sparse matrix stores; only they are multiplied."""
    return (sparse._values() if sparse.layout == torch.sparse_coo else sparse.values()).numel()


def _meetings(a: Tensor, b: Tensor) -> int:
    # Each element in column k of `a` meets each element in row k of `b`.
    columns = torch.bincount(a.indices()[1], minlength=a.shape[1])
    rows = torch.bincount(b.indices()[0], minlength=a.shape[1])
    return int((columns * rows).sum())


def _matrix_product(out: Any, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    # (..., m, k) @ (..., k, n), also with a vector on either side: every element of `a` meets each column of `b`.
    if a.layout in _SPARSE and b.layout in _SPARSE:
        return multiply_adds(
            _meetings(a.to_sparse(layout=torch.sparse_coo).coalesce(), b.to_sparse(layout=torch.sparse_coo).coalesce())
        )
    if a.layout in _SPARSE:
        return multiply_adds(_stored(a) * (b.shape[-1] if b.dim() > 1 else 1))
    if b.layout in _SPARSE:
        return multiply_adds(_stored(b) * (a.shape[-2] if a.dim() > 1 else 1))
    return multiply_adds(a.numel() * (b.shape[-1] if b.dim() > 1 else 1))


def _added_matrix_product(out: Any, base: Any, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    return _matrix_product(out, a, b)


def _rank_one_update(out: Any, base: Any, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(a.numel() * b.numel())


def _list_of_products(out: Any, lefts: Sequence[Tensor], rights: Sequence[Tensor], *rest: Any, **options: Any) -> int:
    return sum(_matrix_product(None, a, b) for a, b in zip(lefts, rights, strict=True))


def _grouped_product(out: Tensor, a: Tensor, b: Tensor, *rest: Any, **options: Any) -> int:
    # The groups are taken to cover their ragged dimension: where the groups end is data, not shape.
    if a.dim() == 2 and b.dim() == 2:  # (m, Σk) @ (Σk, n) -> (groups, m, n)
        return multiply_adds(a.numel() * b.shape[1])
    if a.dim() == 3 and b.dim() == 2:  # (groups, m, k) @ (k, Σn) -> (m, Σn)
        return multiply_adds(a.shape[1] * b.numel())
    return multiply_adds(a.numel() * b.shape[-1])  # (Σm, k) or (groups, m, k) @ (groups, k, n)


def _affine(out: Tensor, x: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(out.numel() * x.shape[-1])  # the weight may be packed: its shape is not used


def _affine_backward(out: Any, x: Tensor, grad: Tensor, weight: Tensor, mask: Sequence[bool]) -> int:
    return (int(mask[0]) + int(mask[1])) * multiply_adds(x.numel() * weight.shape[0])


def _affine_input_gradient(out: Any, size: Any, grad: Tensor, weight: Tensor) -> int:
    return multiply_adds(grad.numel() * weight.shape[-1])


def _affine_weight_gradient(out: Any, grad: Tensor, x: Tensor, *rest: Any) -> int:
    return multiply_adds(grad.numel() * x.shape[-1])


def _trilinear(
    out: Any,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand_a: list[int],
    expand_b: list[int],
    expand_c: list[int],
    *rest: Any,
) -> int:
    # One multiply-add for each term of the sum over all three expanded operands.
    rank = a.dim() + len(expand_a)

    def sizes(operand: Tensor, expanded: list[int]) -> list[int]:
        shape = iter(operand.shape)
        return [1 if axis in expanded else next(shape) for axis in range(rank)]

    shapes = zip(sizes(a, expand_a), sizes(b, expand_b), sizes(c, expand_c), strict=True)
    return multiply_adds(prod(max(axis) for axis in shapes))


# --- convolutions ---


def _convolution_cost(x: Sequence[int], weight: Sequence[int], out: Sequence[int], transposed: bool) -> int:
    # Every filter element is used once at each position of the output (the input, where transposed), padding included.
    # A grouped filter has the smaller shape already.
    positions = (x if transposed else out)[2:]
    return multiply_adds(x[0] * prod(positions) * prod(weight))


def _convolution(
    out: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    *rest: Any,
) -> int:
    return _convolution_cost(x.shape, weight.shape, out.shape, transposed)


def _plain_convolution(out: Tensor, x: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    return _convolution_cost(x.shape, weight.shape, out.shape, transposed=False)


def _fused_sum_convolution(out: Tensor, x: Tensor, other: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    return _convolution_cost(x.shape, weight.shape, out.shape, transposed=False)


def _transposed_convolution(out: Tensor, x: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    return _convolution_cost(x.shape, weight.shape, out.shape, transposed=True)


def _convolution_backward(
    out: Any,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool],
) -> int:
    # Both gradients pair the same elements as the forward pass.
    forward = _convolution_cost(x.shape, weight.shape, grad.shape, transposed)
    return (int(mask[0]) + int(mask[1])) * forward


def _plain_convolution_backward(out: Any, grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, **options: Any) -> int:
    mask = next((item for item in (*rest, *options.values()) if _is_mask(item)), (True, True))
    return (int(mask[0]) + int(mask[1])) * _convolution_cost(x.shape, weight.shape, grad.shape, transposed=False)


def _is_mask(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) > 0 and all(isinstance(flag, bool) for flag in item)


def _time_first_convolution(out: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> int:
    return multiply_adds(out.shape[0] * out.shape[1] * weight.numel())  # (T, B, C)


# --- attention ---


def attention_multiply_adds(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> tuple[int, int]:
    """Multiply-adds of query·key and of weights·value, for shapes (..., heads, length, depth).

    No causal saving; keys and values shared by several query heads are counted for each of them.
    """
    pairs = prod(query[:-1]) * key[-2]
    return pairs * query[-1], pairs * value[-1]


def _attention(out: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(sum(attention_multiply_adds(query.shape, key.shape, value.shape)))


def _attention_backward_cost(
    query: Tensor, key: Tensor, value: Tensor, shapes: Iterable[Sequence[Sequence[int]]]
) -> int:
    """What the plain operations execute: two products for each one of the forward pass, where all inputs learn."""
    learns = [query.requires_grad, key.requires_grad, value.requires_grad]
    if not any(learns):  # inside torch.func transforms the tensors do not tell
        learns = [True, True, True]
    score_products = int(learns[0]) + int(learns[1])
    value_products = int(learns[2]) + int(learns[0] or learns[1])
    total = 0
    for shape in shapes:
        scores, values = attention_multiply_adds(*shape)
        total += score_products * scores + value_products * values
    return multiply_adds(total)


def _attention_backward(
    out: Any, grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any
) -> int:
    return _attention_backward_cost(query, key, value, [(query.shape, key.shape, value.shape)])


def _flex_attention_backward(out: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> int:
    return _attention_backward_cost(query, key, value, [(query.shape, key.shape, value.shape)])


def _sequence_shapes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ends_q: Tensor | None,
    ends_k: Tensor | None,
    longest_q: int,
    longest_k: int,
) -> list[tuple[tuple[int, ...], ...]]:
    """(heads, length, depth) of query, key and value for each sequence of inputs (..., length, heads, depth)."""

    def lengths(ends: Tensor | None, longest: int, operand: Tensor) -> list[int]:
        if ends is None:
            return [operand.shape[-3]] * prod(operand.shape[:-3])
        if ends.device.type == "meta":  # the lengths are data
            return [longest] * (ends.numel() - 1)
        return [int(length) for length in ends.diff().tolist()]

    pairs = zip(lengths(ends_q, longest_q, query), lengths(ends_k, longest_k, key), strict=True)
    heads = query.shape[-2]
    return [((heads, q, query.shape[-1]), (heads, k, key.shape[-1]), (heads, k, value.shape[-1])) for q, k in pairs]


def _forward_of_sequences(shapes: list[tuple[tuple[int, ...], ...]]) -> int:
    return multiply_adds(sum(sum(attention_multiply_adds(*shape)) for shape in shapes))


def _flash_attention(
    out: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ends_q: Any,
    ends_k: Any,
    longest_q: int,
    longest_k: int,
    *rest: Any,
    **options: Any,
) -> int:
    return _forward_of_sequences(_sequence_shapes(query, key, value, ends_q, ends_k, longest_q, longest_k))


def _flash_attention_backward(
    out: Any,
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    logsumexp: Tensor,
    ends_q: Any,
    ends_k: Any,
    longest_q: int,
    longest_k: int,
    *rest: Any,
    **options: Any,
) -> int:
    shapes = _sequence_shapes(query, key, value, ends_q, ends_k, longest_q, longest_k)
    return _attention_backward_cost(query, key, value, shapes)


def _efficient_attention(
    out: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Any,
    ends_q: Any,
    ends_k: Any,
    longest_q: int,
    longest_k: int,
    *rest: Any,
    **options: Any,
) -> int:
    return _forward_of_sequences(_sequence_shapes(query, key, value, ends_q, ends_k, longest_q, longest_k))


def _efficient_attention_backward(
    out: Any,
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Any,
    result: Tensor,
    ends_q: Any,
    ends_k: Any,
    longest_q: int,
    longest_k: int,
    *rest: Any,
    **options: Any,
) -> int:
    shapes = _sequence_shapes(query, key, value, ends_q, ends_k, longest_q, longest_k)
    return _attention_backward_cost(query, key, value, shapes)


def _sequence_lengths(x: Tensor) -> list[int]:
    """Lengths of the sequences of x: (batch, length, features), possibly nested (then without padding)."""
    if x.is_nested:
        return [int(length) for length in x._nested_tensor_size()[:, 0].tolist()]
    return [x.shape[1]] * x.shape[0]


def _multi_head_attention(
    out: Any, query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, *rest: Any, **options: Any
) -> int:
    # Inputs (batch, length, width): the projections of query, key and value, attention, the projection of the output.
    total = 0
    for q, k in zip(_sequence_lengths(query), _sequence_lengths(key), strict=True):
        total += 2 * q * width * width + 2 * k * width * width + 2 * q * k * width
    return multiply_adds(total)


def _transformer_layer(
    out: Any,
    x: Tensor,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    projection: Any,
    projection_bias: Any,
    activation: Any,
    norm_first: Any,
    eps: Any,
    norm1: Any,
    norm1_bias: Any,
    norm2: Any,
    norm2_bias: Any,
    hidden: Tensor,
    *rest: Any,
    **options: Any,
) -> int:
    tokens = sum(_sequence_lengths(x))
    return _multi_head_attention(None, x, x, x, width, heads) + multiply_adds(2 * tokens * hidden.numel())


# --- recurrent layers ---


def _recurrent_layer(out: Any, x: Tensor, weight_input: Tensor, weight_hidden: Tensor, *rest: Any) -> int:
    steps = x.numel() // x.shape[-1]  # time steps × examples
    return multiply_adds(steps * (weight_input.numel() + weight_hidden.numel()))


def _recurrent_layer_backward(
    out: Any,
    x: Tensor,
    weight_input: Tensor,
    weight_hidden: Tensor,
    bias_input: Any,
    bias_hidden: Any,
    hidden: Tensor,
    cell: Tensor,
    *rest: Any,
) -> int:
    steps = x.numel() // x.shape[-1]
    first = hidden.numel() // hidden.shape[-1]  # examples: the first step's hidden state is given, not computed
    return _recurrent_gradients(
        steps,
        first,
        weight_input.numel(),
        weight_hidden.numel(),
        x.requires_grad,
        hidden.requires_grad or cell.requires_grad,
        True,
    )


def _recurrent_gradients(
    steps: int,
    first: int,
    input_weights: int,
    hidden_weights: int,
    input_learns: bool,
    start_learns: bool,
    weights_learn: bool,
) -> int:
    """FLOPs that the plain cells execute: no gradient of an input or of a first state that does not need one."""
    to_weights = steps * (input_weights + hidden_weights) if weights_learn else 0
    to_input = steps * input_weights if input_learns else 0
    to_states = (steps if start_learns else steps - first) * hidden_weights
    return multiply_adds(to_weights + to_input + to_states)


def _recurrent_network(out: Any, x: Tensor, weights: Sequence[Tensor], *rest: Any) -> int:
    steps = x.numel() // x.shape[-1]
    return multiply_adds(steps * sum(weight.numel() for weight in weights if weight.dim() == 2))


def _recurrent_network_backward(
    out: Any,
    x: Tensor,
    weights: Sequence[Tensor],
    per_layer: int,
    buffer: Any,
    hidden: Tensor,
    cell: Any,
    result: Any,
    grad_output: Any,
    grad_hidden: Any,
    grad_cell: Any,
    mode: int,
    hidden_size: int,
    projected_size: int,
    layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Any,
    reserve: Any,
    mask: Sequence[bool],
) -> int:
    steps = x.numel() // x.shape[-1]
    directions = 2 if bidirectional else 1
    total = 0
    for index in range(layers * directions):
        matrices = [w.numel() for w in weights[index * per_layer : (index + 1) * per_layer] if w.dim() == 2]
        backwards = index % directions == 1
        first = (batch_sizes[-1] if backwards else batch_sizes[0]) if batch_sizes else hidden.shape[1]
        input_learns = mask[0] or index >= directions
        total += _recurrent_gradients(steps, first, matrices[0], matrices[1], input_learns, mask[1] or mask[2], mask[3])
        for projection in matrices[2:]:
            total += multiply_adds((2 if mask[3] else 1) * steps * projection)
    return total


# --- the table ---

_FAMILIES: dict[Formula, str] = {
    _matrix_product: "mm bmm mv dot vdot _int_mm _scaled_mm _scaled_mm_v2",
    _added_matrix_product: "addmm baddbmm addbmm addmv _addmm_activation _sparse_addmm",
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
    _after_buffer(_plain_convolution): "mkldnn::_convolution_pointwise_.binary",
    _transposed_convolution: (
        "cudnn_convolution_transpose miopen_convolution_transpose _mps_convolution_transpose slow_conv_transpose2d "
        "slow_conv_transpose3d mkldnn::_convolution_transpose_pointwise"
    ),
    _convolution_backward: "convolution_backward convolution_backward_overrideable",
    _plain_convolution_backward: "_slow_conv2d_backward",
    _time_first_convolution: "conv_tbc",
    _attention: (
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math_for_mps "
        "higher_order::flex_attention"
    ),
    _attention_backward: (
        "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_fused_attention_overrideable_backward"
    ),
    _flex_attention_backward: "higher_order::flex_attention_backward",
    _flash_attention: "_flash_attention_forward",
    _after_buffer(_flash_attention): "_flash_attention_forward_no_dropout_inplace",
    _flash_attention_backward: "_flash_attention_backward",
    _efficient_attention: "_efficient_attention_forward",
    _efficient_attention_backward: "_efficient_attention_backward",
    _multi_head_attention: "_native_multi_head_attention",
    _transformer_layer: "_transformer_encoder_layer_fwd",
    _recurrent_layer: "mkldnn_rnn_layer",
    _recurrent_layer_backward: "mkldnn_rnn_layer_backward",
    _recurrent_network: "_cudnn_rnn miopen_rnn",
    _recurrent_network_backward: "_cudnn_rnn_backward",
}

METERED: dict[str, Formula] = {
    name if "::" in name else f"aten::{name}": formula for formula, names in _FAMILIES.items() for name in names.split()
}
"""Formula by qualified name (`aten::mm`); a name also stands for its in-place twin (`aten::addmm_`)."""
