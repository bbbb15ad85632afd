"""Operations on the caller's own tokens, and on accounts (only for maintainers)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from leaderboard.accounts import accounts, tokens
from leaderboard.accounts.accounts import AccountInfo
from leaderboard.accounts.tokens import NewToken, TokenInfo
from leaderboard.client.client import Me, NewAccount
from leaderboard.database.tables import LARGEST_ID
from leaderboard.web.api.common import NO_TOKEN, Database, Offset, errors, require
from leaderboard.web.api.schemas import AccountRequest, AccountsPage, TokenRequest
from leaderboard.web.guard.identity import Identity

router = APIRouter(tags=["accounts"])
Caller = Annotated[Identity, Depends(require())]
Owner = Annotated[Identity, Depends(require("manage"))]
Maintainer = Annotated[Identity, Depends(require("manage", maintainer=True))]
TokenId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of a token")]
AccountId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of an account")]


@router.get("/me", responses=NO_TOKEN)
def me(caller: Caller) -> Me:
    """Return the account and the scopes of the token."""
    return Me(caller.account_id, caller.name, caller.role, caller.scopes)


@router.get("/tokens", responses=NO_TOKEN)
def list_tokens(engine: Database, caller: Owner) -> list[TokenInfo]:
    """Return the account's tokens, the newest first."""
    return tokens.tokens_of(engine, caller.account_id)


@router.post(
    "/tokens",
    status_code=201,
    responses={**NO_TOKEN, **errors(_409="the account has the maximum number of tokens")},
)
def make_token(engine: Database, caller: Owner, body: TokenRequest) -> NewToken:
    """Make a token with at most the scopes of the token that sends the request."""
    return tokens.issue_token(
        engine, caller.account_id, body.name, scopes=body.scopes, days=body.days, within=caller.scopes
    )


@router.delete(
    "/tokens/{token_id}",
    status_code=204,
    response_class=Response,
    responses={**NO_TOKEN, **errors(_404="the account has no such token")},
)
def revoke_token(engine: Database, caller: Owner, token_id: TokenId) -> Response:
    """Revoke a token and the browser sessions that were opened with it."""
    tokens.revoke(engine, token_id, caller.account_id)
    return Response(status_code=204)


@router.get("/accounts", responses=NO_TOKEN)
def list_accounts(
    engine: Database,
    caller: Maintainer,
    limit: Annotated[int, Query(ge=1, le=200, description="number of lines of the page")] = 50,
    offset: Offset = 0,
) -> AccountsPage:
    """Return a page of the accounts, the oldest first. Only for maintainers."""
    return AccountsPage(*accounts.list_accounts(engine, limit=limit, offset=offset))


@router.post(
    "/accounts",
    status_code=201,
    responses={**NO_TOKEN, **errors(_409="the name is taken")},
)
def make_account(engine: Database, caller: Maintainer, body: AccountRequest) -> NewAccount:
    """Make an account and its first token, which has all scopes of the role. Only for maintainers."""
    return NewAccount(*accounts.make_account(engine, body.name, body.role, by=caller.account_id))


@router.post(
    "/accounts/{account_id}/disable",
    responses={**NO_TOKEN, **errors(_404="there is no such account", _409="it is the caller's own account")},
)
def disable_account(engine: Database, caller: Maintainer, account_id: AccountId) -> AccountInfo:
    """Disable an account: its tokens and sessions become invalid, its submissions stay. Only for maintainers."""
    return accounts.set_disabled(engine, account_id, True, by=caller.account_id)


@router.post(
    "/accounts/{account_id}/enable",
    responses={**NO_TOKEN, **errors(_404="there is no such account")},
)
def enable_account(engine: Database, caller: Maintainer, account_id: AccountId) -> AccountInfo:
    """Enable a disabled account. Only for maintainers."""
    return accounts.set_disabled(engine, account_id, False, by=caller.account_id)
