"""What the API sends and takes, as its OpenAPI document says it.

FLOPs and parameter counts of single runs are whole numbers of any size: whoever reads them needs more than 64 bits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from leaderboard.rules import MAXIMUM_SEEDS

Role = Literal["submitter", "maintainer"]
Scope = Literal["submit", "review", "manage"]
State = Literal["queued", "running", "verified", "flagged", "rejected", "failed"]
Severity = Literal["info", "suspicious", "fatal"]
Whole = Annotated[int, Field(ge=0)]
# What JSON Schema has no short words for stands in a format of its own; `leaderboard.tokens.plain_name` holds to it.
PLAIN_TEXT = "plain-text"
_PLAIN_TEXT_RULE = "not blank, and without control characters, invisible or direction-changing ones"
Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=80,
        json_schema_extra={"format": PLAIN_TEXT},
        examples=["Ada"],
        description=_PLAIN_TEXT_RULE,
    ),
]


class Model(BaseModel):
    """Read from dataclasses and rows by their attributes."""

    model_config = ConfigDict(from_attributes=True)


class Body(BaseModel):
    """Of a request: a field that is not known is a mistake, and so is 1 for true."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Problem(Model):
    """An error: what is wrong, which rule it breaks and what helps."""

    detail: str = Field(description="all problems, in lines")
    problems: list[str] = Field(description="each problem by itself")


class Health(Model):
    """Whether the server and its database answer."""

    status: Literal["ok"]
    version: str = Field(description="of alma-env")
    rules_version: str = Field(description="under which submissions are taken now")
    waiting: Whole = Field(description="submissions that are queued or being verified")


class Interval(Model):
    """A mean over seeds and its 95 % interval, mean ± half; half is null for a single seed."""

    mean: float
    half: float | None
    n: Whole = Field(description="number of seeds")


class Board(Model):
    """An environment under one version of the rules, and what its standings can be filtered by."""

    env_id: str
    rules_version: str
    submissions: Whole
    methods: list[str]
    budget_classes: list[int]
    waiting_times: list[int]


class Standing(Model):
    """One line of the standings."""

    place: int = Field(ge=1, description="in the order and among the submissions that were asked for")
    submission_id: int
    name: str
    authors: list[str]
    env_id: str
    rules_version: str
    method: str
    waiting_time: int | None = Field(description="in mega-batches")
    budget_class: Whole = Field(description="k of Comp up to 10^k FLOPs")
    seeds: Whole
    cer: Interval = Field(description="cumulative error over all ticks")
    mem: Interval = Field(description="sum of parameters over all ticks")
    comp: Interval = Field(description="FLOPs executed")
    paper_flops: Interval = Field(description="FLOPs by the paper's rule of thumb")
    final_error: Interval
    seconds: Interval = Field(description="of the verification")
    verified_at: datetime


class StandingsPage(Model):
    """A page of the standings."""

    lines: list[Standing]
    total: Whole = Field(description="on all pages")


class Sent(Model):
    """A submission in a list."""

    id: int
    name: str
    account: str
    env_id: str
    rules_version: str
    method: str
    waiting_time: int | None
    state: State
    progress: str | None
    created_at: datetime


class SubmissionsPage(Model):
    """A page of the submissions, the last one first."""

    lines: list[Sent]
    total: Whole = Field(description="on all pages")


class Submitted(Model):
    """What became of an archive that was sent."""

    id: int
    state: State
    new: bool = Field(description="false where the same files had been sent before")
    digest: str = Field(description="of the files")


class Manifest(Model):
    """What a submission says of itself; texts of strangers, which are to be escaped wherever they are shown."""

    name: str
    authors: list[str]
    env: str
    seeds: list[int]
    method: str
    description: str
    hyperparameters: dict[str, bool | int | float | str]
    links: dict[str, str]


class Run(Model):
    """The verified run of one seed."""

    seed: Whole
    cer: float
    mem: Whole
    comp: Whole
    paper_flops: Whole
    final_error: float
    seconds: float


class Finding(Model):
    """What the audit noticed."""

    severity: Severity
    code: str
    text: str
    seed: int | None


class Happened(Model):
    """A line of a submission's history."""

    at: datetime
    kind: str
    text: str = Field(description="empty where it tells about machines, which is for maintainers")


class Submission(Model):
    """One submission."""

    id: int
    account: str
    account_id: int
    digest: str
    rules_version: str
    state: State
    published: bool = Field(description="whether the standings show it")
    manifest: Manifest
    contact: str | None = Field(description="for its sender and maintainers")
    created_at: datetime
    attempts: Whole
    progress: str | None
    last_error: str | None = Field(description="why the last attempt failed; for maintainers")
    runs: list[Run] = Field(max_length=MAXIMUM_SEEDS)
    findings: list[Finding]
    environment: dict[str, str] = Field(description="versions, machine and isolation of the verification")
    worker: str | None = Field(description="which verified it; for maintainers")
    verified_at: datetime | None
    events: list[Happened]


class ClaimedRun(Model):
    """What the submission claims of one seed, beside what was verified."""

    seed: int
    claimed: Run | None = Field(description="for its sender and maintainers until the result is published")
    verified: Run | None


class Audit(Model):
    """What the audit noticed, and the claims that it compared."""

    findings: list[Finding]
    runs: list[ClaimedRun]
    environment: dict[str, str]
    verified_at: datetime | None


class Decision(Body):
    """A maintainer's decision about a result, and why."""

    accept: bool
    reason: Annotated[str, Field(min_length=1, max_length=4_000, pattern=r"[^\s\x00]")]


class Me(Model):
    """Whom a token stands for."""

    account_id: int
    name: str
    role: Role
    scopes: list[Scope]


class Token(Model):
    """What is known of a token; its secret is not."""

    id: int
    name: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class TokenRequest(Body):
    """A token to be made."""

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3)] | None = Field(
        None, description="by default those of the token that asks"
    )
    days: Annotated[float, Field(gt=0, le=3650)] | None = Field(
        None, description="after which it ends; by default never"
    )


class NewToken(Model):
    """A token as it is shown once."""

    id: int
    secret: str = Field(description="keep it; it is not stored and not shown again")
    name: str
    scopes: list[Scope]
    expires_at: datetime | None


class Account(Model):
    """An account."""

    id: int
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


class AccountsPage(Model):
    """A page of the accounts, the first one first."""

    lines: list[Account]
    total: Whole


class AccountRequest(Body):
    """An account to be made."""

    name: Name
    role: Role = "submitter"


class NewAccount(Model):
    """An account and its first token, which is shown once."""

    account: Account
    token: NewToken
