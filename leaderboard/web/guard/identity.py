"""Who a request comes from: a program with a token, a browser with a session, or nobody that is known.

No secret of the server exists: a session is a row of the database, and the token against cross-site requests is derived
from the browser's own cookie by HMAC. So several processes of a server agree, and a restart logs nobody out.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from sqlalchemy import Engine

from leaderboard import tokens
from leaderboard.tokens import Caller
from leaderboard.web.limits import spend
from leaderboard.web.settings import Settings

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")
_RELOAD = "reload the form and send it again"


@dataclass(frozen=True)
class Identity:
    """Who a request comes from.

    Attributes:
        account_id: of the account.
        name: of the account.
        role: submitter or maintainer.
        scopes: what the token allows: submit, review, manage.
        by: a token in the header, or a session's cookie.
        token_id: of the token; of a session, the token that it came from.
    """

    account_id: int
    name: str
    role: str
    scopes: tuple[str, ...]
    by: Literal["token", "session"]
    token_id: int

    @property
    def is_maintainer(self) -> bool:
        """Whether this is a maintainer's account; what it may do is in the scopes."""
        return self.role == "maintainer"


def identity(request: Request) -> Identity | None:
    """Who a request comes from; None for nobody that is known. It asks the database once per request.

    Raises:
        HTTPException: 401, the header has a token that opens nothing; 429, there were too many such.
    """
    if not hasattr(request.state, "identity"):
        request.state.identity = _identity(request)
    found: Identity | None = request.state.identity
    return found


def _identity(request: Request) -> Identity | None:
    engine: Engine = request.app.state.engine
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, secret = header.partition(" ")
        caller = tokens.authenticate(engine, secret.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            spend(request, "log_ins")
            raise HTTPException(
                401,
                "the Authorization header has no token that is valid here; write `Bearer alma_…` with one of yours "
                "that is neither revoked nor over",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return _of(caller, "token")
    cookie = request.cookies.get(session_cookie(request))
    caller = tokens.authenticate_session(engine, cookie) if cookie else None
    return _of(caller, "session") if caller else None


def _of(caller: Caller, by: Literal["token", "session"]) -> Identity:
    return Identity(caller.account_id, caller.name, caller.role, caller.scopes, by, caller.token_id)


def log_in(request: Request, response: Response, token: str) -> Identity:
    """Open a session of a token and give the browser its cookie. Check `check_csrf` before.

    Raises:
        HTTPException: 401, the token opens nothing; 429, there were too many such attempts.
    """
    settings: Settings = request.app.state.settings
    opened = tokens.open_session(request.app.state.engine, token.strip(), settings.session_hours)
    if opened is None:
        spend(request, "log_ins")  # of those who guess alone: a classroom may log in at once from one address
        raise HTTPException(401, "this token opens nothing here; it may be mistyped, revoked or over")
    caller, secret = opened
    response.set_cookie(
        session_cookie(request),
        secret,
        max_age=int(settings.session_hours * 3600),
        path="/",
        secure=settings.https,
        httponly=True,
        samesite="lax",
    )
    request.state.identity = _of(caller, "session")
    return _of(caller, "session")


def log_out(request: Request, response: Response) -> None:
    """End the browser's session and take its cookie. Check `check_csrf` before."""
    cookie = request.cookies.get(session_cookie(request))
    if cookie:
        tokens.close_session(request.app.state.engine, cookie)
    response.delete_cookie(
        session_cookie(request), path="/", secure=request.app.state.settings.https, httponly=True, samesite="lax"
    )
    request.state.identity = None


# Cross-site requests.


def csrf_token(request: Request) -> str:
    """What a form of this browser carries in its hidden field ``csrf``.

    A browser without a session gets a cookie for that, with the response, from `leaderboard.web.security`.
    """
    key = _csrf_key(request)
    if key is None:
        key = request.state.visit = secrets.token_urlsafe(32)
    return _derived(key)


def check_csrf(request: Request, sent: str | None) -> None:
    """Refuse what another site's page made the browser send, and count what changes something by a session.

    Requests with a token in the header are no browser's.

    Raises:
        HTTPException: 403, from another site or outdated; 429, the account changes too much in a minute.
    """
    if request.method in _SAFE_METHODS or "authorization" in request.headers:
        return
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "this request comes from another site; open the form here and send it from there")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise HTTPException(403, "this request comes from another site; open the form here and send it from there")
    key = _csrf_key(request)
    if key is None or sent is None or not hmac.compare_digest(_derived(key).encode(), sent.encode("utf-8", "replace")):
        raise HTTPException(403, f"the form is outdated, or cookies are switched off; {_RELOAD}")
    caller = identity(request)
    if caller is not None:
        spend(request, "changes", caller.account_id)


def _csrf_key(request: Request) -> str | None:
    # The session's cookie where it is valid, else the visit's: a form from before a session ended is refused.
    if "authorization" not in request.headers and identity(request) is not None:
        cookie = request.cookies.get(session_cookie(request))
        if cookie:
            return cookie
    visit: str | None = getattr(request.state, "visit", None) or request.cookies.get(visit_cookie(request))
    return visit if visit and 32 <= len(visit) <= 100 else None


def _derived(key: str) -> str:
    return hmac.new(key.encode("utf-8", "replace"), b"alma csrf", hashlib.sha256).hexdigest()


def session_cookie(request: Request) -> str:
    """The name of the session's cookie. With HTTPS it is one that no neighbouring site can plant."""
    return "__Host-alma-session" if request.app.state.settings.https else "alma-session"


def visit_cookie(request: Request) -> str:
    """The name of the cookie of a browser that is not logged in."""
    return "__Host-alma-visit" if request.app.state.settings.https else "alma-visit"


def local_path(path: str | None, default: str = "/") -> str:
    """Where to go after a log in: a path of this board, or the default. Another site's address is never followed.

    >>> local_path("/submit?a=1"), local_path("//evil.example"), local_path("https://evil.example"), local_path(None)
    ('/submit?a=1', '/', '/', '/')
    """
    if not path or not path.startswith("/") or path.startswith("//") or len(path) > 500:
        return default
    if any(character in "\\" or not 0x20 < ord(character) < 0x7F for character in path):
        return default
    return path
