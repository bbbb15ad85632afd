"""The caller of a request: a program with a token, a browser with a session, or unknown; and CSRF protection.

The server has no secret of its own. A session is a row of the database, and the CSRF token is an HMAC of the browser's
own cookie. Several server processes therefore agree, and a restart does not end sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Literal

from fastapi import HTTPException, Request, Response
from sqlalchemy import Engine

from leaderboard.accounts import tokens
from leaderboard.accounts.tokens import Caller
from leaderboard.database.tables import Scope
from leaderboard.web.guard.limits import spend
from leaderboard.web.guard.settings import Settings, address_of

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")
_OTHER_SITE = "the request comes from another site; open the form on this board and send it from there"


@dataclass(frozen=True)
class Identity(Caller):
    """The caller of a request.

    Attributes:
        by: whether a token in the header or the cookie of a session identifies the caller.
    """

    by: Literal["token", "session"]

    @property
    def is_maintainer(self) -> bool:
        """Whether the account is a maintainer's. The scopes may allow less."""
        return self.role == "maintainer"


def identity(request: Request) -> Identity | None:
    """Return the caller of a request; None if the caller is unknown. It queries the database once per request.

    Raises:
        HTTPException: 401, the token in the header is invalid; 429, too many requests had invalid tokens.
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
                "Authorization: the header has no valid token; send `Bearer alma_…` with a token that is neither "
                "revoked nor expired",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return Identity(**vars(caller), by="token")
    cookie = request.cookies.get(cookie_name(request, "session"))
    caller = tokens.authenticate_session(engine, cookie) if cookie else None
    return Identity(**vars(caller), by="session") if caller else None


def require(request: Request, scope: Scope | None = None, *, maintainer: bool = False) -> Identity:
    """Return the caller. The token must have the scope, if one is given; ``maintainer`` requires a maintainer.

    Raises:
        HTTPException: 401, the caller is unknown; 403, the caller is not allowed to do this; 429, as `identity` does.
    """
    caller = identity(request)
    if caller is None:
        raise HTTPException(
            401,
            "the request has no valid token or session; log in again, or send the header "
            "`Authorization: Bearer alma_…` with a valid token",
            headers={"WWW-Authenticate": "Bearer"},
        )
    if maintainer and not caller.is_maintainer:
        raise HTTPException(403, f"account {caller.name}: not a maintainer; ask a maintainer of the board")
    if scope is not None and scope not in caller.scopes:
        raise HTTPException(
            403, f"scope {scope}: the token does not have it; use a token that has it, or make one on your account page"
        )
    return caller


def log_in(request: Request, response: Response, token: str) -> None:
    """Open a session with a token and set the browser's cookie. Call `check_csrf` first.

    Raises:
        HTTPException: 401, the token is invalid; 429, too many attempts had invalid tokens.
    """
    settings: Settings = request.app.state.settings
    opened = tokens.open_session(request.app.state.engine, token.strip(), settings.session_hours)
    if opened is None:
        spend(request, "log_ins")  # only failures count: a class may log in from one address at once
        raise HTTPException(401, "token: mistyped, revoked or expired; copy it again or use another one")
    start_session(request, response, *opened)


def start_session(request: Request, response: Response, caller: Caller, secret: str) -> None:
    """Give the browser the cookie of a session."""
    settings: Settings = request.app.state.settings
    response.set_cookie(
        cookie_name(request, "session"),
        secret,
        max_age=int(settings.session_hours * 3600),
        path="/",
        secure=settings.https,
        httponly=True,
        samesite="lax",
    )
    request.state.identity = Identity(**vars(caller), by="session")


def log_out(request: Request, response: Response) -> None:
    """End the browser's session and delete its cookie. Call `check_csrf` first."""
    name = cookie_name(request, "session")
    cookie = request.cookies.get(name)
    if cookie:
        tokens.close_session(request.app.state.engine, cookie)
    response.delete_cookie(name, path="/", secure=request.app.state.settings.https, httponly=True, samesite="lax")
    request.state.identity = None


# Cross-site requests.


def csrf_token(request: Request) -> str:
    """Return the value of the hidden field ``csrf`` of this browser's forms.

    A browser without a session gets a cookie for it from `leaderboard.web.guard.security`.
    """
    key = browser_key(request)
    if key is None:
        key = request.state.visit = secrets.token_urlsafe(32)
    return _derived(key)


def check_csrf(request: Request, sent: str | None) -> None:
    """Refuse requests that another site's page made the browser send, and count changes by a session.

    Requests with a token in the header do not come from browsers, so they pass.

    Raises:
        HTTPException: 403, the request is from another site or the form is outdated; 429, the account sends too much.
    """
    if request.method in _SAFE_METHODS or "authorization" in request.headers:
        return
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, _OTHER_SITE)
    origin = request.headers.get("origin")
    if origin is not None and not _is_own(request, origin):
        raise HTTPException(403, _OTHER_SITE)
    key = browser_key(request)
    if key is None or sent is None or not hmac.compare_digest(_derived(key).encode(), sent.encode("utf-8", "replace")):
        raise HTTPException(403, "the form is outdated or cookies are disabled; reload the form and send it again")
    caller = identity(request)
    if caller is not None:
        spend(request, "changes", caller.account_id)


def _is_own(request: Request, origin: str) -> bool:
    settings: Settings = request.app.state.settings
    try:
        scheme, host = address_of(origin)
    except ValueError:
        return False
    if settings.public_url is not None:
        return (scheme, host) == address_of(settings.public_url)
    return host == request.headers.get("host", "").lower()


def browser_key(request: Request) -> str | None:
    """Return a secret of this browser, which other sites do not know; None if it has no cookie."""
    # The cookie of a valid session, else of the visit: a form that is older than the end of a session is refused.
    if "authorization" not in request.headers and identity(request) is not None:
        cookie = request.cookies.get(cookie_name(request, "session"))
        if cookie:
            return cookie
    visit: str | None = getattr(request.state, "visit", None) or request.cookies.get(cookie_name(request, "visit"))
    return visit if visit and 32 <= len(visit) <= 100 else None


def _derived(key: str) -> str:
    return hmac.new(key.encode("utf-8", "replace"), b"alma csrf", hashlib.sha256).hexdigest()


def cookie_name(request: Request, kind: Literal["session", "visit", "sign-in"]) -> str:
    """Return the name of a cookie. With HTTPS, other sites of the domain cannot set this cookie."""
    return f"__Host-alma-{kind}" if request.app.state.settings.https else f"alma-{kind}"


def local_path(path: str | None, default: str = "/") -> str:
    """Return the path if it is a path of this board, else the default. A login never leads to another site.

    >>> local_path("/submit?a=1"), local_path("//evil.example"), local_path("https://evil.example"), local_path(None)
    ('/submit?a=1', '/', '/', '/')
    """
    if not path or not path.startswith("/") or path.startswith("//") or len(path) > 500:
        return default
    if any(character in "\\" or not 0x20 < ord(character) < 0x7F for character in path):
        return default
    return path
