"""The formulas of linear systems and matrix factorisations: the FLOPs of the standard dense algorithms, from shapes.

The counts are those of Golub and Van Loan, *Matrix Computations* (4th edition): sections 3.1 to 3.4 (triangular
systems, LU), 4.2 (Cholesky), 5.2 (Householder QR), 7.5 and 8.3 (eigenvalues), 8.6 (singular values). They count an
addition and a product as one FLOP each, so that a multiply-add is 2 FLOPs, as in `cost_formulas`. An iterative
algorithm has the book's typical number of iterations, whatever the values are. A fraction is rounded up.

In the formulas A is (…, m, n); the leading axes are a batch of matrices. docs/metering.md has the table.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from alma_env.metering.costs.cost_formulas import Formula, by_qualified_name


def _thirds(count: int) -> int:
    """Return a third of a number, rounded up."""
    return -(-count // 3)


def _batch(a: Tensor) -> int:
    return a.shape[:-2].numel()


# --- one matrix: A (m, n), p = max(m, n), q = min(m, n) ---


def _lu(m: int, n: int) -> int:
    p, q = max(m, n), min(m, n)
    return _thirds(3 * p * q * q - q**3)  # p q² − q³/3, and 2n³/3 of a square matrix


def _householder_qr(m: int, n: int) -> int:
    p, q = max(m, n), min(m, n)
    return _thirds(6 * p * q * q - 2 * q**3)  # 2 p q² − 2q³/3, in factored form


def _form_q(m: int, columns: int, reflectors: int) -> int:
    """Return the FLOPs of the first columns of Q (m, m), a product of Householder reflectors."""
    k = reflectors
    return _thirds(12 * m * columns * k - 6 * (m + columns) * k * k + 4 * k**3)


def _apply_q(length: int, reflectors: int, vectors: int) -> int:
    """Return the FLOPs of the product of Q, as Householder reflectors, with vectors of this length."""
    return 2 * vectors * reflectors * (2 * length - reflectors)


def _thin_svd(m: int, n: int) -> int:
    p, q = max(m, n), min(m, n)
    return 14 * p * q * q + 8 * q**3


# --- operations ---


def _factor_lu(out: Any, a: Tensor, *rest: Any, **options: Any) -> int:
    return _batch(a) * _lu(*a.shape[-2:])


def _solve(out: tuple[Tensor, ...], a: Tensor, *rest: Any, **options: Any) -> int:
    # LU, and two triangular systems for each right-hand side. A may be repeated for a larger batch of them.
    solution, factors, n = out[0], out[1], a.shape[-1]
    return _batch(factors) * _lu(n, n) + 2 * n * solution.numel()


def _inverse(out: Any, a: Tensor, *rest: Any, **options: Any) -> int:
    return 2 * a.numel() * a.shape[-1]


def _two_triangular_systems(out: Tensor, factors: Tensor, *rest: Any, **options: Any) -> int:
    return 2 * factors.shape[-1] * out.numel()


def _two_triangular_systems_after_sides(out: Tensor, sides: Tensor, factors: Tensor, *rest: Any, **options: Any) -> int:
    return _two_triangular_systems(out, factors)


def _triangular_system(out: Tensor, a: Tensor, *rest: Any, **options: Any) -> int:
    return a.shape[-1] * out.numel()


def _triangular_system_after_sides(out: Any, sides: Tensor, a: Tensor, *rest: Any, **options: Any) -> int:
    return _triangular_system(out[0], a)


def _cholesky(out: Any, a: Tensor, *rest: Any, **options: Any) -> int:
    return _thirds(a.numel() * a.shape[-1])


def _cholesky_inverse(out: Any, factor: Tensor, *rest: Any, **options: Any) -> int:
    return _thirds(2 * factor.numel() * factor.shape[-1])


def _qr(out: Any, a: Tensor, mode: str = "reduced", **options: Any) -> int:
    m, n = a.shape[-2:]
    reflectors = min(m, n)
    columns = {"r": 0, "reduced": reflectors, "complete": m}[mode]
    return _batch(a) * (_householder_qr(m, n) + (_form_q(m, columns, reflectors) if columns else 0))


def _reflectors(out: Any, a: Tensor, *rest: Any, **options: Any) -> int:
    return _batch(a) * _householder_qr(*a.shape[-2:])


def _householder_product(out: Any, a: Tensor, tau: Tensor, **options: Any) -> int:
    return _batch(a) * _form_q(a.shape[-2], a.shape[-1], tau.shape[-1])


def _product_with_q(
    out: Any, a: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False, **options: Any
) -> int:
    length, vectors = other.shape[-2:] if left else (other.shape[-1], other.shape[-2])
    return _batch(other) * _apply_q(length, tau.shape[-1], vectors)


def _least_squares(
    out: tuple[Tensor, ...], a: Tensor, b: Tensor, rcond: Any = None, *, driver: str | None = None, **options: Any
) -> int:
    m, n = a.shape[-2:]
    p, q = max(m, n), min(m, n)
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    k = 1 if vector else b.shape[-1]
    matrices = max(_batch(a), out[0].numel() // max(n * k, 1))
    if driver in ("gelsd", "gelss"):  # by singular values
        return matrices * (4 * p * q * q + 8 * q**3 + 4 * p * q * k)
    return matrices * (_householder_qr(m, n) + _apply_q(p, q, k) + q * q * k)


def _eigh(out: Any, a: Tensor, uplo: str = "L", compute_v: bool = True, **options: Any) -> int:
    n = a.shape[-1]
    return _batch(a) * (9 * n**3 if compute_v else _thirds(4 * n**3))


def _eigenvalues(out: Any, a: Tensor, **options: Any) -> int:
    return 10 * a.numel() * a.shape[-1]


def _eig(out: Any, a: Tensor, **options: Any) -> int:
    return (25 + 2) * a.numel() * a.shape[-1]  # the Schur form, and its vectors times those of the triangular matrix


def _svd(out: Any, a: Tensor, full_matrices: bool = False, compute_uv: bool = True, **options: Any) -> int:
    m, n = a.shape[-2:]
    p, q = max(m, n), min(m, n)
    if not compute_uv:
        return _batch(a) * _thirds(12 * p * q * q - 4 * q**3)
    return _batch(a) * (4 * p * p * q + 8 * p * q * q + 9 * q**3 if full_matrices else _thin_svd(m, n))


def _pseudo_inverse(out: Any, a: Tensor, rcond: Any = None, hermitian: bool = False, **options: Any) -> int:
    m, n = a.shape[-2:]
    factors = 9 * n**3 if hermitian else _thin_svd(m, n)
    return _batch(a) * (factors + 2 * m * n * min(m, n))


FORMULAS: dict[str, Formula] = by_qualified_name(
    {
        _factor_lu: "linalg_lu_factor_ex linalg_lu _linalg_det _linalg_slogdet",
        _solve: "_linalg_solve_ex",
        _inverse: "linalg_inv_ex",
        _two_triangular_systems: "linalg_lu_solve linalg_ldl_solve",
        _two_triangular_systems_after_sides: "cholesky_solve _cholesky_solve_helper",
        _triangular_system: "linalg_solve_triangular",
        _triangular_system_after_sides: "triangular_solve",
        _cholesky: "cholesky linalg_cholesky_ex linalg_ldl_factor_ex",
        _cholesky_inverse: "cholesky_inverse",
        _qr: "linalg_qr",
        _reflectors: "geqrf",
        _householder_product: "linalg_householder_product",
        _product_with_q: "ormqr",
        _least_squares: "linalg_lstsq",
        _eigh: "_linalg_eigh",
        _eigenvalues: "_linalg_eigvals",
        _eig: "linalg_eig",
        _svd: "_linalg_svd",
        _pseudo_inverse: "linalg_pinv",
    }
)
