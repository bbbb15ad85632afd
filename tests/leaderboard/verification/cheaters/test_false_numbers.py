"""False numbers: patches of the clock, of the scores and of the ledger, and false claims."""

from __future__ import annotations

import numpy as np
import torch

from leaderboard.verification import audit

from ...hand_written_programs import program
from .gallery import attack
from .judged import deploy


@attack("patches the clock, the scores and the rows of its ledger", "the patch changes nothing outside of its process")
def test_patched_numbers_stay_in_the_sandbox(run):
    sandboxed_run = run("""
        import time, alma_env.env, alma_env.scoring.evaluation
        import torch

        time.perf_counter = lambda: 0.0
        alma_env.scoring.evaluation.answer = lambda *arguments, **others: alma_env.scoring.evaluation.Answer(0.0, 0.0)

        class Lying(Learner):
            def observe(self, observation):
                predictor = super().observe(observation)
                for row in self.env.ledger.rows:
                    object.__setattr__(row, "error", 0.0)
                    object.__setattr__(row, "parameters", 0)
                return predictor

        def make_agent(env):
            return Lying(env)
        """)
    assert sandboxed_run.failure is None
    assert all(row.error > 0.05 and row.parameters == 650 for row in sandboxed_run.ledger)
    assert all(row.seconds > 0 for row in sandboxed_run.ledger)


@attack("claims half of its errors", "finding `claim`; the verified ledger counts")
def test_a_claimed_ledger_that_differs_from_the_verified_one_is_flagged(env):
    verified, _ = deploy(env, [program(tensors={"w": torch.randn(64, 10)})])
    honest = verified.ledger
    assert audit.claim_findings({0: honest}, {0: honest}) == []
    rows = [row.__class__(**{**vars(row), "error": row.error / 2}) for row in honest]
    better = honest.__class__(rows)
    (finding,) = audit.claim_findings({0: better, 7: better}, {0: honest})
    assert finding.code == "claim"
    assert "claims cer" in finding.text
    assert np.isclose(better.score().cer, honest.score().cer / 2)
