"""One's own account: its tokens and its submissions."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.errors import AccountError, ConflictError, NotFoundError
from leaderboard.recent import recent
from leaderboard.text_rules import shown
from leaderboard.tokens import issue_token, revoke, tokens_of
from leaderboard.web.identity import Identity, csrf_token, identity
from leaderboard.web.pages.forms import field, go, log_in_first, posted, require
from leaderboard.web.pages.render import error_page, html

router = APIRouter()

OWN = 20  # submissions that are listed
# What a token may do, in words.
SCOPES = {
    "submit": "send submissions",
    "review": "decide about flagged results",
    "manage": "make and revoke tokens",
}


def account_page(request: Request) -> Response:
    """Tokens and submissions of who is logged in."""
    caller = identity(request)
    return log_in_first(request, "/account") if caller is None else _page(request, caller)


def _page(request: Request, caller: Identity, status: int = 200, problems: tuple[str, ...] = ()) -> Response:
    engine = request.app.state.engine
    submissions, total = recent(engine, account_id=caller.account_id, limit=OWN)
    return html(
        request,
        "account.html",
        status,
        section="account",
        csrf=csrf_token(request),
        caller=caller,
        tokens=tokens_of(engine, caller.account_id),
        scopes={name: words for name, words in SCOPES.items() if name in caller.scopes},
        submissions=submissions,
        total=total,
        wrong=problems,
    )


def make_token(request: Request, form: FormData) -> Response:
    """Make a token and show it, once."""
    caller = require(request, "manage")
    days = field(form, "days").strip()
    try:
        if days and not (days.isascii() and days.isdecimal() and len(days) <= 6):
            raise AccountError(f"days={shown(days)}: give a whole number of days, or nothing for a token without end")
        token = issue_token(
            request.app.state.engine,
            caller.account_id,
            field(form, "name"),
            scopes=[str(scope) for scope in form.getlist("scope")],
            days=int(days) if days else None,
            within=caller.scopes,
        )
    except (AccountError, ConflictError) as error:
        return _page(request, caller, 409 if isinstance(error, ConflictError) else 422, (str(error),))
    return html(request, "token.html", 201, section="account", token=token, account=caller.name, first=False)


def revoke_token(request: Request, form: FormData) -> Response:
    """End a token of one's own."""
    caller = require(request, "manage")
    number = field(form, "token")
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        return error_page(request, 422, "This is no token", [f"token={shown(number)}: send the form of the page"])
    try:
        revoke(request.app.state.engine, int(number), caller.account_id)
    except NotFoundError as error:
        return _page(request, caller, 404, (str(error),))
    return go(request, "/account")


router.add_route("/account", account_page, methods=["GET"], include_in_schema=False)
router.add_route("/account/tokens", posted(make_token), methods=["POST"], include_in_schema=False)
router.add_route("/account/tokens/revoke", posted(revoke_token), methods=["POST"], include_in_schema=False)
