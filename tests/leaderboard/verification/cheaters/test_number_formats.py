"""Number formats: several products in one product of wide or complex numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import alma_env
from alma_env.metering import count, count_once
from alma_env.metering.costs import cost_table

from .gallery import attack, case

M, K, N = 4, 5, 6
PLAIN = 2 * M * K * N


def matrices(dtype, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 8, shape, generator=generator).to(dtype) for shape in ((M, K), (K, N))]


@pytest.mark.parametrize("dtype", [
    case("packs three products into one product of float64", "twice the charge", torch.float64),
    case("packs three products into one product of int64", "twice the charge", torch.int64),
])  # fmt: skip
def test_three_products_in_one_product_of_64_bits(dtype):
    b = matrices(dtype)[1]
    several = [matrices(dtype, seed=seed)[0] for seed in range(3)]
    packed = sum(a * 2 ** (12 * i) for i, a in enumerate(several))
    found = (packed @ b).long()
    for i, a in enumerate(several):
        assert torch.equal(found >> 12 * i & 4095, (a @ b).long())
    assert count(torch.mm, packed, b).total == 2 * PLAIN


@attack("multiplies two real matrices as the parts of one complex matrix", "the charge of four real products")
def test_complex_numbers_cost_four_real_products():
    a, b = matrices(torch.float32)
    other = matrices(torch.float32, seed=1)[0]
    found = torch.complex(a, other) @ torch.complex(b, torch.zeros_like(b))
    assert torch.equal(found.real, a @ b)
    assert torch.equal(found.imag, other @ b)
    assert count(lambda: torch.complex(a, other) @ torch.complex(b, torch.zeros_like(b))).total == 4 * PLAIN


@pytest.mark.parametrize(("dtype", "factor"), [
    case("multiplies complex numbers of 64 bits", "4 times the charge", torch.complex64, 4),
    case("multiplies complex numbers of 128 bits", "8 times the charge", torch.complex128, 8),
    case("multiplies floats of 64 bits", "twice the charge", torch.float64, 2),
    case("multiplies integers of 64 bits", "twice the charge", torch.int64, 2),
    case("multiplies integers of 32 bits", "the charge of float32", torch.int32, 1),
    case("multiplies bytes", "the charge of float32", torch.int8, 1),
    case("multiplies floats of 16 bits", "the charge of float32", torch.bfloat16, 1),
])  # fmt: skip
@pytest.mark.parametrize("form", ["mm", "bmm", "mv", "addmm", "baddbmm", "einsum", "out"])
def test_the_format_of_a_matrix_product_is_charged(dtype, factor, form):
    a, b = matrices(dtype)
    forms = {
        "mm": lambda: a @ b,
        "bmm": lambda: a.expand(3, M, K) @ b.expand(3, K, N),
        "mv": lambda: a @ b[:, 0],
        "addmm": lambda: torch.addmm(torch.zeros(M, N, dtype=dtype), a, b),
        "baddbmm": lambda: torch.zeros(3, M, N, dtype=dtype).baddbmm_(a.expand(3, M, K), b.expand(3, K, N)),
        "einsum": lambda: torch.einsum("mk,kn->mn", a, b),
        "out": lambda: torch.mm(a, b, out=torch.zeros(M, N, dtype=dtype)),
    }
    expected = {"bmm": 3 * PLAIN, "baddbmm": 3 * PLAIN, "mv": 2 * M * K}.get(form, PLAIN)
    assert count(forms[form]).total == factor * expected


def _convolution(dtype):
    return count(F.conv2d, torch.ones(2, 3, 5, 5, dtype=dtype), torch.ones(4, 3, 3, 3, dtype=dtype))


def _attention(dtype):
    x = torch.rand(2, 3, 4, 8, dtype=dtype)
    return count(F.scaled_dot_product_attention, x, x, x)


def _recurrent(dtype):
    return count(nn.LSTM(3, 4).to(dtype), torch.rand(5, 2, 3, dtype=dtype))


def _gradients(dtype):
    layer = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(9, 2)).to(dtype)
    x = torch.rand(2, 2, 4, dtype=dtype, requires_grad=True)
    return count(lambda: layer(x).sum().backward())


def _sparse(dtype):
    return count(torch.mm, torch.eye(4, dtype=dtype).to_sparse(), torch.ones(4, 3, dtype=dtype))


def _bag(dtype):
    weights, table = torch.rand(6, dtype=dtype), torch.rand(5, 3, dtype=dtype)
    lookups, starts = torch.arange(6) % 5, torch.tensor([0, 3])
    return count(lambda: F.embedding_bag(lookups, table, starts, mode="sum", per_sample_weights=weights))


def _bilinear(dtype):
    return count(nn.Bilinear(3, 4, 2).to(dtype), torch.rand(5, 3, dtype=dtype), torch.rand(5, 4, dtype=dtype))


def _counted_once(dtype):
    a, b = matrices(dtype)
    product = count_once(torch.mm)
    return count(lambda: [product(a, b) for _ in range(3)])


@pytest.mark.parametrize("work", [
    case("convolves in float64", "twice the charge", _convolution),
    case("attends in float64", "twice the charge", _attention),
    case("runs a recurrent layer in float64", "twice the charge", _recurrent),
    case("trains in float64", "twice the charge, forward and backward", _gradients),
    case("multiplies sparse matrices in float64", "twice the charge", _sparse),
    case("looks up weighted rows in float64, by integers of 64 bits", "twice the charge", _bag),
    case("multiplies three operands in float64", "twice the charge", _bilinear),
    case("counts a product of float64 once and repeats it", "twice the charge of each call", _counted_once),
])  # fmt: skip
def test_every_formula_is_charged_by_format(work):
    single, double = work(torch.float32), work(torch.float64)
    assert double.total == 2 * single.total > 0
    assert sum(double.forward.values()) == 2 * sum(single.forward.values())


@attack("deploys a predictor that multiplies in float64", "twice the FLOPs of inference")
def test_inference_is_charged_by_format():
    def inference(dtype):
        env = alma_env.make("Digits-ALMA-v0", ticks=2)
        layer = nn.Linear(64, 10).to(dtype)
        model = nn.Sequential(nn.Flatten(), layer)
        model.register_forward_pre_hook(lambda module, inputs: (inputs[0].to(dtype),))
        env.reset(seed=0, options={"predictor": model})
        return env.ledger[0].inference_flops

    assert inference(torch.float64) == 2 * inference(torch.float32) == 2 * 2 * 640


@attack("registers the cost of an operation of its own and runs it on float64", "twice the registered cost")
def test_a_registered_cost_is_charged_by_format():
    exponential = torch.ops.aten.linalg_matrix_exp
    cost_table.register_cost(exponential, lambda out, a: 7)
    try:
        assert count(torch.linalg.matrix_exp, torch.rand(3, 3)).total == 7
        assert count(torch.linalg.matrix_exp, torch.rand(3, 3, dtype=torch.float64)).total == 14
        assert count(torch.linalg.matrix_exp, torch.rand(3, 3, dtype=torch.complex64)).total == 28
    finally:
        cost_table.unregister(exponential)


@attack("puts an operand of few bits beside one of many", "the widest operand counts")
def test_the_widest_operand_counts():
    product = torch.ops.aten.mm.default

    def formula(out, a, b):
        return 10

    def flops(*dtypes):
        return cost_table.evaluate(formula, product, [torch.zeros(2, 2, dtype=dtype) for dtype in dtypes], {}, None)

    assert Fraction(flops(torch.float64, torch.int8), flops(torch.float32, torch.int8)) == 2
    assert flops(torch.complex64, torch.float32) == 20  # complex times real
    assert flops(torch.complex64, torch.float64) == 40
    assert flops(torch.complex64, torch.complex64) == 40
    assert flops(torch.float32, torch.int64) == 10  # an index
    assert flops(torch.int64, torch.int8) == 20
