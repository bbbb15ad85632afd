"""The form of the gallery: each attack says what the cheater does, and what must come of it.

A test of an attack has the mark `attack(does, comes_to)`, or is parametrized with `case(does, comes_to, *values)`. A
test of several attacks has several marks. After a change, ``python tests/leaderboard/verification/cheaters/table.py``
makes the table in docs/leaderboard-attacks.md of these marks; the docstring of the file is the heading of its table.
Test an attack where it is decided: a call of the meter, a program, an audit. Few attacks need a whole run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from leaderboard.verification import audit
from leaderboard.verification.one_run import SandboxedRun

HONEST = """
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x):
            return self.layer(x.flatten(1) / 16)

    class Learner:
        def __init__(self, env):
            self.env = env
            torch.manual_seed(env.run_seed)
            self.predictor = Small()

        def observe(self, observation):
            self.before(observation)
            x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
            optimizer = torch.optim.SGD(self.predictor.parameters(), lr=0.1)
            for _ in range(10):
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.predictor(x), y).backward()
                optimizer.step()
            return self.predictor

        def before(self, observation):
            pass

    def make_agent(env):
        return Learner(env)
"""


def attack(does: str, comes_to: str) -> pytest.MarkDecorator:
    """Return the mark of a test: what the cheater does, and what must come of it, such as ``finding `buffers` ``."""
    return pytest.mark.attack(does, comes_to)


def case(does: str, comes_to: str, *values: Any) -> Any:
    """Return one set of values of a parametrized test, as an attack."""
    return pytest.param(*values, id=does, marks=attack(does, comes_to))


def codes(sandboxed_run: SandboxedRun) -> set[str]:
    return {finding.code for finding in audit.run_findings(sandboxed_run)}


def printed(sandboxed_run: SandboxedRun, name: str) -> str:
    """Return what a cheater printed about one attempt."""
    return next(
        line.removeprefix(f"{name}: ") for line in sandboxed_run.output.splitlines() if line.startswith(f"{name}: ")
    )


def each(does: str, things: Iterable[Any], comes_to: str) -> list[Any]:
    """Return a case for each function or class; its name, in words, completes the text ``does``."""
    return [case(f"{does} {_words(thing.__name__)}", comes_to, thing) for thing in things]


def _words(name: str) -> str:
    return re.sub(r"(?<=.)(?=[A-Z])", " ", name).replace("_", " ").lower()
