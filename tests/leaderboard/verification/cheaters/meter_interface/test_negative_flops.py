"""The meter's interface: negative FLOPs, which would take back a charge."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from alma_env.metering import Meter, cost_varies_with, count, count_once
from alma_env.metering.costs import cost_table
from alma_env.metering.tally import Tally

from ..gallery import attack, case
from .conftest import PRODUCT, operands


class Odd(int):
    """An integer that says that it is not negative."""

    def __lt__(self, other):
        return False

    def __index__(self):
        return 1

    __int__ = __index__


def charge(meter, flops):
    meter.charge((("training", flops, 0),))


def charge_backward(meter, flops):
    meter.charge(((None, 0, flops),))


def charge_inside(meter, flops):
    with meter:
        meter.charge((("training", 0, flops),))


def include(meter, flops):
    meter.include({"counted": [["training", flops, 0]], "declared": {}, "reasons": []})


def include_declared(meter, flops):
    meter.include({"counted": [], "declared": {"training": flops}, "reasons": ["x"]})


def declare(meter, flops):
    meter.declare(flops, reason="x")


def count_into(meter, flops):
    tally = Tally("training")
    tally.current[0] = flops
    with meter, meter.count_into(tally):
        pass


def set_total(meter, flops):
    meter.total = flops


def load(meter, flops):
    state = {**meter.state_dict(), "counted": [["training", flops, 0]]}
    meter.load_state_dict(state)


def load_total(meter, flops):
    meter.load_state_dict({**meter.state_dict(), "total": flops})


@pytest.mark.parametrize("take_back", [
    case("charges negative FLOPs", "refused", charge),
    case("charges negative FLOPs of the backward pass", "refused", charge_backward),
    case("charges negative FLOPs in a metered block", "refused", charge_inside),
    case("includes another meter's negative FLOPs", "refused", include),
    case("includes negative declared FLOPs", "refused", include_declared),
    case("declares negative FLOPs", "refused", declare),
    case("counts into a tally of negative FLOPs", "refused", count_into),
    case("sets the meter's total after a charge", "refused", set_total),
    case("loads a state of negative FLOPs", "refused", load),
    case("loads a state whose total is less than its charges", "refused", load_total),
])  # fmt: skip
@pytest.mark.parametrize("flops", [-1, Odd(-1)], ids=["negative", "a subclass of int that hides its sign"])
def test_flops_cannot_be_taken_back(take_back, flops):
    meter = Meter()
    with meter:
        torch.mm(*operands())
    with pytest.raises(ValueError, match="negative|already"):
        take_back(meter, flops)
    assert meter.total in {PRODUCT, 0}  # a state that is refused leaves an empty meter
    assert min(meter.take().flops.values(), default=0) >= 0


@pytest.mark.parametrize("flops", [1.5, True, "1", None])
def test_flops_are_whole_numbers(flops):
    for way in (charge, include, include_declared, declare):
        with pytest.raises(TypeError, match="must be an int"):
            way(Meter(), flops)


@attack("registers a formula that returns a negative number as another", "refused")
def test_a_formula_cannot_hide_its_sign(product):
    cost_table.register_cost(product, lambda out, a, b: Odd(-1_000_000))
    with pytest.raises(ValueError, match="must be a non-negative int"):
        count(product, *operands())


class Number:
    n = 0


@attack("reports a number that makes the cost of a repeated step negative", "refused; its results need declared FLOPs")
def test_a_reported_number_cannot_make_a_step_negative():
    weight = nn.Parameter(torch.zeros(4, 6))

    def step(target, number):
        cost_varies_with(number.n)
        target.data += torch.ones(4, number.n or 1) @ torch.ones(number.n or 1, 6) if number.n > 0 else 1

    counted = count_once(step)
    meter = Meter()
    number = Number()
    with meter:
        for number.n in (1, 2, 3):
            counted(weight, number)
    before = meter.total
    number.n = -(10**6)
    with meter:
        with pytest.raises(ValueError, match="negative"):
            counted(weight, number)
        product = torch.ones(2, 2) @ torch.ones(2, 2)  # counted work in the same block does not explain the weights
    assert meter.total == before + 2 * product.numel() * 2
    assert "without a charge" in meter.provenance(weight).foreign
