"""Bounds that a contestant sets: what an answer costs, what changed, how much was trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from leaderboard.sandbox.channel import Message, array_header, as_blob
from leaderboard.verification import audit

from ...hand_written_programs import FLAT, LINEAR, of, program
from .gallery import attack, case
from .judged import deploy, exported, findings


def trained(env):
    """Weights of 640 parameters that answer most test examples correctly, by least squares."""
    x = np.concatenate([env.data.train_x, env.data.test_x]).reshape(-1, 64) / 16.0
    y = np.concatenate([env.data.train_y, env.data.test_y])
    weights = np.linalg.lstsq(x, np.eye(10)[y] - 0.1, rcond=None)[0]
    return torch.from_numpy(weights.astype(np.float32) / 16)


def linear(weights):
    return program(tensors={"w": weights.contiguous()})


def without_flops(weights):
    """The same product by operations without FLOPs."""
    nodes = [
        *FLAT,
        ["column", "aten.unsqueeze.default", [of("real"), 2], {}],
        ["products", "aten.mul.Tensor", [of("column"), of("w")], {}],
        ["logits", "aten.sum.dim_IntList", [of("products"), [1]], {}],
    ]
    return program(nodes, {"w": weights.contiguous()})


def looked_up(weights):
    """A part of the product by look-ups without FLOPs, so small that the elements are few."""
    nodes = [*FLAT, ["logits", "aten.narrow.default", [of("real"), 1, 20, 10], {}]]
    return program(nodes, {"w": weights.contiguous()})


SMALL = torch.randn(64, 10, generator=torch.Generator().manual_seed(0)) * 1e-3


@pytest.mark.parametrize(
    "make",
    [
        case(
            "trains without FLOPs a program that answers by free operations", "finding `free-training`", without_flops
        ),
        case(
            "trains without FLOPs a program whose answers do not use its weights", "finding `free-training`", looked_up
        ),
        case("trains without FLOPs an ordinary program", "finding `free-training`", linear),
    ],
)
def test_a_change_without_flops_is_found_whatever_an_answer_costs(env, make):
    assert "free-training" in findings(env, make(SMALL), make(SMALL + 1e-3), flops=0)


@attack(
    "wins with Comp 40: trained weights, answers without FLOPs, a few FLOPs charged",
    "findings `free-training` and `known-before`",
)
def test_a_few_charged_flops_explain_no_training(env):
    run, _ = deploy(env, [without_flops(trained(env))], flops=14)
    assert run.ledger.score().comp < 50
    assert run.ledger[-1].error < 0.2
    assert {"free-training", "known-before"} <= findings(env, without_flops(trained(env)), flops=14)


@pytest.mark.parametrize(
    "examples",
    [
        case("charges one step on one example for trained weights", "finding `known-before`", 1),
        case("charges one step on an example of each class for trained weights", "finding `known-before`", 10),
        case("charges one step on three examples of each class for trained weights", "finding `known-before`", 30),
    ],
)
def test_a_low_error_needs_examples(env, examples):
    assert findings(env, linear(trained(env)), flops=2 * 2 * 640 * examples) == {"known-before"}


def scaled(by):
    by_half = ["scaled", "aten.mul.Scalar", [of("real"), by], {}]
    return [*FLAT, by_half, ["logits", "aten.mm.default", [of("scaled"), of("w")], {}]]


CHANGES = {
    "only an argument": lambda: (program(scaled(0.5), {"w": SMALL}), program(scaled(0.25), {"w": SMALL})),
    "only the graph": lambda: (linear(SMALL), program(scaled(0.5), {"w": SMALL})),
    "only the name of a tensor": lambda: (
        linear(SMALL),
        program([*FLAT, ["logits", "aten.mm.default", [of("real"), of("v")], {}]], {"v": SMALL}),
    ),
    "only the shape of a tensor": lambda: (
        program(tensors={"w": SMALL, "b": torch.zeros(2, 3)}),
        program(tensors={"w": SMALL, "b": torch.zeros(3, 2)}),
    ),
    "only one bit of one weight": lambda: (
        linear(SMALL),
        linear(SMALL.index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(-1e-30))),
    ),
    "its output to another result": lambda: (
        program([*LINEAR, ["other", "aten.neg.default", [of("logits")], {}]], {"w": SMALL}),
        program([*LINEAR, ["other", "aten.neg.default", [of("logits")], {}]], {"w": SMALL}, output="other"),
    ),
}


@pytest.mark.parametrize(
    "make",
    [case(f"changes {what} without FLOPs", "finding `free-training`", make) for what, make in CHANGES.items()],
)
def test_every_new_digest_is_a_change(env, make):
    first, second = make()
    run, refused = deploy(env, [first, second], flops=0)
    assert not refused
    assert run.evidence[2].changed >= 1
    assert "free-training" in findings(env, first, second, flops=0)
    assert deploy(env, [first, first], flops=0)[0].evidence[2].changed == 0


LIES = {
    "reports no FLOPs": {"flops": 0.0, "probe_flops": 0.0},
    "reports no free elements": {"free_elements": 0.0, "probe_elements": 0.0},
    "reports other parameters and buffers": {"parameters": 1, "buffers": 0, "stored": 1},
}


@pytest.mark.parametrize(
    "lie",
    [
        case(f"takes over the evaluator, which then {does}", "the judge's own numbers", lie)
        for does, lie in LIES.items()
    ],
)
def test_the_judge_believes_no_number_that_it_can_derive(env, lie):
    def lying(channel):
        channel.receive()
        channel.send(Message("ready"))
        while True:
            channel.receive()
            logits = np.zeros((len(env.data.test_y), 10), np.float32)
            costs = {"flops": 1280.0, "probe_flops": 1280.0, "free_elements": 128.0, "probe_elements": 128.0}
            fields = {**costs, "batch_dependent": 0.0, "packed": 0.0, "logits": array_header(logits)} | lie
            channel.send(Message("answered", fields, [as_blob(logits)]))

    run, refused = deploy(env, [without_flops(SMALL), linear(SMALL)], evaluate=lying)
    assert not refused
    assert [row.inference_flops for row in run.ledger][1:3] == [0.0, 1280.0]
    assert [row.parameters for row in run.ledger][1:3] == [640, 640]
    assert run.evidence[1].free_elements > 1280


@attack("reports ten times the paper's FLOPs", "finding `paper-flops`")
def test_the_count_of_the_paper_has_two_bounds(env):
    run, _ = deploy(env, [linear(SMALL)])
    rows = [row.__class__(**{**vars(row), "paper_flops": 10 * row.comp}) for row in run.ledger]
    run = run.__class__(**{**vars(run), "ledger": run.ledger.__class__(rows)})
    assert [finding.code for finding in audit.run_findings(run)] == ["paper-flops"]


@attack(
    "deploys a wide network whose FLOPs depend on values, so that only the evaluator can count them",
    "at most the judge's bound",
)
def test_costs_that_depend_on_values_are_bounded(env):
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(SMALL.clone())

        def forward(self, x):
            flat = x.flatten(1) / 16
            chosen = (flat.sum(1) > 1e9).nonzero().flatten()
            return (flat.sum(1, keepdim=True) + torch.zeros(10)).index_add(0, chosen, flat[chosen] @ self.w)

    run, refused = deploy(env, [exported(Chosen(), env)], flops=100)
    assert not refused
    assert run.ledger[1].inference_flops == 0  # no test example is chosen
    assert "free-training" in findings(env, exported(Chosen(), env), flops=100)
