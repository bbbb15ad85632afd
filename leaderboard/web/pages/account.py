"""The page of the caller's own account: its tokens and its submissions."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.accounts.identities import identities_of
from leaderboard.accounts.tokens import issue_token, revoke, tokens_of
from leaderboard.board.listing import list_submissions
from leaderboard.errors import AccountError, ConflictError, NotFoundError
from leaderboard.web.guard.identity import Identity, identity, require
from leaderboard.web.view.forms import field, form_endpoint, form_page, redirect, redirect_to_login
from leaderboard.web.view.render import html
from leaderboard.web.view.urls import QueryError, whole_number

router = APIRouter()

MOST_LISTED = 20  # submissions
# What each scope allows.
SCOPES = {"submit": "send submissions", "review": "decide about flagged results", "manage": "make and revoke tokens"}


def account_page(request: Request) -> Response:
    """Show the tokens and submissions of the caller."""
    caller = identity(request)
    return redirect_to_login(request, "/account") if caller is None else _page(request, caller)


def _page(request: Request, caller: Identity, status: int = 200, problems: tuple[str, ...] = ()) -> Response:
    engine = request.app.state.engine
    manages = "manage" in caller.scopes  # the others see only what the API shows them
    tokens = [token for token in tokens_of(engine, caller.account_id) if manages or token.id == caller.token_id]
    return form_page(
        request,
        "account.html",
        status,
        problems,
        caller=caller,
        providers=request.app.state.settings.providers,
        identities=identities_of(engine, caller.account_id) if manages else [],
        tokens=tokens,
        scopes={name: text for name, text in SCOPES.items() if name in caller.scopes},
        submissions=list_submissions(engine, account_id=caller.account_id, limit=MOST_LISTED),
    )


def make_token(request: Request, form: FormData) -> Response:
    """Make a token and show it once."""
    caller = require(request, "manage")
    days = field(form, "days").strip()
    try:
        token = issue_token(
            request.app.state.engine,
            caller.account_id,
            field(form, "name"),
            scopes=[str(scope) for scope in form.getlist("scope")],
            days=whole_number("days", days) if days else None,
            within=caller.scopes,
        )
    except (QueryError, AccountError, ConflictError) as error:
        return _page(request, caller, 409 if isinstance(error, ConflictError) else 422, (str(error),))
    return html(request, "token.html", 201, section="account", token=token, account=caller.name, first=False)


def revoke_token(request: Request, form: FormData) -> Response:
    """Revoke a token of the caller."""
    caller = require(request, "manage")
    try:
        revoke(request.app.state.engine, whole_number("token", field(form, "token")), caller.account_id)
    except NotFoundError as error:
        return _page(request, caller, 404, (str(error),))
    return redirect(request, "/account")


router.add_route("/account", account_page, methods=["GET"])
router.add_route("/account/tokens", form_endpoint(make_token), methods=["POST"])
router.add_route("/account/tokens/revoke", form_endpoint(revoke_token), methods=["POST"])
