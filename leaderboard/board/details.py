"""All that the board knows of one submission."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from sqlalchemy import Engine, select
from sqlalchemy.orm import joinedload, selectinload, undefer

from alma_env import Ledger
from leaderboard.database import AuditFinding, Event, Result, ResultRun, Submission
from leaderboard.engine import reading
from leaderboard.errors import NotFoundError
from leaderboard.manifest import Manifest, from_dict
from leaderboard.results import ledger_of
from leaderboard.submissions import no_submission
from leaderboard.verification import Finding, Severity

# What happened, whose words everyone may read; those of others may tell about machines.
_PUBLIC_EVENTS = ("submitted", "claimed", "failed", "accepted", "rejected")


@dataclass(frozen=True)
class Run:
    """The verified run of one seed; its ledger is read apart, by `ledgers`."""

    seed: int
    cer: float
    mem: int
    comp: int
    paper_flops: int
    final_error: float
    seconds: float


@dataclass(frozen=True)
class Details:
    """All of one submission but its files and its ledgers.

    Attributes:
        id: of the submission.
        account: who sent it.
        account_id: of who sent it.
        digest: of its files.
        rules_version: under which it was sent.
        state: queued, running, verified, flagged, rejected or failed.
        manifest: what it says of itself.
        created_at: when it was sent.
        attempts: of the verification, so far.
        progress: how far the verification is, where it runs.
        last_error: why the last attempt failed; for maintainers, since it may tell about the machine.
        published: whether the standings show it.
        runs: verified runs, by seed.
        findings: what the audit noticed.
        environment: versions, machine and isolation of the verification.
        worker: which verified it.
        verified_at: when.
        events: what happened to it: moment, kind, text.
    """

    id: int
    account: str
    account_id: int
    digest: str
    rules_version: str
    state: str
    manifest: Manifest
    created_at: datetime
    attempts: int
    progress: str | None
    last_error: str | None
    published: bool
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    environment: dict[str, str]
    worker: str | None
    verified_at: datetime | None
    events: tuple[tuple[datetime, str, str], ...]

    @property
    def ended(self) -> bool:
        """Whether the verification has come to an end."""
        return self.state not in ("queued", "running")


def details(engine: Engine, submission_id: int) -> Details:
    """All of one submission but its files and its ledgers.

    Raises:
        NotFoundError: there is no such submission.
    """
    with reading(engine) as session:
        submission = session.scalars(
            select(Submission)
            .where(Submission.id == submission_id)
            .options(
                joinedload(Submission.account),
                joinedload(Submission.job),
                joinedload(Submission.result).options(selectinload(Result.runs), selectinload(Result.findings)),
            )
        ).first()
        if submission is None:
            raise no_submission(submission_id)
        events = session.scalars(select(Event).where(Event.submission_id == submission_id).order_by(Event.id)).all()
        job, result = submission.job, submission.result
        return Details(
            id=submission.id,
            account=submission.account.name,
            account_id=submission.account_id,
            digest=submission.digest,
            rules_version=submission.rules_version,
            state=submission.state,
            manifest=from_dict(submission.manifest),
            created_at=submission.created_at,
            attempts=job.attempts if job else 0,
            progress=job.progress if job else None,
            last_error=job.last_error if job else None,
            published=bool(result and result.published),
            runs=tuple(_run(run) for run in result.runs) if result else (),
            findings=tuple(_finding(finding) for finding in result.findings) if result else (),
            environment=dict(result.environment) if result else {},
            worker=result.worker if result else None,
            verified_at=result.verified_at if result else None,
            events=tuple((event.at, event.kind, event.text) for event in events),
        )


def for_everyone(found: Details) -> Details:
    """The same without what tells about the machines of the board: tracebacks and workers."""
    events = tuple((at, kind, text if kind in _PUBLIC_EVENTS else "") for at, kind, text in found.events)
    return replace(found, last_error=None, worker=None, events=events)


def _run(run: ResultRun) -> Run:
    return Run(run.seed, run.cer, run.mem, run.comp, run.paper_flops, run.final_error, run.seconds)


def _finding(finding: AuditFinding) -> Finding:
    return Finding(cast(Severity, finding.severity), finding.code, finding.text, finding.seed)


def ledgers(engine: Engine, submission_id: int) -> dict[int, Ledger]:
    """The verified ledgers of a submission, by seed; none before it was verified.

    Raises:
        NotFoundError: there is no such submission.
    """
    with reading(engine) as session:
        if session.get(Submission, submission_id) is None:
            raise no_submission(submission_id)
        runs = session.scalars(
            select(ResultRun)
            .join(Result)
            .where(Result.submission_id == submission_id)
            .order_by(ResultRun.seed)
            .options(undefer(ResultRun.ledger))
        )
        return {run.seed: ledger_of(run) for run in runs}


def ledger_text(engine: Engine, submission_id: int, seed: int) -> str:
    """The verified ledger of one seed, a JSON object per line.

    Raises:
        NotFoundError: there is no such submission, or no verified run of this seed.
    """
    with reading(engine) as session:
        if session.get(Submission, submission_id) is None:
            raise no_submission(submission_id)
        run = session.scalars(
            select(ResultRun)
            .join(Result)
            .where(Result.submission_id == submission_id, ResultRun.seed == seed)
            .options(undefer(ResultRun.ledger))
        ).first()
        if run is None:
            raise NotFoundError(f"seed {seed}: submission {submission_id} has no verified run of it (yet)")
        return ledger_of(run).to_json()
