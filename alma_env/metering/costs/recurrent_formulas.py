"""FLOPs of fused recurrent layers, from the shapes of their weights; see `cost_formulas`.

A formula is called with the operation's output and then with its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from alma_env.metering.costs.cost_formulas import Formula, by_qualified_name, multiply_adds


def _recurrent_layer(out: Any, x: Tensor, weight_input: Tensor, weight_hidden: Tensor, *rest: Any) -> int:
    steps = x.numel() // x.shape[-1]  # time steps × examples
    return multiply_adds(steps * (weight_input.numel() + weight_hidden.numel()))


def _recurrent_layer_backward(out: Any, x: Tensor, weight_input: Tensor, weight_hidden: Tensor, *rest: Any) -> int:
    _bias_input, _bias_hidden, hidden, cell, *_ = rest
    steps = x.numel() // x.shape[-1]
    first = hidden.numel() // hidden.shape[-1]  # examples: the first hidden state is an input
    need_grad = (x.requires_grad, hidden.requires_grad or cell.requires_grad, True)
    return _recurrent_gradients(steps, first, weight_input.numel(), weight_hidden.numel(), need_grad)


def _recurrent_gradients(
    steps: int, first: int, input_weights: int, hidden_weights: int, need_grad: tuple[bool, bool, bool]
) -> int:
    """Return the FLOPs of the plain cells, for the need of a gradient of (input, first state, weights)."""
    input_needs_grad, start_needs_grad, weights_need_grad = need_grad
    to_weights = steps * (input_weights + hidden_weights) if weights_need_grad else 0
    to_input = steps * input_weights if input_needs_grad else 0
    to_states = (steps if start_needs_grad else steps - first) * hidden_weights
    return multiply_adds(to_weights + to_input + to_states)


def _recurrent_network(out: Any, x: Tensor, weights: Sequence[Tensor], *rest: Any) -> int:
    steps = x.numel() // x.shape[-1]
    return multiply_adds(steps * sum(weight.numel() for weight in weights if weight.dim() == 2))


def _recurrent_network_backward(
    out: Any, x: Tensor, weights: Sequence[Tensor], per_layer: int, buffer: Any, hidden: Tensor, *rest: Any
) -> int:
    _mode, _hidden_size, _projected_size, layers, _batch_first, _dropout, _train, bidirectional = rest[5:13]
    batch_sizes, _dropout_state, _reserve, mask = rest[13:]
    steps = x.numel() // x.shape[-1]
    directions = 2 if bidirectional else 1
    total = 0
    for index in range(layers * directions):
        matrices = [w.numel() for w in weights[index * per_layer : (index + 1) * per_layer] if w.dim() == 2]
        backwards = index % directions == 1
        first = (batch_sizes[-1] if backwards else batch_sizes[0]) if batch_sizes else hidden.shape[1]
        need_grad = (mask[0] or index >= directions, mask[1] or mask[2], mask[3])
        total += _recurrent_gradients(steps, first, matrices[0], matrices[1], need_grad)
        for projection in matrices[2:]:
            total += multiply_adds((2 if mask[3] else 1) * steps * projection)
    return total


FORMULAS: dict[str, Formula] = by_qualified_name(
    {
        _recurrent_layer: "mkldnn_rnn_layer",
        _recurrent_layer_backward: "mkldnn_rnn_layer_backward",
        _recurrent_network: "_cudnn_rnn miopen_rnn",
        _recurrent_network_backward: "_cudnn_rnn_backward",
    }
)
