"""The formulas of distances between rows, and of fast Fourier transforms.

A distance between two rows of M numbers costs M multiply-adds, one for each squared difference, whatever the norm and
whatever the kernel.

A Fourier transform of length N = p₁ · p₂ · … (primes) takes the stages of Cooley and Tukey (1965): stage i combines pᵢ
numbers into each of N results, with pᵢ − 1 complex multiply-adds. For lengths with large primes the algorithm of
Bluestein (1970) is cheaper: three transforms of the next power of two above 2N − 2, and the products between them. A
transform of real numbers, or to real numbers, is half of a complex one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import Tensor

from alma_env.metering.costs.cost_formulas import Formula, by_qualified_name, multiply_adds

_OF_A_COMPLEX_PRODUCT = 4  # real products; the number format charges them where an operand is complex


# --- distances ---


def _distances(out: Tensor, x: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(out.numel() * x.shape[-1])  # one distance per element of the output


def _distances_backward(out: Tensor, grad: Tensor, x: Tensor, other: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(out.numel() * other.shape[-2])  # the gradient of x: each row with every row of the other


def _distances_of_pairs_backward(out: Tensor, grad: Tensor, x: Tensor, *rest: Any, **options: Any) -> int:
    return multiply_adds(out.numel() * max(x.shape[-2] - 1, 0))  # each row with every other row


# --- Fourier transforms ---


@cache
def complex_multiply_adds(length: int) -> int:
    """Return the complex multiply-adds of one transform.

    >>> complex_multiply_adds(8), complex_multiply_adds(12), complex_multiply_adds(1)
    (24, 48, 0)
    """
    power = 1 << (2 * length - 2).bit_length()  # at least 2 length − 1
    bluestein = 3 * power * (power.bit_length() - 1) + power + 2 * length
    return min(length * _sum_of_stages(length), bluestein)


def _sum_of_stages(length: int) -> int:
    total, rest, prime = 0, length, 2
    while prime * prime <= rest:
        while rest % prime == 0:
            total, rest = total + prime - 1, rest // prime
        prime += 1
    return total + max(rest - 1, 0)


def _along(elements: int, lengths: Sequence[int]) -> int:
    """Return the complex multiply-adds of transforms of these lengths, one after another, on an array."""
    return sum(elements // length * complex_multiply_adds(length) for length in lengths if elements)


def _complex(out: Any, x: Tensor, dim: Sequence[int], *rest: Any, **options: Any) -> int:
    return multiply_adds(_along(x.numel(), [x.shape[axis] for axis in dim]))


def _from_real(out: Any, x: Tensor, dim: Sequence[int], *rest: Any, **options: Any) -> int:
    *others, last = [x.shape[axis] for axis in dim]
    half = x.numel() // last * (last // 2 + 1) if last else 0  # the numbers that are not conjugates of others
    real_products = _OF_A_COMPLEX_PRODUCT * (_along(x.numel(), [last]) + 2 * _along(half, others))
    return real_products  # multiply_adds(…) / 2 of the last axis


def _to_real(out: Tensor, x: Tensor, dim: Sequence[int], norm: int, last: int, **options: Any) -> int:
    others = [x.shape[axis] for axis in dim[:-1]]
    return _along(out.numel(), [last]) + multiply_adds(_along(x.numel(), others))


FORMULAS: dict[str, Formula] = by_qualified_name(
    {
        _distances: "_cdist_forward _euclidean_dist _pdist_forward",
        _distances_backward: "_cdist_backward",
        _distances_of_pairs_backward: "_pdist_backward",
        _complex: "_fft_c2c",
        _from_real: "_fft_r2c",
        _to_real: "_fft_c2r",
    }
)
