"""A wrong decision of a policy of the user fails one run, with file, decision and rule; the other runs go on."""

from __future__ import annotations

import pytest

import agents
from agents.cli import main
from agents.policies.progress import named
from agents.runs import load

CODE = """
from dataclasses import dataclass

import agents

DECISIONS = {
    "text": lambda: "train",
    "nothing": lambda: None,
    "number": lambda: 1,
    "policy": lambda: agents.FixedWait(2),
    "grow": lambda: agents.Decision(True, grow=1),
    "truth": lambda: agents.Decision("no"),
}

@dataclass(frozen=True)
class WrongAtTick3:
    what: str

    def __call__(self, now):
        return DECISIONS[self.what]() if now.tick == 3 else True

def make_agent(env, *, what, seed=0):
    policy = WrongAtTick3(what) if seed == 1 else agents.FixedWait(1)
    return agents.make("sm", env, width=4, epochs=1, seed=seed, policy=policy)
"""
PLACE = "WrongAtTick3 (faulty.py, line 19)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("text", f"policy {PLACE} returned 'train' at tick 3: must be an agents.Decision, or True to train and"),
        ("nothing", f"policy {PLACE} returned None at tick 3: must be an agents.Decision"),
        ("number", f"policy {PLACE} returned 1 at tick 3: must be an agents.Decision"),
        ("policy", f"policy {PLACE} returned FixedWait(re"),
        ("grow", "window=None, restart=False) at tick 3: grow with agent 'sm': a single model cannot grow; use grow=0"),
        ("truth", "faulty.py, line 12, in <lambda>: train='no': must be True or False; use train=True"),
    ],
)
def test_a_wrong_decision_fails_its_run_and_the_others_go_on(folder, monkeypatch, capsys, what, message):
    settings = ["ticks=4", f"what={what}"]
    words = ["run", "--agent", "faulty.py:make_agent", "--seeds", "0", "1", "2", "--out", "runs", "--set", *settings]
    assert main(words) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    (line,) = [line for line in shown.out.splitlines() if "failed" in line]
    assert ", seed 1: the run failed at tick 3: " in line
    assert message in line
    assert "Traceback" not in shown.out
    assert sorted(run.seed for run in load.find(folder / "runs")[0]) == [0, 2]


class Policy:
    def decide(self, now: agents.Progress) -> bool:
        return True


def test_the_name_of_a_policy_has_the_place_of_its_code():
    line = Policy.decide.__code__.co_firstlineno
    assert named(Policy().decide) == f"decide (test_own_policy.py, line {line})"
    assert named(len) == "len"
