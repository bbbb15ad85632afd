"""What the operations of the API share: who may call, what ids are, which errors each can answer with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Query, Request, Security
from fastapi.security import HTTPBearer
from sqlalchemy import Engine

from leaderboard.details import Details
from leaderboard.rules import TICKS
from leaderboard.web.identity import Identity, check_csrf, identity
from leaderboard.web.limits import spend
from leaderboard.web.schemas import Problem, Scope

LARGEST_ID = 2**31 - 1  # of both databases

Responses = dict[int | str, dict[str, Any]]


def errors(**words: str) -> Responses:
    """Answers with a `Problem`, as the OpenAPI document has them: ``errors(_404="no such submission")``."""
    return {int(status[1:]): {"model": Problem, "description": text} for status, text in words.items()}


ANY_ERROR = errors(
    _400="the request cannot be read",
    _401="the token in the header opens nothing",
    _413="larger than what is read",
    _422="a value breaks a rule, which is told",
    _429="too often; `Retry-After` says when to come back",
    _500="a mistake of the server",
    _503="the database does not answer; `Retry-After` says when to try again",
)
NO_TOKEN = errors(_401="no token, or one that opens nothing", _403="the token does not allow it")
TOKEN_OR_NONE: dict[str, Any] = {"security": [{}, {"token": []}]}  # who shows one may see more
NO_SUBMISSION = errors(_404="there is no such submission")

_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="A token of an account: `Bearer alma_…`")

SubmissionId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of a submission")]
EnvId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._-]{1,80}$", description="id of an environment", examples=[next(iter(TICKS))])
]
RulesVersion = Annotated[str, Path(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}$", description="Major.Minor", examples=["0.1"])]
Seed = Annotated[int, Path(ge=0, le=2**32 - 1, description="seed of a run")]
Offset = Annotated[int, Query(ge=0, le=LARGEST_ID, description="lines before the page")]


def engine_of(request: Request) -> Engine:
    """The database of the application."""
    engine: Engine = request.app.state.engine
    return engine


Database = Annotated[Engine, Depends(engine_of)]
MaybeCaller = Annotated[Identity | None, Depends(identity)]


def require(scope: Scope | None = None, *, maintainer: bool = False) -> Callable[..., Identity]:
    """A dependency: whoever calls, with this scope, counted where something changes.

    A browser's session may call, too; where something changes, with the page's token in ``X-CSRF-Token``.
    """

    def caller(request: Request, _: Annotated[object, Security(_bearer)]) -> Identity:
        found = identity(request)
        if found is None:
            raise HTTPException(
                401,
                "this needs a token; send the header `Authorization: Bearer alma_…` with one of yours",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if request.method not in ("GET", "HEAD"):
            check_csrf(request, request.headers.get("x-csrf-token"))
            if found.by == "token":
                spend(request, "changes", found.account_id)
        if maintainer and not found.is_maintainer:
            raise HTTPException(403, f"account {found.name} is no maintainer's; ask a maintainer of the board")
        if scope is not None and scope not in found.scopes:
            raise HTTPException(403, f"the token has not the scope {scope}; use or make one that has it")
        return found

    return caller


def reviews(caller: Identity | None) -> bool:
    """Whether someone may see what maintainers see."""
    return caller is not None and caller.is_maintainer and "review" in caller.scopes


def may_download(caller: Identity | None, found: Details) -> bool:
    """Whether someone may have a submission's files: everyone once its result is published, before that its sender."""
    return found.published or reviews(caller) or (caller is not None and caller.account_id == found.account_id)
