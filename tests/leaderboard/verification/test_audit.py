"""The audit flags suspicious runs and no honest run."""

from __future__ import annotations

import pytest

from alma_env import Ledger, Row
from leaderboard.sandbox.sandbox import ISOLATED
from leaderboard.verification.evidence import Evidence
from leaderboard.verification.one_run import SandboxedRun

from .cheaters.gallery import codes


def sandboxed_run(
    env, errors, *, flops=10_000, parameters=650, buffers=0, inference=1280.0, paper=None, cpu=1.0, **measured
):
    rows, evidence = [], []
    for tick, error in enumerate(errors):
        spent = {"training": flops} if tick and flops else {}
        paper_flops = sum(spent.values()) if paper is None else paper
        rows.append(Row(tick, error, parameters, buffers, inference, spent, paper_flops, (), "d", False, 1.0))
        evidence.append(Evidence(tick, cpu, True, parameters, sum(spent.values()), **measured))
    return SandboxedRun(Ledger(rows), tuple(evidence), None, "", ISOLATED, None, guess=0.9, input_size=64)


HONEST = (0.93, 0.6, 0.5, 0.4)


def test_an_honest_run_has_no_findings(env):
    assert codes(sandboxed_run(env, HONEST, flops=30_000)) == set()


@pytest.mark.parametrize(
    ("errors", "more", "code"),
    [
        ((0.02, 0.02, 0.02, 0.02), {}, "known-before"),  # trained weights in the package
        ((0.93, 0.02, 0.02, 0.02), {"flops": 2 * 1280}, "known-before"),  # after one step on one example
        (HONEST, {"parameters": 0, "hidden": {"buffers": 650}}, "buffers"),
        (HONEST, {"parameters": 325, "hidden": {"buffers": 325}}, "buffers"),
        (HONEST, {"parameters": 10, "hidden": {"literals": 15}}, "buffers"),
        (HONEST, {"parameters": 160, "hidden": {"constants": 480}}, "buffers"),
        (HONEST, {"parameters": 10, "graph": 140}, "graph"),
        (HONEST, {"answer_flops": 0.0, "probe_flops": 1280.0}, "uneven"),
        (HONEST, {"answer_elements": 1280.0, "probe_elements": 10.0}, "uneven"),
        (HONEST, {"inference": 0.0, "free_elements": 1350.0}, "free-inference"),
        (HONEST, {"batch_dependent": 0.3}, "batch-dependent"),
        (HONEST, {"packed": 0.3}, "packed"),
        (HONEST, {"cpu": 20.0}, "too-slow"),  # computes outside of the meter
        (HONEST, {"paper": 0}, "paper-flops"),
        (HONEST, {"paper": 500_000}, "paper-flops"),
    ],
)
def test_a_suspicious_run_is_flagged(env, errors, more, code):
    assert code in codes(sandboxed_run(env, errors, **{"flops": 30_000} | more))
