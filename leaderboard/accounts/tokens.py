"""Tokens, with which accounts act, and the sessions that are made from tokens. This module does not depend on HTTP.

A token is 256 random bits and is shown once. The database stores only its SHA-256 and finds tokens by it; an attacker
cannot choose the hash of a guess, so the time of a query reveals nothing. A *session* is a token that is made from
another token, for the cookie of the web page. It lives for some hours and ends with its parent token. The scopes of a
token limit its actions, and the present role of its account limits the scopes.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Engine, delete, func, or_, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session, joinedload

from leaderboard.accounts.names import plain_name
from leaderboard.database.damage import UNREADABLE, each_readable
from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import Account, Event, Role, Scope, Token
from leaderboard.errors import AccountError, ConflictError, NotFoundError
from leaderboard.text_safety import shown

# submit: send submissions; review: accept and reject results; manage: create and revoke tokens, and, for maintainers,
# accounts.
SCOPES_OF_ROLES: dict[Role, tuple[Scope, ...]] = {
    "submitter": ("submit", "manage"),
    "maintainer": ("submit", "review", "manage"),
}
SCOPES = SCOPES_OF_ROLES["maintainer"]
MAXIMUM_TOKENS = 50  # of an account, without revoked and expired tokens
LONGEST_TOKEN_DAYS = 3650
PREFIX = "alma_"  # lets scanners of published code recognize a token
_LONGEST_SECRET = 100  # characters; longer secrets are refused without a query
_USED_SECONDS = 600.0  # precision of the time of the last use
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """The account that acts with a token or a session.

    ``scopes`` are the scopes of the token that the role allows. The ``token_id`` of a session is that of its parent.
    """

    account_id: int
    name: str
    role: Role
    scopes: tuple[Scope, ...]
    token_id: int


@dataclass(frozen=True)
class NewToken:
    """A new token with its secret, which is shown once.

    Attributes:
        id: of the token.
        secret: authenticates the owner; it is stored nowhere.
        name: chosen by the owner.
        scopes: allowed actions.
        expires_at: end of the token, None for never.
    """

    id: int
    secret: str
    name: str
    scopes: tuple[Scope, ...]
    expires_at: datetime | None


@dataclass(frozen=True)
class TokenInfo:
    """The data of a token."""

    id: int
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


_TOKENS = TypeAdapter(list[TokenInfo])


def issue_token(
    engine: Engine,
    account_id: int,
    name: str,
    *,
    scopes: Sequence[str] | None = None,
    days: float | None = None,
    within: Sequence[str] = SCOPES,
) -> NewToken:
    """Create a token of an account. Only the returned value has its secret.

    The token has the given scopes, by default all that the role of the account allows and the caller has (``within``).
    It ends after ``days``, None for never.

    Raises:
        AccountError: the name, the scopes or the days break their rules.
        NotFoundError: the account does not exist.
        ConflictError: the account has the maximum number of tokens, or is disabled.
    """
    with writing(engine) as session:
        # The lock prevents two processes from both creating the last allowed token.
        account = session.scalars(select(Account).where(Account.id == account_id).with_for_update()).first()
        if account is None:
            raise NotFoundError(f"account {account_id}: does not exist; list the accounts")
        return add_token(session, account, name, scopes=scopes, days=days, within=within)


def add_token(
    session: Session,
    account: Account,
    name: str,
    *,
    scopes: Sequence[str] | None = None,
    days: float | None = None,
    within: Sequence[str] = SCOPES,
) -> NewToken:
    """Create a token in a transaction that holds the row of its account; see `issue_token`."""
    name = plain_name("name of a token", name)
    if days is not None and not 0 < days <= LONGEST_TOKEN_DAYS:
        raise AccountError(
            f"days={days}: must be more than 0 and at most {LONGEST_TOKEN_DAYS}; give no days for a token without end"
        )
    if account.disabled_at is not None:
        raise ConflictError(f"account {shown(account.name)}: disabled; enable it first")
    allowed = tuple(scope for scope in SCOPES_OF_ROLES[account.role] if scope in within)
    given = tuple(scope for scope in SCOPES if scope in (allowed if scopes is None else scopes))
    wrong = [scope for scope in scopes or () if scope not in allowed]
    if wrong or not given:
        raise AccountError(
            f"scopes={shown(list(scopes or ()))}: must be one or more of {', '.join(allowed) or 'none'}; remove "
            "what the role or the caller does not have"
        )
    moment = now(session)
    unexpired = or_(Token.expires_at.is_(None), Token.expires_at > moment)
    alive = select(func.count()).where(*_tokens_of(account.id), Token.revoked_at.is_(None), unexpired)
    if (session.scalar(alive) or 0) >= MAXIMUM_TOKENS:
        raise ConflictError(
            f"account {shown(account.name)}: has {MAXIMUM_TOKENS} tokens, the maximum; revoke one first"
        )
    secret = new_secret()
    token = Token(
        account_id=account.id,
        name=name,
        hash=hash_of(secret),
        scopes=list(given),
        created_at=moment,
        expires_at=None if days is None else moment + timedelta(days=days),
    )
    session.add(token)
    session.flush()
    log_account(session, "token made", account.id, f"token {token.id}, {', '.join(given)}")
    return NewToken(token.id, secret, name, given, token.expires_at)


def authenticate(engine: Engine, secret: str) -> Caller | None:
    """Return the account of a token; None if the token is unknown, revoked or expired, or the account is disabled."""
    return _authenticate(engine, secret, session_only=False)


def tokens_of(engine: Engine, account_id: int) -> list[TokenInfo]:
    """Return the tokens of an account without its sessions and without damaged ones, the newest first."""
    with reading(engine) as session:
        ids = session.scalars(select(Token.id).where(*_tokens_of(account_id)).order_by(Token.id.desc())).all()

        def read(ids: Sequence[int]) -> list[TokenInfo]:
            found = session.scalars(select(Token).where(Token.id.in_(ids)).order_by(Token.id.desc()))
            return _TOKENS.validate_python([vars(_token_info(token)) for token in found])

        return each_readable(ids, read)[0]


def revoke(engine: Engine, token_id: int, account_id: int | None = None) -> None:
    """Revoke a token, which also ends its sessions. A second call has no effect.

    Raises:
        NotFoundError: no token has this id, or it belongs to another account than ``account_id``.
    """
    with writing(engine) as session:
        token = session.get(Token, token_id)
        if token is None or token.parent_id is not None or account_id not in (None, token.account_id):
            raise NotFoundError(f"token {token_id}: does not exist; list the tokens to see their ids")
        if token.revoked_at is None:
            token.revoked_at = now(session)
            log_account(session, "token revoked", token.account_id, f"token {token.id}")


# Sessions.


def open_session(engine: Engine, secret: str, hours: float = 12.0) -> tuple[Caller, str] | None:
    """Create a session of a token; return its caller and its secret for the cookie, or None if the token is invalid."""
    caller = authenticate(engine, secret)
    if caller is None:
        return None
    with writing(engine) as session:
        return caller, new_session(session, session.get_one(Token, caller.token_id), hours)


def new_session(session: Session, parent: Token, hours: float) -> str:
    """Add a session of a token that is alive, and return its secret. Ended sessions of the account are deleted."""
    secret, moment = new_secret(), now(session)
    sessions = Token.account_id == parent.account_id, Token.parent_id.is_not(None)
    session.execute(delete(Token).where(*sessions, Token.expires_at <= moment))
    end = moment + timedelta(hours=hours)
    session.add(
        Token(
            account_id=parent.account_id,
            parent_id=parent.id,
            name="session",
            hash=hash_of(secret),
            scopes=list(parent.scopes),
            created_at=moment,
            expires_at=min(end, parent.expires_at) if parent.expires_at else end,
        )
    )
    return secret


def session_caller(account: Account, token: Token) -> Caller:
    """Return the caller of a token, or of a session of it, whose account is not disabled."""
    allowed = SCOPES_OF_ROLES.get(account.role, ())
    scopes = tuple(scope for scope in SCOPES if scope in token.scopes and scope in allowed)
    return Caller(account.id, str(account.name), account.role, scopes, token.parent_id or token.id)


def authenticate_session(engine: Engine, secret: str) -> Caller | None:
    """Return the account of a session; None if the session or its parent token has ended."""
    return _authenticate(engine, secret, session_only=True)


def close_session(engine: Engine, secret: str) -> None:
    """End a session. An unknown secret has no effect."""
    with writing(engine) as session:
        session.execute(delete(Token).where(Token.hash == hash_of(secret), Token.parent_id.is_not(None)))


def new_secret() -> str:
    """Return a new secret of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """Return the SHA-256 of a secret, for storage. 256 random bits need neither a salt nor a slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _authenticate(engine: Engine, secret: str, *, session_only: bool) -> Caller | None:
    if not secret.startswith(PREFIX) or len(secret) > _LONGEST_SECRET:
        return None
    try:
        return _caller(engine, secret, session_only)
    except UNREADABLE as error:  # a damaged row of the token or the account gives no access
        log.warning("a token in the database is damaged: %r", error)
        return None


def _caller(engine: Engine, secret: str, session_only: bool) -> Caller | None:
    with reading(engine) as session:
        chosen = select(Token).where(Token.hash == hash_of(secret))
        token = session.scalars(chosen.options(joinedload(Token.account), joinedload(Token.parent))).first()
        if token is None or (token.parent_id is not None) != session_only:
            return None
        moment = now(session)
        if not all(_is_alive(each, moment) for each in (token, token.parent) if each is not None):
            return None
        account = token.account
        if account.disabled_at is not None:
            return None
        caller = session_caller(account, token)
        unused = token.last_used_at is None or (moment - token.last_used_at).total_seconds() > _USED_SECONDS
    if unused:
        # Authentication must not fail because the database is busy.
        with suppress(OperationalError, PoolTimeoutError), writing(engine) as session:
            session.execute(update(Token).where(Token.id == token.id).values(last_used_at=now(session)))
    return caller


def _is_alive(token: Token, moment: datetime) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > moment)


def _tokens_of(account_id: int) -> tuple[ColumnElement[bool], ...]:
    """Return the condition for the tokens of an account without its sessions."""
    return Token.account_id == account_id, Token.parent_id.is_(None)


def _token_info(token: Token) -> TokenInfo:
    moments = token.created_at, token.expires_at, token.revoked_at, token.last_used_at
    return TokenInfo(token.id, token.name, tuple(token.scopes), *moments)


def log_account(session: Session, kind: str, account_id: int, text: str) -> None:
    """Add an entry about an account or a token to the audit log."""
    session.add(Event(at=now(session), kind=kind, account_id=account_id, text=text))
