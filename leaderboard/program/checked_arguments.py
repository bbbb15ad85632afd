"""Check arguments that the kernels of PyTorch do not check: wrong ones would read or write outside of their arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from leaderboard.errors import ProgramError

# The kernels get these types as numbers of a list, and do not check that a number is in the list.
_TYPES = {
    "ScalarType": torch.dtype,
    "Layout": torch.layout,
    "MemoryFormat": torch.memory_format,
    "Device": torch.device,
}
_GATES = {"aten::lstm": 4, "aten::gru": 3, "aten::rnn_tanh": 1, "aten::rnn_relu": 1}
_LAYERS = 64


def check_types(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that dtypes, layouts, memory formats and devices are such values, and not numbers.

    Raises:
        ProgramError: an argument has another type.
    """
    if not isinstance(operation, OpOverload):
        return
    for position, argument in enumerate(operation._schema.arguments):
        expected = _TYPES.get(str(argument.real_type).removeprefix("Optional[").removesuffix("]"))
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        if expected is not None and value is not None and not isinstance(value, expected):
            raise ProgramError(
                f"operation {operation}: {argument.name}={str(value)[:50]} must be a {expected.__name__}, not a "
                f"{type(value).__name__}"
            )


def check_sizes(operation: Any, args: Sequence[Any]) -> None:
    """Check the sizes that a recurrent layer gets, just before it runs.

    Raises:
        ProgramError: states or weights do not fit the input.
    """
    gates = _GATES.get(operation._schema.name) if isinstance(operation, OpOverload) else None
    if gates is None:
        return
    if len(args) != 9:
        raise ProgramError(f"operation {operation}: must have all 9 arguments by position")
    x, states, weights, biases, layers, _, _, bidirectional, batch_first = args
    states = [states] if isinstance(states, Tensor) else states
    expected_states = 2 if gates == 4 else 1
    tensors = [x, *states, *weights]
    if len(states) != expected_states or not all(isinstance(t, Tensor) and t.dtype == x.dtype for t in tensors):
        raise ProgramError(f"operation {operation}: must have {expected_states} states, and tensors of one dtype")
    if x.dim() != 3 or not 1 <= layers <= _LAYERS or states[0].dim() != 3:
        raise ProgramError(f"operation {operation}: must have an input of 3 dimensions and 1 to {_LAYERS} layers")
    directions, width = 2 if bidirectional else 1, states[0].shape[2]
    state = (layers * directions, x.shape[0 if batch_first else 1], width)
    expected: list[tuple[int, ...]] = []
    for layer in range(layers):
        given = x.shape[2] if layer == 0 else directions * width
        both = [(gates * width, given), (gates * width, width)]
        expected += (both + [(gates * width,)] * (2 if biases else 0)) * directions
    shapes = [tuple(tensor.shape) for tensor in weights]
    if any(tuple(tensor.shape) != state for tensor in states) or shapes != expected:
        raise ProgramError(
            f"operation {operation}: an input of shape {tuple(x.shape)} needs states of shape {state} and weights of "
            f"shapes {str(expected)[:200]}, but has weights of shapes {str(shapes)[:200]}; remove projections"
        )
