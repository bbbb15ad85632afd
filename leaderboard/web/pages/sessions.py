"""To log in with a token, to log out, and to make an account."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.accounts import register as register_account
from leaderboard.errors import AccountError, ConflictError
from leaderboard.web.identity import csrf_token, identity, local_path, log_in, log_out
from leaderboard.web.limits import spend
from leaderboard.web.pages.forms import field, go, posted
from leaderboard.web.pages.render import html

router = APIRouter()


def login_page(request: Request) -> Response:
    """The form to log in."""
    after = local_path(request.query_params.get("next"), "/account")
    return go(request, after) if identity(request) is not None else _login_form(request, after)


def _login_form(request: Request, after: str, status: int = 200, problems: tuple[str, ...] = ()) -> Response:
    return html(
        request,
        "login.html",
        status,
        section="account",
        csrf=csrf_token(request),
        after=after,
        wrong=problems,
        open=request.app.state.settings.registration == "open",
    )


def login(request: Request, form: FormData) -> Response:
    """Open a session for the browser."""
    after = local_path(field(form, "next"), "/account")
    response = go(request, after)
    try:
        log_in(request, response, field(form, "token"))
    except HTTPException as error:
        if error.status_code != 401:
            raise
        return _login_form(request, after, 401, (str(error.detail),))
    return response


def logout(request: Request, form: FormData) -> Response:
    """End the browser's session."""
    response = go(request, "/")
    log_out(request, response)
    return response


def register_page(request: Request) -> Response:
    """The form to make an account, where everyone may."""
    return go(request, "/account") if identity(request) is not None else _register_form(request)


def _register_form(request: Request, name: str = "", status: int = 200, problems: tuple[str, ...] = ()) -> Response:
    return html(
        request,
        "register.html",
        status,
        section="account",
        csrf=csrf_token(request),
        name=name,
        wrong=problems,
        open=request.app.state.settings.registration == "open",
    )


def register(request: Request, form: FormData) -> Response:
    """Make an account, show its first token, and open a session with it."""
    if request.app.state.settings.registration != "open":
        raise HTTPException(403, "accounts are made by maintainers here; ask one of them")
    spend(request, "registrations")
    name = field(form, "name")
    try:
        account, token = register_account(request.app.state.engine, name)
    except (AccountError, ConflictError) as error:
        status = 409 if isinstance(error, ConflictError) else 422
        return _register_form(request, name[:200], status, (str(error),))
    response = html(request, "token.html", 201, section="account", token=token, account=account.name, first=True)
    log_in(request, response, token.secret)
    return response


router.add_route("/login", login_page, methods=["GET"], include_in_schema=False)
router.add_route("/login", posted(login), methods=["POST"], include_in_schema=False)
router.add_route("/logout", posted(logout), methods=["POST"], include_in_schema=False)
router.add_route("/register", register_page, methods=["GET"], include_in_schema=False)
router.add_route("/register", posted(register), methods=["POST"], include_in_schema=False)
