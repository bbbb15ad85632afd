"""Everything that the board knows about one submission."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import Field, NonNegativeInt, TypeAdapter
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, joinedload, selectinload, undefer

from agents.analysis.statistics import Interval
from alma_env import Ledger, Score
from leaderboard.board.results import ledger_of
from leaderboard.board.submissions import no_submission
from leaderboard.database.damage import UNREADABLE, damaged
from leaderboard.database.engine import reading
from leaderboard.database.tables import METRICS, WAITING, Event, Result, ResultRun, State, Submission
from leaderboard.errors import NotFoundError
from leaderboard.rules import MAXIMUM_SEEDS
from leaderboard.submission import manifest as manifests
from leaderboard.text_safety import printable
from leaderboard.verification.result import FAILED, Finding, Severity

# Kinds of events whose texts everyone may read. The texts of other kinds may describe the board's machines.
_PUBLIC_EVENTS = ("submitted", "claimed", "failed", "held", "damaged", "accepted", "rejected")
# Kinds of events that give the reason of a state.
_REASONS = {"failed": ("failed",), "rejected": ("rejected",), "held": ("held", "damaged")}


@dataclass(frozen=True)
class Manifest(manifests.Manifest):
    """The manifest of a submission. Strangers wrote its texts: escape them wherever they are shown."""

    contact: Annotated[str | None, Field(exclude=True)] = None  # not public; see `Details.contact`


@dataclass(frozen=True)
class Run:
    """The verified run of one seed. `ledgers` reads its ledger.

    Attributes:
        cpu_seconds: CPU time of the submitted code after tick 0; None if it is not known.
        own_costs: whether comp has operations whose cost, or freedom from cost, the submission registered.
    """

    seed: NonNegativeInt
    cer: float
    mem: NonNegativeInt
    comp: NonNegativeInt
    paper_flops: NonNegativeInt
    final_error: float
    seconds: float
    cpu_seconds: float | None = None
    own_costs: bool = False

    @classmethod
    def of(cls, seed: int, numbers: ResultRun | Score) -> Run:
        """Return the run of a seed with the metrics of a stored run, or of the score of a ledger."""
        values: dict[str, Any] = {metric: getattr(numbers, metric) for metric in METRICS}
        if isinstance(numbers, ResultRun):
            values |= {"cpu_seconds": numbers.cpu_seconds, "own_costs": bool(numbers.own_costs)}
        else:
            values["own_costs"] = numbers.registered
        return cls(seed, **values)


@dataclass(frozen=True)
class HistoryEntry:
    """An entry of a submission's history.

    Attributes:
        at: time of the event.
        kind: kind of the event.
        text: details; empty if only maintainers may read them, because they describe the board's machines.
    """

    at: datetime
    kind: str
    text: str


@dataclass(frozen=True)
class Details:
    """One submission, without its files and its ledgers.

    Attributes:
        id: number of the submission.
        account: name of the account that sent it.
        account_id: number of the account that sent it.
        digest: SHA-256 of its files.
        rules_version: version of the rules at the time of sending.
        state: queued, running, verified, flagged, rejected, failed or held.
        published: whether the standings show it.
        manifest: its manifest.
        contact: how to reach its authors; only for its sender and maintainers.
        created_at: time of sending.
        attempts: number of attempts to verify it.
        interruptions: number of starts that ended without a verdict, such as by a killed worker; they are no attempts.
        progress: progress of the verification; None if it does not run.
        last_error: error of the last attempt; only for maintainers, because it may describe the board's machines.
        runs: verified runs, by seed.
        findings: findings of the audit.
        environment: versions, machine and isolation of the verification.
        worker: name of the worker that verified it; only for maintainers.
        verified_at: time of the verification.
        events: its history, the oldest entry first.
    """

    id: int
    account: str
    account_id: int
    digest: str
    rules_version: str
    state: State
    published: bool
    manifest: Manifest
    contact: str | None
    created_at: datetime
    attempts: NonNegativeInt
    interruptions: NonNegativeInt
    progress: str | None
    last_error: str | None
    runs: Annotated[tuple[Run, ...], Field(max_length=MAXIMUM_SEEDS)]
    findings: tuple[Finding, ...]
    environment: dict[str, str]
    worker: str | None
    verified_at: datetime | None
    events: tuple[HistoryEntry, ...]

    @property
    def ended(self) -> bool:
        """Whether the verification has ended."""
        return self.state not in WAITING

    @property
    def reason(self) -> str:
        """Why it failed, is held or was rejected, for everyone; empty if only the findings say it."""
        kinds = _REASONS.get(self.state, ())
        return next((event.text for event in reversed(self.events) if event.kind in kinds), "")

    @property
    def can_be_retried(self) -> bool:
        """Whether a maintainer can queue it again: it has no result, or one with a run that failed."""
        failed = any((finding.severity, finding.code) == ("fatal", FAILED) for finding in self.findings)
        return self.state in ("failed", "held") or (self.state == "rejected" and failed)

    @property
    def own_costs(self) -> bool:
        """Whether a run has operations whose cost, or freedom from cost, the submission registered."""
        return any(run.own_costs for run in self.runs)

    def intervals(self) -> dict[str, Interval]:
        """Mean and 95 % interval of every metric over the verified runs. There must be at least one run."""
        return {name: Interval.of([float(getattr(run, name)) for run in self.runs]) for name in METRICS}

    def lines(self) -> list[str]:
        """The submission as lines for a terminal."""
        manifest = self.manifest
        lines = [
            f"submission {self.id}: {self.state}" + (", on the board" if self.published else ""),
            f"{manifest.name}, by {', '.join(manifest.authors)}",
            f"{manifest.env}, rules {self.rules_version}, method {manifest.method}, sent by {self.account}",
            f"digest {self.digest}",
        ]
        if self.progress:
            lines.append(f"attempt {self.attempts}: {self.progress}")
        for metric, interval in self.intervals().items() if len(self.runs) > 1 else ():
            lines.append(f"{metric} {interval.text('.4g')} over {interval.n} seeds")
        for finding in self.findings:
            seed = "" if finding.seed is None else f" (seed {finding.seed})"
            lines.append(f"{finding.severity}: {finding.code}{seed}: {finding.text}")
        if self.last_error:
            lines.append(f"last error: {self.last_error}")
        for event in self.events:
            text = f": {event.text}" if event.text and event.kind in _PUBLIC_EVENTS else ""
            lines.append(f"{event.at:%Y-%m-%d %H:%M:%S} UTC {event.kind}{text}")
        return [printable(line) for line in lines]


def details(engine: Engine, submission_id: int) -> Details:
    """Return the details of one submission.

    Raises:
        NotFoundError: there is no such submission.
        DamagedError: its rows in the database cannot be read.
    """
    try:
        with reading(engine) as session:
            return _read(session, submission_id)
    except NotFoundError:
        raise
    except UNREADABLE as error:
        raise damaged(f"submission {submission_id}", error) from error


def _read(session: Session, submission_id: int) -> Details:
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
    runs, findings = (result.runs, result.findings) if result else ([], [])
    manifest = Manifest(**vars(manifests.from_dict(submission.manifest)))
    read = Details(
        id=submission.id,
        account=submission.account.name,
        account_id=submission.account_id,
        digest=submission.digest,
        rules_version=submission.rules_version,
        state=submission.state,
        published=bool(result and result.published),
        manifest=manifest,
        contact=manifest.contact,
        created_at=submission.created_at,
        attempts=job.attempts if job else 0,
        interruptions=job.interruptions if job else 0,
        progress=job.progress if job else None,
        last_error=job.last_error if job else None,
        runs=tuple(Run.of(run.seed, run) for run in runs),
        findings=tuple(Finding(cast(Severity, each.severity), each.code, each.text, each.seed) for each in findings),
        environment=dict(result.environment) if result else {},
        worker=result.worker if result else None,
        verified_at=result.verified_at if result else None,
        events=tuple(HistoryEntry(event.at, event.kind, event.text) for event in events),
    )
    numbers = (
        number for run in read.runs for number in (run.cer, run.final_error, run.seconds, run.cpu_seconds or 0.0)
    )
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number of a run is not finite")
    _VALID.validate_python(asdict(read) | {"manifest": manifest})  # a database does not enforce every type
    return read


_VALID = TypeAdapter(Details)


def public(found: Details, *, to_sender: bool = False) -> Details:
    """Return the details without the parts that only maintainers may read: errors, workers and the contact.

    The finding of a run that failed can end with a traceback or with output, which shows lines of the files. Before the
    files are public, only the sender may read this part.

    Args:
        found: the details.
        to_sender: whether the account that sent the submission reads them. It may read the contact, too.
    """
    if not (to_sender or found.published):
        found = replace(found, findings=tuple(map(_without_lines_of_files, found.findings)))
    events = tuple(entry if entry.kind in _PUBLIC_EVENTS else replace(entry, text="") for entry in found.events)
    contact = found.contact if to_sender else None
    manifest = replace(found.manifest, contact=contact)
    return replace(found, manifest=manifest, contact=contact, last_error=None, worker=None, events=events)


def _without_lines_of_files(finding: Finding) -> Finding:
    first, _, rest = finding.text.partition("\n")
    if finding.code != FAILED or not rest:
        return finding
    return replace(finding, text=f"{first} (its sender reads more with `alma-leaderboard status`)")


def ledgers(engine: Engine, submission_id: int, seed: int | None = None) -> dict[int, Ledger]:
    """Return the verified ledgers of a submission by seed: all, or only that of ``seed``; empty before a verification.

    Raises:
        NotFoundError: there is no such submission.
    """
    chosen = [] if seed is None else [ResultRun.seed == seed]
    with reading(engine) as session:
        if session.scalars(select(Submission.id).where(Submission.id == submission_id)).first() is None:
            raise no_submission(submission_id)
        runs = session.scalars(
            select(ResultRun)
            .join(Result)
            .where(Result.submission_id == submission_id, *chosen)
            .order_by(ResultRun.seed)
            .options(undefer(ResultRun.ledger))
        )
        try:
            return {run.seed: ledger_of(run) for run in runs}
        except UNREADABLE as error:
            raise damaged(f"submission {submission_id}", error) from error


def ledger_text(engine: Engine, submission_id: int, seed: int) -> str:
    """Return the verified ledger of one seed: one JSON object per line.

    Raises:
        NotFoundError: there is no such submission, or no verified run of this seed.
    """
    found = ledgers(engine, submission_id, seed)
    if seed not in found:
        raise NotFoundError(f"seed {seed}: submission {submission_id} has no verified run; see its page")
    return found[seed].to_json()
