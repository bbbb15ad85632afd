"""The result of a submission as it is stored: every run's ledger, and the summary that the standings read."""

from __future__ import annotations

import math
import zlib
from datetime import datetime

from sqlalchemy.orm import Session

from agents.statistics import Interval
from alma_env import Ledger
from leaderboard.database import METRICS, AuditFinding, Result, ResultRun, Submission
from leaderboard.manifest import from_dict
from leaderboard.rules import MINIMUM_SEEDS, TICKS, budget_class
from leaderboard.text_rules import storable
from leaderboard.verification import Severity, Verification, VerifiedRun

# What becomes of a submission, by the gravest finding.
STATES: dict[Severity, str] = {"info": "verified", "suspicious": "flagged", "fatal": "rejected"}


def record(
    session: Session, submission: Submission, verification: Verification, worker: str, moment: datetime
) -> Result:
    """Store a verification as the result of a submission.

    Raises:
        ValueError: runs are missing, or are not of this submission.
    """
    _require_whole(submission, verification)
    runs = [_row(run) for run in sorted(verification.runs, key=lambda run: run.seed)]
    summary: dict[str, float | None] = {}
    if len(runs) >= MINIMUM_SEEDS:
        for metric in METRICS:
            interval = Interval.of([float(getattr(run, metric)) for run in runs])
            summary |= {f"{metric}_mean": interval.mean, f"{metric}_half": interval.half}
    comp = summary.get("comp_mean")
    worst = verification.worst
    result = Result(
        submission_id=submission.id,
        env_id=submission.env_id,
        rules_version=submission.rules_version,
        method=submission.method,
        waiting_time=submission.waiting_time,
        budget_class=None if comp is None else budget_class(comp),
        published=worst == "info" and len(runs) >= MINIMUM_SEEDS,
        flagged=worst == "suspicious",
        seeds=len(runs),
        environment={storable(key, 80): storable(value, 500) for key, value in verification.environment.items()},
        worker=storable(worker, 200),
        verified_at=moment,
        runs=runs,
        findings=[
            AuditFinding(
                severity=finding.severity,
                code=storable(finding.code, 80),
                text=storable(finding.text, 4_000),
                seed=finding.seed,
            )
            for finding in verification.findings
        ],
        **summary,
    )
    session.add(result)
    submission.state = STATES[worst]
    session.flush()
    return result


def ledger_of(run: ResultRun) -> Ledger:
    """The ledger of a stored run, to the last bit."""
    return Ledger.from_json(zlib.decompress(run.ledger).decode())


def _row(run: VerifiedRun) -> ResultRun:
    score = run.ledger.score()
    return ResultRun(
        seed=run.seed,
        cer=score.cer,
        mem=score.mem,
        comp=score.comp,
        paper_flops=score.paper_flops,
        final_error=score.final_error,
        seconds=score.seconds,
        ledger=zlib.compress(run.ledger.to_json().encode()),
    )


def _require_whole(submission: Submission, verification: Verification) -> None:
    wanted = sorted(from_dict(submission.manifest).seeds)
    seeds = sorted(run.seed for run in verification.runs)
    fatal = verification.worst == "fatal"
    if len(set(seeds)) != len(seeds) or not set(seeds) <= set(wanted) or (seeds != wanted and not fatal):
        raise ValueError(
            f"runs of seeds {seeds}: submission {submission.id} has the seeds {wanted}; verify each of them once, or "
            "say by a fatal finding why not"
        )
    rows = TICKS[submission.env_id] + 1
    for run in verification.runs:
        if len(run.ledger) != rows:
            raise ValueError(
                f"seed {run.seed}: a ledger of {len(run.ledger)} rows; {submission.env_id} has {rows}; leave an "
                "unfinished run out and say by a fatal finding why"
            )
        if not all(math.isfinite(row.error) and row.error >= 0 for row in run.ledger):
            raise ValueError(f"seed {run.seed}: an error is not a number from 0 on; score what the predictor answered")
        if not math.isfinite(sum(row.error for row in run.ledger)):
            raise ValueError(f"seed {run.seed}: the sum of the errors is larger than any number; such runs have no CER")
