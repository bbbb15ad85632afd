"""Round the parameters of a program: each keeps so many bits that an honest answer stays the same.

Mem counts a parameter of 32 bits as one number. A program can pack several short numbers into it, and unpack them
together with the input, so that no constant tensor shows them. The packed numbers do not survive the rounding.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from leaderboard.program.graph import Program

KEPT_BITS = 10  # of a number; bfloat16 has 8
KEPT_PLACES = 20  # of the binary places of the largest number in a tensor: exponents can hold numbers, too


def with_rounded_parameters(program: Program) -> Program:
    """Return the program with `KEPT_BITS` significant bits of each parameter; buffers stay."""
    tensors = {
        name: rounded(tensor) if program.kinds[name] == "parameter" else tensor
        for name, tensor in program.tensors.items()
    }
    return replace(program, tensors=tensors)


def rounded(tensor: Tensor) -> Tensor:
    """Return a tensor whose numbers have at most `KEPT_BITS` significant bits, the last one not below `KEPT_PLACES`.

    >>> rounded(torch.tensor([1023, 1025, -70001]))
    tensor([  1023,   1024, -70016])
    """
    if tensor.dtype is torch.bool:
        return tensor
    mantissa, exponent = torch.frexp(tensor.double())
    lowest = torch.frexp(tensor.double().abs().max())[1] - KEPT_PLACES
    last = torch.maximum(exponent - KEPT_BITS, lowest)
    kept = torch.ldexp(torch.round(torch.ldexp(mantissa, exponent - last)), last)
    if not tensor.is_floating_point():
        limits = torch.iinfo(tensor.dtype)
        kept = kept.clamp(limits.min, limits.max if limits.bits < 64 else 2.0**62)
    return kept.to(tensor.dtype)
