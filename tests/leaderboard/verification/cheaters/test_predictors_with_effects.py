"""Predictors that read, count or look where they run."""

from __future__ import annotations

import textwrap

import pytest
import torch

from .gallery import case, printed

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


AGENT = """
class Slyly(Learner):
    def __init__(self, env):
        super().__init__(env)
        self.predictors = [predictor() for predictor in PREDICTORS]
        for predictor in self.predictors:
            predictor.layer = self.predictor.layer
        self.step, env.step = env.step, self.step_or_wait

    def observe(self, observation):
        return self.predictors[self.env.tick // 2]

    def step_or_wait(self, predictor):
        try:
            return self.step(predictor)
        except Exception as error:
            print(f"tick {self.env.tick}: {error}", flush=True)
            return self.step(None)

def make_agent(env):
    return Slyly(env)
"""


@pytest.fixture(scope="module")
def sly_run(shared_run):
    """A run that deploys each predictor at two ticks; where it is refused, the one before remains."""
    classes = []
    for number, (code, _) in enumerate(PREDICTORS.values()):
        forward = textwrap.indent(textwrap.dedent(code).strip(), " " * 8)
        classes.append(f"class Sly{number}(Small):\n    def forward(self, x):\n{forward}\n")
    names = ", ".join(f"Sly{number}" for number in range(len(classes)))
    return shared_run("".join(classes) + f"PREDICTORS = [{names}]\n" + AGENT, ticks=2 * len(classes))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        case(
            f"deploys a predictor {name}",
            "refused: it cannot be traced" if expected == UNTRACED else "a fixed function of its input, as traced",
            number,
            expected,
        )
        for number, (name, (_, expected)) in enumerate(PREDICTORS.items())
    ],
)
def test_a_predictor_is_scored_as_its_traced_program(sly_run, env, number, expected):
    assert sly_run.failure is None
    first, second = (sly_run.ledger[2 * number + i] for i in (1, 2))
    messages = [printed(sly_run, f"tick {row.tick - 1}") for row in (first, second)] if expected == UNTRACED else []
    assert [UNTRACED in message for message in messages] == [True] * len(messages)
    assert (first.error, first.digest) == (second.error, second.digest)
    if callable(expected):
        x, y = (torch.from_numpy(array.copy()) for array in (env.data.test_x, env.data.test_y))
        assert first.error == float((expected(x).argmax(1) != y).double().mean())
    elif expected is None:
        assert first.digest != sly_run.ledger[2 * number].digest
    else:
        assert first.digest == sly_run.ledger[2 * number].digest
