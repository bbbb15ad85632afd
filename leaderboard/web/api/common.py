"""Shared parts of the API's operations: callers and permissions, types of parameters, error responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response, Security
from fastapi.security import HTTPBearer
from sqlalchemy import Engine

from leaderboard.board.details import Details
from leaderboard.database.tables import LARGEST_ID, Scope
from leaderboard.rules import TICKS
from leaderboard.web.api.schemas import Problem
from leaderboard.web.guard import identity
from leaderboard.web.guard.identity import Identity
from leaderboard.web.guard.limits import spend

Responses = dict[int | str, dict[str, Any]]


def errors(**descriptions: str) -> Responses:
    """Return error responses for the OpenAPI document, such as ``errors(_404="no such submission")``."""
    return {int(status[1:]): {"model": Problem, "description": text} for status, text in descriptions.items()}


ANY_ERROR = errors(
    _400="the request is malformed",
    _401="the token in the header is invalid",
    _408="the body of the request was too slow",
    _409="the present state forbids it, or a row of the database is damaged",
    _413="the request is too large",
    _421="this board is at another address",
    _422="a value breaks a rule; the problems name both",
    _429="too many requests; `Retry-After` gives the seconds to wait",
    _500="an error of the server",
    _503="the database does not respond; `Retry-After` gives the seconds to wait",
)
NO_TOKEN = errors(_401="the token is missing or invalid", _403="the token does not allow this operation")
TOKEN_OR_NONE: dict[str, Any] = {"security": [{}, {"token": []}]}  # the response to a token may contain more
NO_SUBMISSION = errors(_404="there is no such submission")

_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="token of an account: `Bearer alma_…`")

SubmissionId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of a submission")]
EnvId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._-]{1,80}$", description="id of an environment", examples=[next(iter(TICKS))])
]
RulesVersion = Annotated[str, Path(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}$", description="Major.Minor", examples=["0.1"])]
Seed = Annotated[int, Path(ge=0, le=2**32 - 1, description="seed of a run")]
Offset = Annotated[int, Query(ge=0, le=LARGEST_ID, description="number of lines before the page")]


def engine_of(request: Request) -> Engine:
    """Return the engine of the application's database."""
    engine: Engine = request.app.state.engine
    return engine


Database = Annotated[Engine, Depends(engine_of)]
MaybeCaller = Annotated[Identity | None, Depends(identity.identity)]


def require(scope: Scope | None = None, *, maintainer: bool = False) -> Callable[..., Identity]:
    """Return a dependency that gives the caller and requires a scope or a maintainer.

    A browser's session can call the API as well. A request that changes something counts towards the caller's rate
    limit, and needs the page's token in the header ``X-CSRF-Token`` if it comes from a session.
    """

    def caller(request: Request, _: Annotated[object, Security(_bearer)]) -> Identity:
        found = identity.identity(request)
        if found is not None and request.method not in ("GET", "HEAD"):
            identity.check_csrf(request, request.headers.get("x-csrf-token"))
            if found.by == "token":
                spend(request, "changes", found.account_id)
        return identity.require(request, scope, maintainer=maintainer)

    return caller


def attached(content: str | bytes, media_type: str, name: str) -> Response:
    """Respond with a file that a browser saves under a name."""
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def reviews(caller: Identity | None) -> bool:
    """Whether the caller may see what only maintainers see."""
    return caller is not None and caller.is_maintainer and "review" in caller.scopes


def may_download(caller: Identity | None, found: Details) -> bool:
    """Whether the caller may have a submission's files. Before its result is published, only its sender may."""
    return found.published or reviews(caller) or (caller is not None and caller.account_id == found.account_id)
