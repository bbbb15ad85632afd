"""Bodies of requests, and answers that only the API gives; and the OpenAPI document.

All other answers are the dataclasses of `leaderboard.board`, `leaderboard.accounts` and `leaderboard.client`. FLOPs and
parameter counts of single runs are whole numbers of any size: a reader needs more than 64 bits.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from leaderboard.accounts.accounts import AccountInfo
from leaderboard.accounts.names import PATTERN, RULE
from leaderboard.board.details import Run
from leaderboard.database.tables import Role, Scope
from leaderboard.verification.result import Finding

# A format, because JSON Schema has no short rule for such texts. `leaderboard.accounts.tokens.plain_name` checks it.
PLAIN_TEXT = "plain-text"
Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=80,
        json_schema_extra={"format": PLAIN_TEXT},
        examples=["Ada"],
        description="not blank, without control characters and without invisible or direction-changing characters",
    ),
]


@dataclass(frozen=True)
class Problem:
    """An error: the value that is wrong, the rule and the remedy.

    Attributes:
        detail: all problems, one per line.
        problems: each problem.
    """

    detail: str
    problems: list[str]


@dataclass(frozen=True)
class Health:
    """State of the server.

    Attributes:
        status: ok if the server and its database answer.
        version: version of alma-env.
        rules_version: version of the rules under which new submissions are verified.
        waiting: number of submissions that are queued or running.
    """

    status: Literal["ok"]
    version: str
    rules_version: str
    waiting: NonNegativeInt


@dataclass(frozen=True)
class ClaimedRun:
    """The claimed and the verified run of one seed.

    Attributes:
        seed: seed of the run.
        claimed: what the submission claims; only for its sender and maintainers until the result is published.
        verified: the verified run.
    """

    seed: int
    claimed: Run | None
    verified: Run | None


@dataclass(frozen=True)
class Audit:
    """The findings of the audit, and the claims that it compared."""

    findings: tuple[Finding, ...]
    runs: list[ClaimedRun]
    environment: dict[str, str]
    verified_at: datetime | None


@dataclass(frozen=True)
class AccountsPage:
    """A page of the accounts, the oldest first."""

    lines: list[AccountInfo]
    total: NonNegativeInt


class Body(BaseModel):
    """Body of a request. Unknown fields are errors, and values are not converted (1 is not true)."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Decision(Body):
    """A maintainer's decision about a result, and the reason."""

    accept: bool
    reason: Annotated[str, Field(min_length=1, max_length=4_000, pattern=r"[^\s\x00]")]


class TokenRequest(Body):
    """A request for a new token."""

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3)] | None = Field(
        None, description="default: the scopes of the token that sends the request"
    )
    days: Annotated[float, Field(gt=0, le=3650)] | None = Field(
        None, description="lifetime of the token; by default the token does not expire"
    )


AccountName = Annotated[str, Field(pattern=PATTERN, description=RULE, examples=["Ada"])]


class AccountRequest(Body):
    """A request for a new account."""

    name: AccountName
    role: Role = "submitter"


# Names of the schemas in the OpenAPI document, where they are not the names of the classes.
_SCHEMA_NAMES = {
    "AccountInfo": "Account",
    "Details": "Submission",
    "HistoryEntry": "Happened",
    "ListedSubmission": "Sent",
    "TokenInfo": "Token",
}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class Application(FastAPI):
    """A FastAPI application whose OpenAPI document describes fields by the ``Attributes`` of docstrings."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            text = json.dumps(super().openapi())
            for name, schema_name in _SCHEMA_NAMES.items():
                text = text.replace(f'"#/components/schemas/{name}"', f'"#/components/schemas/{schema_name}"')
            self.openapi_schema = json.loads(text)
            schemas = self.openapi_schema["components"]["schemas"]
            for name in list(schemas):
                schema = schemas[_SCHEMA_NAMES.get(name, name)] = schemas.pop(name)
                schema["title"] = _SCHEMA_NAMES.get(name, name)
                _describe(schema)
        return self.openapi_schema


def _describe(schema: dict[str, Any]) -> None:
    summary, _, attributes = schema.get("description", "").partition("\n\nAttributes:\n")
    schema["description"] = summary.replace("\n\n", "\n")
    for name, text in _ATTRIBUTE.findall(attributes):
        if name in schema["properties"]:
            schema["properties"][name]["description"] = re.sub(r"\s+", " ", text)
    if schema.get("additionalProperties") is not False:  # an answer, and not the body of a request
        schema["required"] = list(schema["properties"])  # answers have all fields, also those with a default
