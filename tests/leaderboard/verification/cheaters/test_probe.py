"""Programs that behave differently where they are measured: in the order of the test set, or in the probe."""

from __future__ import annotations

import pytest
import torch

from leaderboard.program.interpreter import ProgramModule
from leaderboard.verification.evaluator import Evaluator

from ...hand_written_programs import FLAT, LINEAR, of, program
from .gallery import attack, case
from .judged import findings

W = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
COUNT = ["n", "aten.sym_size.int", [of("x"), 0], {}]
# 1 for the batch in which the whole test set of 397 digits is, 0 for the probe.
WHOLE = [COUNT, ["whole", "operator.eq", [of("n"), 397], {}], ["times", "operator.mul", [of("whole"), 200], {}]]
PLUS_ONE = ["many", "operator.add", [of("times"), 1], {}]


def batch_mean():
    mean = [
        ["mean", "aten.mean.dim", [of("real"), [0]], {}],
        ["centred", "aten.sub.Tensor", [of("real"), of("mean")], {}],
    ]
    return program([*FLAT, *mean, ["logits", "aten.mm.default", [of("centred"), of("w")], {}]], {"w": W})


def batch_mean_if_all_differ():
    """Centres a batch only if no example occurs twice in it."""
    nodes = [
        *FLAT,
        ["left", "aten.unsqueeze.default", [of("real"), 1], {}],
        ["same", "aten.eq.Tensor", [of("left"), of("real")], {}],
        ["equal", "aten.all.dim", [of("same"), 2], {}],
        ["count", "aten.sum.default", [of("equal")], {}],
        ["differ", "aten.le.Scalar", [of("count"), 397], {}],
        ["mean", "aten.mean.dim", [of("real"), [0]], {}],
        ["shift", "aten.mul.Tensor", [of("mean"), of("differ")], {}],
        ["centred", "aten.sub.Tensor", [of("real"), of("shift")], {}],
        ["logits", "aten.mm.default", [of("centred"), of("w")], {}],
    ]
    return program(nodes, {"w": W})


def neighbours():
    """Averages each example with the example before it in the batch."""
    nodes = [
        *FLAT,
        ["rolled", "aten.roll.default", [of("real"), [1], [0]], {}],
        ["both", "aten.add.Tensor", [of("real"), of("rolled")], {}],
        ["logits", "aten.mm.default", [of("both"), of("w")], {}],
    ]
    return program(nodes, {"w": W})


def ranks():
    """Answers with the rank of each logit among the batch."""
    order = [
        ["order", "aten.argsort.default", [of("logits"), 0], {}],
        ["back", "aten.argsort.default", [of("order"), 0], {}],
    ]
    return program([*LINEAR, *order, ["ranks", "aten.mul.Scalar", [of("back"), 1.0], {}]], {"w": W}, output="ranks")


@pytest.mark.parametrize(
    "make",
    [
        case("centres the test set by its own mean", "finding `batch-dependent`", batch_mean),
        case("does so only in a batch without equal examples", "finding `batch-dependent`", batch_mean_if_all_differ),
        case("mixes each example with its neighbour in the batch", "finding `batch-dependent`", neighbours),
        case("answers with ranks within the batch", "finding `batch-dependent`", ranks),
    ],
)
def test_answers_that_depend_on_other_examples_are_found(env, make):
    assert "batch-dependent" in findings(env, make())


def elements_in_the_test_set():
    """Many free elements, but only in the batch with the whole test set."""
    nodes = [
        *LINEAR,
        *WHOLE,
        PLUS_ONE,
        ["wide", "aten.repeat.default", [of("logits"), [1, of("many")]], {}],
        ["squares", "aten.mul.Tensor", [of("wide"), of("wide")], {}],
        ["zero", "aten.mul.Scalar", [of("squares"), 0.0], {}],
        ["sums", "aten.sum.dim_IntList", [of("zero"), [1], True], {}],
        ["out", "aten.add.Tensor", [of("logits"), of("sums")], {}],
    ]
    return program(nodes, {"w": W}, output="out")


def flops_in_the_probe():
    """A product that is wide only in batches without the whole test set."""
    nodes = [
        *LINEAR,
        COUNT,
        ["part", "operator.ne", [of("n"), 397], {}],
        ["times", "operator.mul", [of("part"), 200], {}],
        PLUS_ONE,
        ["wide", "aten.repeat.default", [of("w"), [1, of("many")]], {}],
        ["products", "aten.mm.default", [of("real"), of("wide")], {}],
        ["logits2", "aten.narrow.default", [of("products"), 1, 0, 10], {}],
    ]
    return program(nodes, {"w": W}, output="logits2")


def flops_by_the_first_example(env):
    """Chooses no example for a product if the first example of the batch is the first test example."""
    first = float(env.data.test_x[0].sum())
    nodes = [
        *LINEAR,
        ["row", "aten.select.int", [of("real"), 0, 0], {}],
        ["sum", "aten.sum.default", [of("row")], {}],
        ["known", "aten.ne.Scalar", [of("sum"), first], {}],
        ["ones", "aten.ones_like.default", [of("real")], {}],
        ["flags", "aten.mul.Tensor", [of("ones"), of("known")], {}],
        ["flag", "aten.select.int", [of("flags"), 1, 0], {}],
        ["places", "aten.nonzero.default", [of("flag")], {}],
        ["column", "aten.select.int", [of("places"), 1, 0], {}],
        ["chosen", "aten.index_select.default", [of("real"), 0, of("column")], {}],
        ["wide", "aten.repeat.default", [of("w"), [1, 30]], {}],
        ["products", "aten.mm.default", [of("chosen"), of("wide")], {}],
        ["short", "aten.narrow.default", [of("products"), 1, 0, 10], {}],
        ["out", "aten.index_add.default", [of("logits"), 0, of("column"), of("short")], {}],
    ]
    return program(nodes, {"w": W}, output="out")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        case(
            "passes elements through free operations only on the whole test set",
            "finding `uneven`",
            lambda env: elements_in_the_test_set(),
            "uneven",
        ),
        case("has FLOPs only in the probe", "finding `uneven`", lambda env: flops_in_the_probe(), "uneven"),
        case(
            "has FLOPs unless the batch begins with the first test example",
            "finding `uneven`",
            flops_by_the_first_example,
            "uneven",
        ),
    ],
)
def test_costs_that_differ_between_test_set_and_probe_are_found(env, make, expected):
    assert expected in findings(env, make(env))


@attack("recognises the probe by examples that occur twice, or by its order", "no example occurs twice; a random order")
def test_the_probe_has_different_examples_in_a_random_order(env, monkeypatch):
    evaluator = Evaluator(env.data.test_x, 10, 500)
    seen = []
    forward = ProgramModule.forward

    def recorded(self, x):
        seen.append(x.clone())
        return forward(self, x)

    monkeypatch.setattr(ProgramModule, "forward", recorded)
    for _ in range(3):
        evaluator.answer(*program())
    parts = [x.flatten(1) for x in seen if len(x) < len(env.data.test_x)]
    probes, again = parts[::2], parts[1::2]  # each is answered once more with rounded parameters
    assert len(probes) == 3
    assert all(map(torch.equal, probes, again))
    kept = torch.from_numpy(env.data.test_x.reshape(397, 64).copy())
    assert len(kept.unique(dim=0)) == len(kept)
    assert all(len(rows.unique(dim=0)) == len(rows) for rows in probes)
    assert not any(torch.equal(rows, kept[: len(rows)]) for rows in probes)
