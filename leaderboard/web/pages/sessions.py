"""Login with a token, logout, and registration of an account."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fastapi import APIRouter
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.accounts.accounts import register as register_account
from leaderboard.errors import AccountError, ConflictError
from leaderboard.web.guard.identity import identity, local_path, log_in, log_out
from leaderboard.web.guard.limits import network_of, spend
from leaderboard.web.view.forms import field, form_endpoint, form_page, redirect
from leaderboard.web.view.render import html

router = APIRouter()


def login_page(request: Request) -> Response:
    """Show the login form."""
    after = local_path(request.query_params.get("next"), "/account")
    return redirect(request, after) if identity(request) is not None else _form(request, "login.html", after=after)


def _form(request: Request, template: str, status: int = 200, problems: Sequence[str] = (), **value: str) -> Response:
    is_open = request.app.state.settings.registration == "open"
    providers = request.app.state.settings.providers
    return form_page(request, template, status, problems, open=is_open, providers=providers, **value)


def login_form(request: Request, status: int, problem: str) -> Response:
    """Show the login form again with the problem of a sign-in."""
    return _form(request, "login.html", status, [problem], after="/account")


def login(request: Request, form: FormData) -> Response:
    """Open a session of the browser."""
    after = local_path(field(form, "next"), "/account")
    response = redirect(request, after)
    try:
        log_in(request, response, field(form, "token"))
    except HTTPException as error:
        if error.status_code != 401:
            raise
        return _form(request, "login.html", 401, [str(error.detail)], after=after)
    return response


def logout(request: Request, form: FormData) -> Response:
    """End the browser's session."""
    response = redirect(request, "/")
    log_out(request, response)
    return response


def register_page(request: Request) -> Response:
    """Show the registration form."""
    return redirect(request, "/account") if identity(request) is not None else _form(request, "register.html", name="")


def register(request: Request, form: FormData) -> Response:
    """Make an account, show its first token and open a session."""
    if request.app.state.settings.registration != "open":
        raise HTTPException(403, "registration is closed; ask a maintainer of the board for an account")
    spend(request, "registrations")
    name = field(form, "name")
    try:
        per_day = request.app.state.settings.registrations_per_day
        account, token = register_account(request.app.state.engine, name, network=network_of(request), per_day=per_day)
    except (AccountError, ConflictError) as error:
        status = 409 if isinstance(error, ConflictError) else 422
        return _form(request, "register.html", status, [str(error)], name=name[:200])
    response = html(request, "token.html", 201, section="account", token=token, account=account.name, first=True)
    with suppress(OperationalError, PoolTimeoutError):  # the token is shown only now, also if the database is busy
        log_in(request, response, token.secret)
    return response


router.add_route("/login", login_page, methods=["GET"])
router.add_route("/login", form_endpoint(login), methods=["POST"])
router.add_route("/logout", form_endpoint(logout), methods=["POST"])
router.add_route("/register", register_page, methods=["GET"])
router.add_route("/register", form_endpoint(register), methods=["POST"])
