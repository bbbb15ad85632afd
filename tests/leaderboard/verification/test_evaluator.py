"""The evaluator refuses invalid programs, reveals no test data, and measures what the audit needs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from leaderboard.errors import ProgramError
from leaderboard.verification.evaluator import UNSCORABLE, Evaluator

from ..hand_written_programs import FLAT, LINEAR, of, program
from .cheaters.judged import exported, findings


class Floats(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
        self.network = nn.Sequential(nn.Flatten(), *layers)

    def forward(self, x):
        return self.network(x / 16)


@pytest.fixture
def evaluator(env):
    return Evaluator(env.data.test_x, 10, 100)


def test_names_and_depths_that_would_crash_the_evaluator_are_refused(evaluator):
    for name in ("training", "_parameters", "forward"):
        nodes = [*FLAT, ["logits", "aten.mm.default", [of("real"), of(name)], {}]]
        with pytest.raises(ProgramError, match="nn.Module has an attribute of this name"):
            evaluator.answer(*program(nodes, {name: torch.zeros(64, 10)}))
    deep: list = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ProgramError, match="nested lists"):
        evaluator.answer(*program([*LINEAR, ["deep", "aten.relu.default", [deep], {}]]))


def test_an_error_message_reveals_nothing_about_the_test_inputs(evaluator, env):
    pixel = [
        ["whole", "aten.to.dtype", [of("flat"), {"dtype": "int64"}], {}],
        ["row", "aten.select.int", [of("whole"), 0, 0], {}],
        ["pixel", "aten.select.int", [of("row"), 0, 2], {}],
        ["value", "aten.item.default", [of("pixel")], {}],
    ]
    secret = int(env.data.test_x[0].reshape(-1)[2])
    assert secret > 0
    by_text = ["logits", "aten.reshape.default", [of("w"), [of("value"), 7, 3]], {}]
    by_shape = ["logits", "aten.zeros.default", [[of("value"), 7, 3]], {}]
    texts = set()
    for last in (by_text, by_shape):
        with pytest.raises(ProgramError) as caught:
            evaluator.answer(*program([*FLAT, *pixel, last]))
        texts.add(str(caught.value))
    assert texts == {UNSCORABLE}


def test_a_program_that_keeps_statistics_of_the_test_set_is_refused(evaluator):
    statistics = [of("mean"), of("var"), True, 1.0, 1e-5, False]
    norm = ["norm", "aten.batch_norm.default", [of("real"), None, None, *statistics], {}]
    tensors = {"w": torch.zeros(64, 10), "mean": torch.zeros(64), "var": torch.ones(64)}
    with pytest.raises(ProgramError) as caught:
        evaluator.answer(*program([*LINEAR, norm], tensors))
    assert "changed its own tensors" in str(caught.value.__cause__)


CENTRED = [
    ["mean", "aten.mean.dim", [of("real"), [0]], {}],
    ["centred", "aten.sub.Tensor", [of("real"), of("mean")], {}],
]


def test_answers_that_depend_on_their_batch_are_measured(evaluator):
    _, honest = evaluator.answer(*program())
    assert honest["batch_dependent"] == 0
    nodes = [*FLAT, *CENTRED, ["logits", "aten.mm.default", [of("centred"), of("w")], {}]]
    _, transductive = evaluator.answer(*program(nodes))
    assert transductive["batch_dependent"] > 0.5
    noise = [["noise", "aten.rand_like.default", [of("logits")], {}]]
    _, random = evaluator.answer(*program([*LINEAR, *noise], output="noise"))
    assert random["batch_dependent"] > 0.5
    # A large constant does not hide the differences.
    lifted = [*nodes, ["lifted", "aten.add.Scalar", [of("logits"), 1000.0], {}]]
    assert evaluator.answer(*program(lifted, output="lifted"))[1]["batch_dependent"] > 0.5
    # Equal leads in all examples do not hide them either.
    highest = ["highest", "aten.amax.default", [of("logits"), [1], True], {}]
    one_hot = [*nodes, highest, ["first", "aten.ge.Tensor", [of("logits"), of("highest")], {}]]
    one_hot += [["same", "aten.mul.Scalar", [of("first"), 1.0], {}]]
    shares = [evaluator.answer(*program(one_hot, output="same"))[1]["batch_dependent"] for _ in range(20)]
    assert np.mean(shares) > 0.04  # each share depends on a random batch


def test_a_product_of_free_operations_is_measured(evaluator):
    nodes = [
        *FLAT,
        ["column", "aten.unsqueeze.default", [of("real"), 2], {}],
        ["products", "aten.mul.Tensor", [of("column"), of("w")], {}],
        ["logits", "aten.sum.dim_IntList", [of("products"), [1]], {}],
    ]
    logits, measured = evaluator.answer(*program(nodes))
    counted, honest = evaluator.answer(*program())
    assert torch.allclose(logits, counted)
    assert (measured["flops"], honest["flops"]) == (0, 1280)
    assert measured["free_elements"] > 1280
    assert honest["free_elements"] < 3 * 64


@pytest.mark.parametrize("widths", [(4, 512), (512, 2)])
def test_a_network_of_another_width_is_measured_again(env, widths):
    programs = [exported(Floats(width), env) for width in widths]
    assert programs[0][0] == programs[1][0]  # the graph has no widths
    assert not findings(env, *programs) & {"uneven", "free-inference"}
