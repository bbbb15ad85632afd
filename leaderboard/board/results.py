"""The result of a submission: the ledgers of its runs, the summary for the standings, and a maintainer's decision."""

from __future__ import annotations

import math
import zlib
from datetime import datetime

from sqlalchemy import Engine, Select, delete, select
from sqlalchemy.orm import Session

from agents.analysis.statistics import Interval
from alma_env import Ledger
from leaderboard.database.engine import now, writing
from leaderboard.database.tables import (
    METRICS,
    WAITING,
    Account,
    AuditFinding,
    Event,
    Result,
    ResultRun,
    State,
    Submission,
)
from leaderboard.errors import NotFoundError, SubmissionError
from leaderboard.rules import MINIMUM_SEEDS, TICKS, budget_class
from leaderboard.submission.manifest import from_dict
from leaderboard.text_safety import shown, storable
from leaderboard.verification.result import FAILED, Severity, Verification, VerifiedRun

# State of a submission, by its most severe finding.
STATES: dict[Severity, State] = {"info": "verified", "suspicious": "flagged", "fatal": "rejected"}


def record(session: Session, submission: Submission, verification: Verification, worker: str, moment: datetime) -> None:
    """Store a verification as the result of a submission, or raise ValueError if it is not complete."""
    _require_complete(submission, verification)
    runs = [_row(run) for run in sorted(verification.runs, key=lambda run: run.seed)]
    summary: dict[str, float | None] = {}
    scored = len(runs) >= MINIMUM_SEEDS
    if scored:
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
        published=worst == "info" and scored,
        flagged=worst == "suspicious",
        own_costs=any(run.own_costs for run in runs),
        seeds=len(runs),
        environment={storable(key, 80): storable(value, 4_000) for key, value in verification.environment.items()},
        worker=storable(worker, 200),
        verified_at=moment,
        runs=runs,
        findings=[
            AuditFinding(
                severity=each.severity, code=storable(each.code, 80), text=storable(each.text, 4_000), seed=each.seed
            )
            for each in verification.findings
        ],
        **summary,
    )
    session.add(result)
    submission.state = STATES[worst]
    session.flush()


def has_failed(session: Session, submission_id: int) -> bool:
    """Return whether the result of a submission has a run that failed, so that it can be verified again."""
    return session.scalars(_failed(submission_id)).first() is not None


def remove_failed(session: Session, submission_id: int) -> None:
    """Remove the result of a submission if a run failed, so that a new result can replace it in the transaction."""
    id = session.scalars(_failed(submission_id)).first()
    if id is not None:
        for rows in (ResultRun, AuditFinding):
            session.execute(delete(rows).where(rows.result_id == id))
        session.execute(delete(Result).where(Result.id == id))


def _failed(submission_id: int) -> Select[int]:
    failed = AuditFinding.severity == "fatal", AuditFinding.code == FAILED
    return select(Result.id).join(Result.findings).where(Result.submission_id == submission_id, *failed)


def ledger_of(run: ResultRun) -> Ledger:
    """Return the ledger of a stored run, bit for bit."""
    return Ledger.from_json(zlib.decompress(run.ledger).decode())


def decide(engine: Engine, submission_id: int, maintainer: str, *, accept: bool, reason: str) -> None:
    """Accept a result (put it on the board) or reject it (take it off); everyone can read the reason. Findings stay.

    Raises:
        NotFoundError: there is no such submission or result, or no active maintainer of this name.
        SubmissionError: the reason is empty, the result to accept has a fatal finding or lacks runs, or the submission
            is verified again.
    """
    if not reason.strip():
        raise SubmissionError("reason='': a decision needs a reason for the log; write one")
    with writing(engine) as session:
        account = session.scalars(select(Account).where(Account.name == maintainer)).first()
        if account is None or account.role != "maintainer" or account.disabled_at is not None:
            raise NotFoundError(f"maintainer {shown(maintainer)}: not an active maintainer; give the name of one")
        result = session.scalars(select(Result).where(Result.submission_id == submission_id).with_for_update()).first()
        if result is None:
            if session.scalar(select(Submission.id).where(Submission.id == submission_id)) is None:
                raise NotFoundError(f"submission {submission_id}: it does not exist; see the list of submissions")
            raise NotFoundError(f"submission {submission_id}: it has no result; wait for its verification")
        if result.submission.state in WAITING:
            raise SubmissionError(
                f"submission {submission_id}: it is {result.submission.state}, and a new result will replace this one; "
                "decide after the verification"
            )
        if accept:
            _require_acceptable(result)
        result.published = accept
        result.submission.state = "verified" if accept else "rejected"
        kind, text = "accepted" if accept else "rejected", storable(reason.strip(), 4_000)
        session.add(Event(at=now(session), kind=kind, submission_id=submission_id, account_id=account.id, text=text))


def _require_acceptable(result: Result) -> None:
    seeds = len(from_dict(result.submission.manifest).seeds)
    fatal = ", ".join(sorted({finding.code for finding in result.findings if finding.severity == "fatal"}))
    if fatal or result.seeds != seeds:
        found = f" and the fatal finding {fatal}" if fatal else ""
        raise SubmissionError(
            f"submission {result.submission_id}: {result.seeds} verified runs of {seeds}{found}; a result on the board "
            "has a run of every seed and no fatal finding; reject it, or queue it again if its run failed"
        )


def _row(run: VerifiedRun) -> ResultRun:
    score = run.ledger.score()
    metrics = {metric: getattr(score, metric) for metric in METRICS}
    more = {"own_costs": score.registered, "cpu_seconds": run.cpu_seconds}
    return ResultRun(seed=run.seed, ledger=zlib.compress(run.ledger.to_json().encode()), **metrics, **more)


def _require_complete(submission: Submission, verification: Verification) -> None:
    wanted = sorted(from_dict(submission.manifest).seeds)
    seeds = sorted(run.seed for run in verification.runs)
    fatal = verification.worst == "fatal"
    if len(set(seeds)) != len(seeds) or not set(seeds) <= set(wanted) or (seeds != wanted and not fatal):
        raise ValueError(
            f"seeds={seeds}: must be the seeds {wanted} of submission {submission.id}; verify each seed once, or add "
            "a fatal finding"
        )
    rows = TICKS[submission.env_id] + 1
    for run in verification.runs:
        if len(run.ledger) != rows:
            raise ValueError(
                f"seed {run.seed}: {len(run.ledger)} rows in the ledger; {submission.env_id} has {rows}; leave out "
                "an unfinished run and add a fatal finding"
            )
        if not all(math.isfinite(row.error) and row.error >= 0 for row in run.ledger):
            raise ValueError(f"seed {run.seed}: every error must be finite and at least 0; compute the errors again")
        if not math.isfinite(sum(row.error for row in run.ledger)):
            raise ValueError(f"seed {run.seed}: the sum of its errors, the CER, must be finite; leave the run out")
