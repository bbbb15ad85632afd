"""Sign-in with another provider, and the identities of the caller's own account.

The browser keeps a random key in a cookie while it is at the provider. State, nonce and the secret of PKCE are derived
from the key. The state also depends on the cookie of the session or the visit: only the browser that began can finish,
and it links an identity only to the account that it was logged in to when it began.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Literal

from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from leaderboard.accounts import identities
from leaderboard.accounts.identities import Person
from leaderboard.errors import ConflictError, NotFoundError
from leaderboard.web.guard import providers
from leaderboard.web.guard.identity import browser_key, cookie_name, identity, local_path, require, start_session
from leaderboard.web.guard.limits import network_of, spend
from leaderboard.web.guard.providers import Provider, SignInError
from leaderboard.web.guard.settings import Settings
from leaderboard.web.pages.sessions import login_form
from leaderboard.web.view.forms import field, form_endpoint, redirect
from leaderboard.web.view.urls import whole_number

router = APIRouter()

_MINUTES = 10  # at the provider
_START_AGAIN = "the sign-in began in another browser or too long ago; start again"


def begin(request: Request, form: FormData) -> Response:
    """Send the browser to the provider."""
    provider = _provider(request)
    spend(request, "sign_ins")
    caller = identity(request)
    key = secrets.token_urlsafe(32)
    after = local_path(field(form, "next"), "/account")
    cookie = ".".join((key, str(caller.account_id if caller else 0), base64.urlsafe_b64encode(after.encode()).decode()))
    values = {kind: _derived(request, cookie, kind) for kind in _KINDS}
    try:
        url = providers.begin(provider, _back(request, provider), **values)
    except SignInError as error:
        return login_form(request, 502, str(error))
    response = RedirectResponse(url, 303)
    https = request.app.state.settings.https
    name = cookie_name(request, "sign-in")
    response.set_cookie(name, cookie, max_age=60 * _MINUTES, path="/", secure=https, httponly=True, samesite="lax")
    return response


def finish(request: Request) -> Response:
    """Take the browser back from the provider: open a session, make an account, or link the identity."""
    response = _finish(request)
    https = request.app.state.settings.https
    response.delete_cookie(cookie_name(request, "sign-in"), path="/", secure=https, httponly=True, samesite="lax")
    return response


def _finish(request: Request) -> Response:
    provider = _provider(request)
    query = request.query_params
    cookie = request.cookies.get(cookie_name(request, "sign-in"), "")
    state = query.get("state", "")
    if not cookie or not hmac.compare_digest(
        _derived(request, cookie, "state").encode(), state.encode("utf-8", "replace")
    ):
        spend(request, "log_ins")
        return login_form(request, 403, _START_AGAIN)
    code = query.get("code", "")
    if not code or len(code) > 2_000:
        return login_form(request, 403, f"{provider.label} did not confirm the sign-in; start again, or use a token")
    try:  # a browser can derive the state of a cookie that it made itself
        _, account_id, after = cookie.split(".")
        began_as, place = int(account_id), base64.urlsafe_b64decode(after).decode()
    except ValueError:
        return login_form(request, 403, _START_AGAIN)
    secret = {kind: _derived(request, cookie, kind) for kind in ("nonce", "verifier")}
    try:
        person = providers.finish(provider, _back(request, provider), code=code, **secret)
        return _known(request, person, began_as, place)
    except SignInError as error:
        spend(request, "log_ins")
        return login_form(request, 502, str(error))
    except ConflictError as error:
        return login_form(request, 409, str(error))


def _known(request: Request, person: Person, account_id: int, after: str) -> Response:
    settings: Settings = request.app.state.settings
    engine = request.app.state.engine
    if account_id:
        caller = require(request, "manage")  # the state has shown that it is the same session
        identities.link(engine, caller.account_id, person)
        return redirect(request, "/account")
    opened = identities.sign_in(engine, person, settings.session_hours)
    if opened is None:
        if settings.registration != "open":
            problem = (
                "no account has this identity; ask a maintainer for an account, log in with its token, and link it"
            )
            return login_form(request, 403, problem)
        spend(request, "registrations")
        per_day = settings.registrations_per_day
        identities.register_person(engine, person, network=network_of(request), per_day=per_day)
        opened = identities.sign_in(engine, person, settings.session_hours)
        assert opened is not None
    response = redirect(request, local_path(after, "/account"))
    start_session(request, response, *opened)
    return response


def unlink(request: Request, form: FormData) -> Response:
    """Remove an identity of the caller."""
    caller = require(request, "manage")
    try:
        identities.unlink(request.app.state.engine, caller.account_id, whole_number("id", field(form, "id")))
    except (NotFoundError, ConflictError) as error:
        raise HTTPException(404 if isinstance(error, NotFoundError) else 409, str(error)) from error
    return redirect(request, "/account")


def _provider(request: Request) -> Provider:
    settings: Settings = request.app.state.settings
    for provider in settings.providers:
        if provider.id == request.path_params["provider"]:
            return provider
    raise HTTPException(404, "this board has no such sign-in; log in with a token")


def _back(request: Request, provider: Provider) -> str:
    settings: Settings = request.app.state.settings
    assert settings.public_url is not None  # `Settings` requires it
    return f"{settings.public_url.rstrip('/')}/sign-in/{provider.id}/callback"


_Kind = Literal["state", "nonce", "verifier"]
_KINDS: tuple[_Kind, ...] = ("state", "nonce", "verifier")


def _derived(request: Request, cookie: str, kind: _Kind) -> str:
    key = f"{cookie}\0{browser_key(request) or ''}\0{request.path_params['provider']}"
    return hmac.new(key.encode("utf-8", "replace"), f"alma {kind}".encode(), hashlib.sha256).hexdigest()


router.add_route("/sign-in/{provider}", form_endpoint(begin), methods=["POST"])
router.add_route("/sign-in/{provider}/callback", finish, methods=["GET"])
router.add_route("/account/identities/unlink", form_endpoint(unlink), methods=["POST"])
