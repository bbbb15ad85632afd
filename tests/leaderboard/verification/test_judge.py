"""The judge trusts neither the contestant nor the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from leaderboard.program.export import export
from leaderboard.sandbox.channel import Message, array_header
from leaderboard.verification.judge import MEASURED, EvaluatorError, Judge

from ..hand_written_programs import program
from .cheaters.judged import play


def test_logits_of_64_bits_are_not_rounded(env):
    """Logits that differ only in float64 would be equal in float32, and the error would differ from a local run."""

    class Close(nn.Module):
        def forward(self, x):
            steps = torch.arange(10, dtype=torch.float64) * 1e-12
            return 1 + steps + x.flatten(1)[:, :1] * 0

    written, _ = export(Close(), env.data.train_x[:2])

    def script(channel, begun):
        channel.send(Message("answer", {}, [written.graph_bytes(), written.tensor_bytes()]))
        assert set(channel.receive().fields) == {"flops"}  # the judge keeps the error
        entered = {"tick": 0, "flops": {}, "paper_flops": 0, "declared": [], "refused": False}
        channel.send(Message("enter", entered))

    assert [row.error for row in play(env, script).ledger] == [np.mean(env.data.test_y != 9)]


LOGITS = np.zeros((397, 10), np.float32)


@pytest.mark.parametrize(
    ("fields", "blobs"),
    [
        ({}, []),
        ({}, [LOGITS.tobytes()]),
        ({"flops": float("nan")}, [LOGITS.tobytes()]),
        ({"flops": -1.0}, [LOGITS.tobytes()]),
        ({"probe_flops": -5}, [LOGITS.tobytes()]),
        ({"free_elements": "none"}, [LOGITS.tobytes()]),
        ({"batch_dependent": None}, [LOGITS.tobytes()]),
        ({"logits": {"dtype": "object", "shape": [397, 10]}}, [LOGITS.tobytes()]),
    ],
)
def test_malformed_messages_of_the_evaluator_end_only_the_run(env, fields, blobs):
    def lying(channel):
        channel.receive()
        channel.send(Message("ready"))
        channel.receive()
        given = {**dict.fromkeys(MEASURED, 1.0), "logits": array_header(LOGITS)} if fields or blobs == [] else {}
        channel.send(Message("answered", given | fields, blobs))

    run = play(env, lambda channel, begun: channel.send(Message("answer", {}, program())), evaluate=lying)
    assert run.failure


def test_an_evaluator_that_does_not_start_is_a_fault_of_the_machine(env):
    with pytest.raises(EvaluatorError):
        play(env, lambda channel, begun: None, evaluate=lambda channel: None)


def test_a_judge_refuses_an_environment_with_a_budget():
    budgeted = alma_env.make("Digits-ALMA-v0", ticks=3, parameter_budget=100)
    with pytest.raises(ValueError, match="cannot enforce a budget; verify without"):
        Judge(budgeted, 0, None, None, deadline=0)
