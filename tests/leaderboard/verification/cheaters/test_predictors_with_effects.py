"""Predictors that read, count or look where they run."""

from __future__ import annotations

import textwrap

import pytest
import torch

from .gallery import case

UNTRACED = "cannot be written as a program"
PREDICTORS = {  # code, and the logits or the failure that it must give
    "that reads a file when it answers": (
        "return x.flatten(1)[:, :10] / len(open('/submission/agent.py').read())",
        lambda x: x.flatten(1)[:, :10],
    ),
    "that connects to the network": (
        "import socket; socket.create_connection(('1.1.1.1', 53), timeout=1); return x",
        UNTRACED,
    ),
    "that reads the environment variables": (
        "import os; return x.flatten(1)[:, :10] + float(os.environ['ALMA_ANSWERS'])",
        UNTRACED,
    ),
    "that detects the export": (
        """
        import torch
        if torch.compiler.is_exporting():
            return torch.zeros(x.shape[0], 10) + self.layer.weight.sum() * 0
        return self.layer(x.flatten(1) / 16)""",
        lambda x: torch.zeros(len(x), 10),
    ),
    "that counts its forward passes": (
        """
        self.passes = getattr(self, "passes", 0) + 1
        return self.layer(x.flatten(1) / 16) * (1.5 - self.passes % 2)""",
        None,  # the same at every tick
    ),
}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        case(
            f"deploys a predictor {name}",
            "refused: it cannot be traced" if expected == UNTRACED else "a fixed function of its input, as traced",
            code,
            expected,
        )
        for name, (code, expected) in PREDICTORS.items()
    ],
)
def test_a_predictor_is_scored_as_its_traced_program(run, env, code, expected):
    forward = textwrap.indent(textwrap.dedent(code).strip(), " " * 8)
    sandboxed_run = run(f"""
class Sly(Small):
    def forward(self, x):
{forward}

class Slyly(Learner):
    def __init__(self, env):
        super().__init__(env)
        self.predictor = Sly()

    def observe(self, observation):
        return self.predictor

def make_agent(env):
    return Slyly(env)
""")
    if isinstance(expected, str):
        assert expected in sandboxed_run.failure
    else:
        assert sandboxed_run.failure is None
        x, y = (torch.from_numpy(array.copy()) for array in (env.data.test_x, env.data.test_y))
        error = float((expected(x).argmax(1) != y).double().mean()) if expected else sandboxed_run.ledger[0].error
        assert [row.error for row in sandboxed_run.ledger] == [error] * 4
