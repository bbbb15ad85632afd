"""The tables of the board.

    accounts ─┬─ tokens
              ├─ identities   at GitHub or ORCID, with which the account signs in
              └─ submissions ─┬─ jobs        the queue: one per submission
                              ├─ results ─┬─ result_runs   one per seed, with the ledger
                              │           └─ findings      of the audit
                              └─ events      the audit log

``results`` also stores the values by which the standings sort and filter, so that one page of the standings reads one
table by an index. Only the migrations create tables. `leaderboard.database.migrations.open_database` opens a database.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal, get_args

from sqlalchemy import (
    JSON,
    BigInteger,
    Double,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from leaderboard.database.column_types import UtcDateTime, WholeNumber

Role = Literal["submitter", "maintainer"]
Scope = Literal["submit", "review", "manage"]
State = Literal["queued", "running", "verified", "flagged", "rejected", "failed", "held"]
Metric = Literal["cer", "mem", "comp", "paper_flops", "final_error", "seconds"]
ROLES: tuple[Role, ...] = get_args(Role)
SUBMISSION_STATES: tuple[State, ...] = get_args(State)
WAITING: tuple[State, ...] = ("queued", "running")
METRICS: tuple[Metric, ...] = get_args(Metric)
LARGEST_ID = 2**31 - 1  # in SQLite and PostgreSQL


class Base(DeclarativeBase):
    """Base of the tables; names every constraint, so that migrations can refer to it."""

    type_annotation_map: ClassVar = {float: Double, datetime: UtcDateTime}
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Account(Base):
    """A submitter, or a maintainer of the board.

    Attributes:
        skeleton: equal for names that look alike; None for an account from before this column whose name looks like the
            name of an older account.
        network: client address of the registration, for the limit per address; deleted after a day.
    """

    __tablename__ = "accounts"
    __table_args__ = (
        Index("uq_accounts_skeleton", "skeleton", unique=True),
        Index("ix_accounts_network_created_at", "network", "created_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    role: Mapped[Role] = mapped_column(String(20), default="submitter")
    created_at: Mapped[datetime]
    disabled_at: Mapped[datetime | None]
    skeleton: Mapped[str | None] = mapped_column(String(80))
    network: Mapped[str | None] = mapped_column(String(64))


class Identity(Base):
    """An identity at another provider, such as GitHub, with which an account signs in.

    Attributes:
        subject: the provider's permanent id of the person.
        name: how the provider calls the person, for the page of the account.
        token_id: the token whose sessions the identity opens; nobody knows its secret.
    """

    __tablename__ = "identities"
    __table_args__ = (UniqueConstraint("provider", "subject"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    provider: Mapped[str] = mapped_column(String(20))
    subject: Mapped[str] = mapped_column(String(255))
    name: Mapped[str] = mapped_column(String(80))
    token_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    created_at: Mapped[datetime]

    account: Mapped[Account] = relationship()


class Token(Base):
    """A secret with which an account acts. Only its SHA-256 is stored, so a stolen database gives no access.

    A token with a ``parent_id`` is a session of the web page. It was made from its parent token and ends with it.
    """

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"), index=True)
    name: Mapped[str] = mapped_column(String(80))
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[Scope]] = mapped_column(JSON)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship()
    parent: Mapped[Token | None] = relationship(remote_side=[id])


class Submission(Base):
    """A submitted package. Packages with equal files under equal rules are one submission, also from two accounts."""

    __tablename__ = "submissions"
    __table_args__ = (
        UniqueConstraint("digest", "rules_version"),
        Index("ix_submissions_state_created_at", "state", "created_at"),
        Index("ix_submissions_account_id_created_at", "account_id", "created_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    digest: Mapped[str] = mapped_column(String(64))
    rules_version: Mapped[str] = mapped_column(String(20))
    env_id: Mapped[str] = mapped_column(String(80), index=True)
    name: Mapped[str] = mapped_column(String(80))
    method: Mapped[str] = mapped_column(String(40))
    waiting_time: Mapped[int | None]
    manifest: Mapped[dict[str, Any]] = mapped_column(JSON)
    package: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    package_bytes: Mapped[int]
    state: Mapped[State] = mapped_column(String(20), default="queued")
    created_at: Mapped[datetime]

    account: Mapped[Account] = relationship()
    job: Mapped[Job | None] = relationship(back_populates="submission")
    result: Mapped[Result | None] = relationship(back_populates="submission")


class Job(Base):
    """The verification of a submission, in the queue. See `leaderboard.board.queue`.

    Attributes:
        attempts: starts that ended with a failure, and the present start.
        interruptions: starts that ended without a verdict, by a killed worker or a machine that could not run it.
        network: client address of the sender, for the limit and the turn of the address; deleted after a day.
        claimed_at: time of the last start, for the turns of accounts and addresses.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_state_available_at", "state", "available_at"),
        Index("ix_jobs_state_lease_until", "state", "lease_until"),
        Index("ix_jobs_network_claimed_at", "network", "claimed_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    submission_id: Mapped[int] = mapped_column(ForeignKey("submissions.id"), unique=True)
    state: Mapped[str] = mapped_column(String(20), default="queued")
    attempts: Mapped[int] = mapped_column(default=0)
    maximum_attempts: Mapped[int]
    interruptions: Mapped[int] = mapped_column(default=0, server_default="0")
    network: Mapped[str | None] = mapped_column(String(64))
    claimed_at: Mapped[datetime | None]
    available_at: Mapped[datetime]
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_key: Mapped[str | None] = mapped_column(String(32))
    lease_until: Mapped[datetime | None]
    progress: Mapped[str | None] = mapped_column(String(200))
    last_error: Mapped[str | None] = mapped_column(Text)
    finished_at: Mapped[datetime | None]

    submission: Mapped[Submission] = relationship(back_populates="job")


class Result(Base):
    """The result of a submission: means over seeds, half-widths of their 95 % intervals, and values for filters.

    The means are empty if a fatal finding ended the verification before three runs were complete. The standings show
    the result if ``published`` is true. ``own_costs`` is whether a run has operations whose cost, or freedom from cost,
    the submission registered; None for a result from before this column.
    """

    __tablename__ = "results"
    # One index per number by which the standings sort. Env, version and published come first, so that a page is read
    # from the index in order.
    __table_args__ = (
        *(
            Index(
                f"ix_results_board_{metric}", "env_id", "rules_version", "published", f"{metric}_mean", "submission_id"
            )
            for metric in METRICS
        ),
        Index("ix_results_board_method", "env_id", "rules_version", "published", "method", "cer_mean"),
        # The values of the filters are counted from this index, without the table.
        Index(
            "ix_results_filters", *("published", "env_id", "rules_version", "method", "budget_class", "waiting_time")
        ),
        Index("ix_results_board_wait", "env_id", "rules_version", "published", "waiting_time", "cer_mean"),
        Index("ix_results_board_budget", "env_id", "rules_version", "published", "budget_class", "cer_mean"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    submission_id: Mapped[int] = mapped_column(ForeignKey("submissions.id"), unique=True)
    env_id: Mapped[str] = mapped_column(String(80))
    rules_version: Mapped[str] = mapped_column(String(20))
    method: Mapped[str] = mapped_column(String(40))
    waiting_time: Mapped[int | None]
    budget_class: Mapped[int | None]
    published: Mapped[bool]
    flagged: Mapped[bool]
    seeds: Mapped[int]
    cer_mean: Mapped[float | None]
    cer_half: Mapped[float | None]
    mem_mean: Mapped[float | None]
    mem_half: Mapped[float | None]
    comp_mean: Mapped[float | None]
    comp_half: Mapped[float | None]
    paper_flops_mean: Mapped[float | None]
    paper_flops_half: Mapped[float | None]
    final_error_mean: Mapped[float | None]
    final_error_half: Mapped[float | None]
    seconds_mean: Mapped[float | None]
    seconds_half: Mapped[float | None]
    own_costs: Mapped[bool | None]
    environment: Mapped[dict[str, Any]] = mapped_column(JSON)
    worker: Mapped[str] = mapped_column(String(200))
    verified_at: Mapped[datetime]

    submission: Mapped[Submission] = relationship(back_populates="result")
    runs: Mapped[list[ResultRun]] = relationship(order_by="ResultRun.seed", back_populates="result")
    findings: Mapped[list[AuditFinding]] = relationship(order_by="AuditFinding.id")


class ResultRun(Base):
    """The verified run of a seed. ``own_costs`` as in `Result`; ``cpu_seconds`` of the code, None if unknown."""

    __tablename__ = "result_runs"
    __table_args__ = (UniqueConstraint("result_id", "seed"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    result_id: Mapped[int] = mapped_column(ForeignKey("results.id"))
    seed: Mapped[int] = mapped_column(BigInteger)
    cer: Mapped[float]
    mem: Mapped[int] = mapped_column(WholeNumber)
    comp: Mapped[int] = mapped_column(WholeNumber)
    paper_flops: Mapped[int] = mapped_column(WholeNumber)
    final_error: Mapped[float]
    seconds: Mapped[float]
    own_costs: Mapped[bool | None]
    cpu_seconds: Mapped[float | None]
    ledger: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)

    result: Mapped[Result] = relationship(back_populates="runs")


class AuditFinding(Base):
    """A finding of the audit of a result."""

    __tablename__ = "findings"

    id: Mapped[int] = mapped_column(primary_key=True)
    result_id: Mapped[int] = mapped_column(ForeignKey("results.id"), index=True)
    severity: Mapped[str] = mapped_column(String(20))
    code: Mapped[str] = mapped_column(String(80))
    text: Mapped[str] = mapped_column(Text)
    seed: Mapped[int | None] = mapped_column(BigInteger)


class Event(Base):
    """An entry of the audit log; entries are never changed."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(40))
    submission_id: Mapped[int | None] = mapped_column(ForeignKey("submissions.id"), index=True)
    account_id: Mapped[int | None] = mapped_column(ForeignKey("accounts.id"))
    worker: Mapped[str | None] = mapped_column(String(200))
    text: Mapped[str] = mapped_column(Text, default="")
