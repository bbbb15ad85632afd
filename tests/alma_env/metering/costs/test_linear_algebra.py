"""The costs of distances, Fourier transforms, linear systems and factorisations equal their formulas, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from alma_env.metering import count
from alma_env.metering.costs.transform_formulas import complex_multiply_adds


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def positive(n: int) -> Tensor:
    root = randn(n, n)
    return root @ root.T + n * torch.eye(n)


def third(number: int) -> int:
    return -(-number // 3)


def backward(function: Callable[[], Any]) -> int:
    charge = count(function)
    return charge.total - sum(charge.forward.values())


A, S = randn(6, 6), positive(6)
TALL, WIDE, BATCH = randn(9, 4), randn(4, 9), randn(5, 6, 6) + 6 * torch.eye(6)
RIGHT = randn(6, 3)
LU = torch.linalg.lu_factor(A)
REFLECTORS = torch.geqrf(TALL)
QR = third(4 * 216)

COSTS: dict[str, tuple[Callable[[], Any], int]] = {
    "distances": (lambda: torch.cdist(randn(7, 3), randn(5, 3)), 2 * 7 * 5 * 3),
    "distances by a product": (lambda: torch.cdist(randn(40, 3), randn(50, 3)), 2 * 40 * 50 * 3),
    "distances in a batch": (lambda: torch.cdist(randn(2, 1, 7, 3), randn(4, 5, 3), p=1), 2 * 8 * 7 * 5 * 3),
    "distances of all pairs": (lambda: torch.pdist(randn(7, 3)), 2 * 21 * 3),
    "distances in float64": (lambda: torch.cdist(A.double(), A.double()), 2 * 2 * 6**3),
    "complex transform": (lambda: torch.fft.fft(randn(3, 8, dtype=torch.complex64)), 4 * 2 * 3 * 8 * 3),
    "transform of double": (lambda: torch.fft.fft(randn(8, dtype=torch.complex128)), 2 * 4 * 2 * 8 * 3),
    "transform of 12 = 2 · 2 · 3": (lambda: torch.fft.fft(randn(12, dtype=torch.complex64)), 4 * 2 * 12 * 4),
    "real transform": (lambda: torch.fft.rfft(randn(8)), 4 * 8 * 3),
    "real transform back": (lambda: torch.fft.irfft(randn(5, dtype=torch.complex64)), 4 * 8 * 3),
    "real transform of a plane": (lambda: torch.fft.rfft2(randn(4, 8)), 4 * (4 * 8 * 3 + 2 * 5 * 4 * 2)),
    "back to a real plane": (lambda: torch.fft.irfft2(randn(4, 5, dtype=torch.complex64)), 4 * (4 * 24 + 2 * 5 * 8)),
    "a transform of one number": (lambda: torch.fft.fft(randn(1, dtype=torch.complex64)), 0),
    "solve": (lambda: torch.linalg.solve(A, RIGHT), third(2 * 216) + 2 * 36 * 3),
    "solve for a vector": (lambda: torch.linalg.solve(A, RIGHT[:, 0]), third(2 * 216) + 2 * 36),
    "solve in a batch": (lambda: torch.linalg.solve(BATCH, randn(5, 6, 2)), 5 * (third(2 * 216) + 2 * 36 * 2)),
    "inverse": (lambda: torch.linalg.inv(A), 2 * 216),
    "determinant": (lambda: torch.linalg.det(A), third(2 * 216)),
    "logarithm of the determinant": (lambda: torch.linalg.slogdet(A), third(2 * 216)),
    "LU": (lambda: torch.linalg.lu(A), third(2 * 216)),
    "LU of a tall matrix": (lambda: torch.linalg.lu_factor(TALL), third(3 * 9 * 16 - 64)),
    "LU of a wide matrix": (lambda: torch.linalg.lu_factor(WIDE), third(3 * 9 * 16 - 64)),
    "LU, systems only": (lambda: torch.linalg.lu_solve(*LU, RIGHT), 2 * 36 * 3),
    "triangular": (lambda: torch.linalg.solve_triangular(A.tril(), RIGHT, upper=False), 36 * 3),
    "Cholesky": (lambda: torch.linalg.cholesky(S), 216 // 3),
    "Cholesky, systems only": (lambda: torch.cholesky_solve(RIGHT, torch.eye(6)), 2 * 36 * 3),
    "Cholesky, inverse": (lambda: torch.cholesky_inverse(torch.eye(6)), third(2 * 216)),
    "LDL": (lambda: torch.linalg.ldl_factor(S), 216 // 3),
    "QR": (lambda: torch.linalg.qr(A), 2 * QR),
    "R alone": (lambda: torch.linalg.qr(A, mode="r"), QR),
    "QR of a tall matrix": (lambda: torch.linalg.qr(TALL), 2 * third(6 * 9 * 16 - 2 * 64)),
    "complete QR": (
        lambda: torch.linalg.qr(TALL, mode="complete"),
        third(6 * 9 * 16 - 2 * 64) + third(12 * 81 * 4 - 6 * 18 * 16 + 4 * 64),
    ),
    "reflectors": (lambda: torch.geqrf(TALL), third(6 * 9 * 16 - 2 * 64)),
    "product of reflectors": (lambda: torch.linalg.householder_product(*REFLECTORS), third(6 * 9 * 16 - 2 * 64)),
    "product with reflectors": (lambda: torch.ormqr(*REFLECTORS, randn(9, 3)), 2 * 3 * 4 * (18 - 4)),
    "reflectors on the right": (lambda: torch.ormqr(*REFLECTORS, randn(3, 9), left=False), 2 * 3 * 4 * (18 - 4)),
    "least squares": (
        lambda: torch.linalg.lstsq(TALL, randn(9, 2)),
        third(6 * 9 * 16 - 2 * 64) + 2 * 2 * 4 * (18 - 4) + 16 * 2,
    ),
    "least squares by singular values": (
        lambda: torch.linalg.lstsq(TALL, randn(9, 2), driver="gelsd"),
        4 * 9 * 16 + 8 * 64 + 4 * 9 * 4 * 2,
    ),
    "symmetric eigenvectors": (lambda: torch.linalg.eigh(S), 9 * 216),
    "symmetric eigenvalues": (lambda: torch.ops.aten._linalg_eigh(S, "L", False), third(4 * 216)),
    "eigenvectors": (lambda: torch.linalg.eig(A), 27 * 216),
    "eigenvalues": (lambda: torch.ops.aten._linalg_eigvals(A), 10 * 216),
    "singular vectors": (lambda: torch.linalg.svd(WIDE, full_matrices=False), 14 * 9 * 16 + 8 * 64),
    "all singular vectors": (lambda: torch.linalg.svd(TALL), 4 * 81 * 4 + 8 * 9 * 16 + 9 * 64),
    "singular values": (lambda: torch.ops.aten._linalg_svd(TALL, False, False), third(12 * 9 * 16 - 4 * 64)),
    "pseudo-inverse": (lambda: torch.linalg.pinv(TALL), 14 * 9 * 16 + 8 * 64 + 2 * 9 * 4 * 4),
    "complex inverse": (lambda: torch.linalg.inv(A.to(torch.complex64)), 4 * 2 * 216),
}


@pytest.mark.parametrize("name", COSTS)
def test_the_cost_equals_the_formula(name: str) -> None:
    function, flops = COSTS[name]
    assert count(function).total == flops


def test_gradients_are_charged() -> None:
    x, y = randn(7, 3).requires_grad_(), randn(5, 3).requires_grad_()
    assert backward(lambda: torch.cdist(x, y).sum().backward()) == 2 * (2 * 7 * 5 * 3)
    z = randn(7, 3).requires_grad_()
    assert backward(lambda: torch.pdist(z).sum().backward()) == 2 * (7 * 6 * 3)
    for function in (torch.linalg.inv, torch.linalg.qr, torch.linalg.eigh, torch.fft.fft, torch.linalg.slogdet):
        a = (randn(6, 6) + randn(6, 6).T).requires_grad_()

        def both(function: Callable[[Tensor], Any] = function, a: Tensor = a) -> None:
            out = function(a)
            parts = [out] if isinstance(out, Tensor) else list(out)
            torch.stack([part.abs().sum() for part in parts]).sum().backward()

        assert backward(both) > 0, function


def test_a_transform_of_a_large_prime_length_takes_the_cheaper_algorithm() -> None:
    assert complex_multiply_adds(7) == 7 * 6
    power = 32_768  # at least 2 · 10007 − 1
    assert complex_multiply_adds(10_007) == 3 * power * 15 + power + 2 * 10_007 < 10_007 * 10_006
    for length in range(1, 200):
        assert complex_multiply_adds(length) >= length * (length.bit_length() - 1) * (length > 1)


# --- no operation multiplies matrices below the price of a matrix product ---


def hidden_products(x: Tensor, y: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Programs that compute x @ y, (m, k) @ (k, n), inside of another operation."""
    (m, k), n = x.shape, y.shape[1]
    unit = torch.eye(m + k + n)
    unit[:m, m : m + k], unit[m : m + k, m + k :] = -x, -y
    lower = torch.eye(k + m)
    lower[k:, :k] = -x
    sides = torch.cat([y, torch.zeros(m, n)])
    squares = (x * x).sum(1)[:, None] + (y * y).sum(0)
    zeros, ones = torch.zeros(m, n), torch.ones(m, k)
    return {
        "inverse": lambda: torch.linalg.inv(unit)[:m, m + k :],
        "triangular system": lambda: torch.linalg.solve_triangular(lower, sides, upper=False)[k:],
        "linear system": lambda: torch.linalg.solve(lower, sides)[k:],
        "LU, systems only": lambda: torch.linalg.lu_solve(lower, torch.arange(1, m + k + 1).int(), sides)[k:],
        "least squares": lambda: torch.linalg.lstsq(lower, sides)[0][k:],
        "pseudo-inverse": lambda: torch.linalg.pinv(unit)[:m, m + k :],
        "distances": lambda: (squares - torch.cdist(x, y.T.contiguous()) ** 2) / 2,
        "gradient of distances": lambda: -torch.ops.aten._cdist_backward(x, zeros, y, 2.0, ones),
    }


@pytest.mark.parametrize("sizes", [(6, 6, 6), (2, 9, 3), (9, 1, 8), (3, 8, 1)], ids=str)
@pytest.mark.parametrize("name", hidden_products(torch.zeros(1, 1), torch.zeros(1, 1)))
def test_a_hidden_matrix_product_costs_no_less_than_a_plain_one(name: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    x, y = 0.1 * randn(m, k), 0.1 * randn(k, n)
    program = hidden_products(x, y)[name]
    torch.testing.assert_close(program(), x @ y, atol=1e-4, rtol=1e-3)
    assert count(program).total >= 2 * m * k * n


@pytest.mark.parametrize("options", [{}, {"rcond": 1e-3}, {"atol": 1e-3, "rtol": 0.0}, {"rcond": torch.tensor(1e-3)}])
@pytest.mark.parametrize("inference", [False, True])
def test_a_pseudo_inverse_costs_the_same_with_every_tolerance(options: dict[str, Any], inference: bool) -> None:
    a = torch.rand(5, 3)
    with torch.inference_mode(inference):
        assert count(torch.linalg.pinv, a, **options).total == 14 * 5 * 9 + 8 * 27 + 2 * 5 * 3 * 3
