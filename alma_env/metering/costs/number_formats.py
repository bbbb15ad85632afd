"""What a product costs by number format: one FLOP is an operation on numbers of up to 32 bits.

A product of wider numbers can hold several products: three products of bytes fit into one product of float64 or int64.
A product of two complex numbers is four real products. Formats of fewer than 32 bits cost as much as float32, and
integers cost as much as floats of the same width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_BITS = 32  # of a number whose multiply-add is 2 FLOPs
_SINGLE = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.int32, torch.bool})


def format_factor(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return by how much the FLOPs of a call with these arguments are multiplied.

    Complex times complex × 4, complex times real × 2; numbers of more than 32 bits × bits / 32. The widest operand
    counts. Beside floating-point operands, integers are indices and lengths, and do not count.

    >>> format_factor((torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)), {})
    2
    """
    dtypes = [tensor.dtype for tensor in _operands((*args, *kwargs.values())) if tensor.dim()]
    if _SINGLE.issuperset(dtypes):
        return 1
    floating = [dtype for dtype in dtypes if dtype.is_floating_point]
    complexes = [dtype for dtype in dtypes if dtype.is_complex]
    width = max(_width(dtype) for dtype in complexes + floating or dtypes)
    if not complexes:
        return width
    return width * (2 if floating and len(complexes) == 1 else 4)


def _operands(values: Iterable[Any]) -> list[Tensor]:
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, Tensor)]
    return found


def _width(dtype: torch.dtype) -> int:
    bits = 8 * dtype.itemsize // (2 if dtype.is_complex else 1)
    return max(1, bits // _BITS)
