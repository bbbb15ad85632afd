"""Tokens of one's own, and accounts for maintainers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from leaderboard import accounts, tokens
from leaderboard.web import schemas
from leaderboard.web.api.common import LARGEST_ID, NO_TOKEN, Database, Offset, errors, require
from leaderboard.web.identity import Identity

router = APIRouter(tags=["accounts"])
Caller = Annotated[Identity, Depends(require())]
Owner = Annotated[Identity, Depends(require("manage"))]
Maintainer = Annotated[Identity, Depends(require("manage", maintainer=True))]
TokenId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of a token")]
AccountId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of an account")]


@router.get("/me", response_model=schemas.Me, responses=NO_TOKEN)
def me(caller: Caller) -> object:
    """Whom the token stands for, and what it may do."""
    return caller


@router.get("/tokens", response_model=list[schemas.Token], responses=NO_TOKEN)
def list_tokens(engine: Database, caller: Owner) -> object:
    """The account's tokens, the newest first."""
    return tokens.tokens_of(engine, caller.account_id)


@router.post(
    "/tokens",
    status_code=201,
    response_model=schemas.NewToken,
    responses={**NO_TOKEN, **errors(_409="the account has as many tokens as it may have")},
)
def make_token(engine: Database, caller: Owner, wanted: schemas.TokenRequest) -> object:
    """A new token, which may do no more than the one that asks for it."""
    return tokens.issue_token(
        engine, caller.account_id, wanted.name, scopes=wanted.scopes, days=wanted.days, within=caller.scopes
    )


@router.delete(
    "/tokens/{token_id}",
    status_code=204,
    response_class=Response,
    responses={**NO_TOKEN, **errors(_404="the account has no such token")},
)
def revoke_token(engine: Database, caller: Owner, token_id: TokenId) -> Response:
    """End a token, and the sessions of browsers that came from it."""
    tokens.revoke(engine, token_id, caller.account_id)
    return Response(status_code=204)


@router.get("/accounts", response_model=schemas.AccountsPage, responses=NO_TOKEN)
def list_accounts(
    engine: Database,
    caller: Maintainer,
    limit: Annotated[int, Query(ge=1, le=200, description="lines of the page")] = 50,
    offset: Offset = 0,
) -> object:
    """A page of the accounts, the first one first. For maintainers."""
    lines, total = accounts.list_accounts(engine, limit=limit, offset=offset)
    return {"lines": lines, "total": total}


@router.post(
    "/accounts",
    status_code=201,
    response_model=schemas.NewAccount,
    responses={**NO_TOKEN, **errors(_409="the name is taken")},
)
def make_account(engine: Database, caller: Maintainer, wanted: schemas.AccountRequest) -> object:
    """A new account and its first token, which may do all that the role allows. For maintainers."""
    account = accounts.make_account(engine, wanted.name, wanted.role, by=caller.account_id)
    return {"account": account, "token": tokens.issue_token(engine, account.id, "first token")}


@router.post(
    "/accounts/{account_id}/disable",
    response_model=schemas.Account,
    responses={**NO_TOKEN, **errors(_404="there is no such account", _409="it is your own")},
)
def disable_account(engine: Database, caller: Maintainer, account_id: AccountId) -> object:
    """Disable an account: its tokens and sessions open nothing. What it has sent stays. For maintainers."""
    return accounts.set_disabled(engine, account_id, True, by=caller.account_id)


@router.post(
    "/accounts/{account_id}/enable",
    response_model=schemas.Account,
    responses={**NO_TOKEN, **errors(_404="there is no such account")},
)
def enable_account(engine: Database, caller: Maintainer, account_id: AccountId) -> object:
    """Enable an account that was disabled. For maintainers."""
    return accounts.set_disabled(engine, account_id, False, by=caller.account_id)
