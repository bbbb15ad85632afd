"""The tokens by which accounts act, and the sessions that come from them. Nothing here knows of HTTP.

A token is 256 random bits, shown once. The database has its SHA-256 alone, by which it is looked up: who guesses cannot
steer that number, so that the time of a look-up tells nothing. A *session* is a token that came from another one, for
the web page's cookie; it lives for some hours and ends with the token that it came from. What a token may do is said by
its scopes, and never more than its account's role allows at that moment.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Engine, delete, func, or_, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session, joinedload

from leaderboard.database import Account, Event, Token
from leaderboard.engine import now, reading, writing
from leaderboard.errors import AccountError, ConflictError, NotFoundError
from leaderboard.text_rules import refused_character, shown

# submit: send submissions; review: decide about results; manage: make and revoke tokens, and accounts for maintainers.
SCOPES_OF_ROLES: dict[str, tuple[str, ...]] = {
    "submitter": ("submit", "manage"),
    "maintainer": ("submit", "review", "manage"),
}
SCOPES = SCOPES_OF_ROLES["maintainer"]
MAXIMUM_TOKENS = 50  # of an account, that are neither revoked nor over
LONGEST_TOKEN_DAYS = 3650
SESSION_HOURS = 12.0
PREFIX = "alma_"  # by which scanners of published code know one
_LONGEST_SECRET = 100  # characters that are looked at at all
_USED_SECONDS = 600.0  # how exactly it is known when a token was used last


@dataclass(frozen=True)
class Caller:
    """Whom a token or a session stands for.

    Attributes:
        account_id: of the account.
        name: of the account.
        role: submitter or maintainer.
        scopes: what it may do: the token's, as far as the role allows.
        token_id: of the token; of a session, the token that it came from.
    """

    account_id: int
    name: str
    role: str
    scopes: tuple[str, ...]
    token_id: int


@dataclass(frozen=True)
class NewToken:
    """A token as it is shown once.

    Attributes:
        id: of the token.
        secret: what its owner shows from now on; it is stored nowhere.
        name: what its owner calls it.
        scopes: what it may do.
        expires_at: when it ends, None for never.
    """

    id: int
    secret: str
    name: str
    scopes: tuple[str, ...]
    expires_at: datetime | None


@dataclass(frozen=True)
class TokenInfo:
    """What is known of a token."""

    id: int
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


def issue_token(
    engine: Engine,
    account_id: int,
    name: str,
    *,
    scopes: Sequence[str] | None = None,
    days: float | None = None,
    within: Sequence[str] = SCOPES,
) -> NewToken:
    """A new token of an account. Its secret is in what this gives and nowhere else.

    Args:
        engine: of the board's database.
        account_id: of the account.
        name: what its owner calls it, 1 to 80 characters.
        scopes: what it may do; by default all that its role and ``within`` allow.
        days: after which it ends; None for never.
        within: scopes of whoever asks for it, beyond which nothing is given.

    Raises:
        AccountError: the name, the scopes or the days break their rules.
        NotFoundError: there is no such account.
        ConflictError: the account has as many tokens as it may have, or is disabled.
    """
    name = plain_name("name of a token", name)
    if days is not None and not 0 < days <= LONGEST_TOKEN_DAYS:
        raise AccountError(
            f"days={days}: a token lives for more than 0 and up to {LONGEST_TOKEN_DAYS} days, or for ever"
        )
    with writing(engine) as session:
        # Locked, so that two at once do not both find room for one more.
        account = session.scalars(select(Account).where(Account.id == account_id).with_for_update()).first()
        if account is None:
            raise NotFoundError(f"account {account_id}: there is none of this number")
        if account.disabled_at is not None:
            raise ConflictError(f"account {shown(account.name)}: disabled; enable it first")
        allowed = tuple(scope for scope in SCOPES_OF_ROLES[account.role] if scope in within)
        given = tuple(scope for scope in SCOPES if scope in (allowed if scopes is None else scopes))
        wrong = [scope for scope in scopes or () if scope not in allowed]
        if wrong or not given:
            raise AccountError(
                f"scopes={shown(list(scopes or ()))}: give one or more of {', '.join(allowed) or 'none'}, which is "
                "what may be given here"
            )
        moment = now(session)
        alive = select(func.count()).where(Token.account_id == account_id, Token.parent_id.is_(None), *_alive(moment))
        if (session.scalar(alive) or 0) >= MAXIMUM_TOKENS:
            raise ConflictError(f"account {shown(account.name)}: has {MAXIMUM_TOKENS} tokens; revoke one first")
        secret = new_secret()
        token = Token(
            account_id=account_id,
            name=name,
            hash=hash_of(secret),
            scopes=list(given),
            created_at=moment,
            expires_at=None if days is None else moment + timedelta(days=days),
        )
        session.add(token)
        session.flush()
        log_account(session, "token made", account_id, f"token {token.id}, {', '.join(given)}")
        return NewToken(token.id, secret, name, given, token.expires_at)


def authenticate(engine: Engine, secret: str) -> Caller | None:
    """Whom a token stands for; None where it is none, is revoked or over, or its account is disabled."""
    return _authenticate(engine, secret, session_only=False)


def tokens_of(engine: Engine, account_id: int) -> list[TokenInfo]:
    """The tokens of an account, without its sessions, the newest first."""
    with reading(engine) as session:
        found = session.scalars(
            select(Token).where(Token.account_id == account_id, Token.parent_id.is_(None)).order_by(Token.id.desc())
        )
        return [
            TokenInfo(
                token.id,
                token.name,
                tuple(token.scopes),
                token.created_at,
                token.expires_at,
                token.revoked_at,
                token.last_used_at,
            )
            for token in found
        ]


def revoke(engine: Engine, token_id: int, account_id: int | None = None) -> None:
    """End a token and all sessions that came from it. One that is revoked already stays so.

    Args:
        engine: of the board's database.
        token_id: of the token.
        account_id: of whom it must be; None for anyone.

    Raises:
        NotFoundError: the account has no such token.
    """
    with writing(engine) as session:
        token = session.get(Token, token_id)
        if token is None or token.parent_id is not None or account_id not in (None, token.account_id):
            raise NotFoundError(
                f"token {token_id}: there is none of this number; list the tokens to see which there are"
            )
        if token.revoked_at is None:
            token.revoked_at = now(session)
            log_account(session, "token revoked", token.account_id, f"token {token.id}")


# Sessions.


def open_session(engine: Engine, secret: str, hours: float = SESSION_HOURS) -> tuple[Caller, str] | None:
    """A session of a token, and its secret for the cookie; None where the token opens nothing."""
    caller = authenticate(engine, secret)
    if caller is None:
        return None
    session_secret = new_secret()
    with writing(engine) as session:
        moment = now(session)
        # Those that are over are of no use to anyone; here they go.
        session.execute(
            delete(Token).where(
                Token.account_id == caller.account_id, Token.parent_id.is_not(None), Token.expires_at <= moment
            )
        )
        parent = session.get_one(Token, caller.token_id)
        end = moment + timedelta(hours=hours)
        session.add(
            Token(
                account_id=caller.account_id,
                parent_id=parent.id,
                name="session",
                hash=hash_of(session_secret),
                scopes=list(parent.scopes),
                created_at=moment,
                expires_at=min(end, parent.expires_at) if parent.expires_at else end,
            )
        )
    return caller, session_secret


def authenticate_session(engine: Engine, secret: str) -> Caller | None:
    """Whom a session stands for; None where it is over, or the token that it came from is."""
    return _authenticate(engine, secret, session_only=True)


def close_session(engine: Engine, secret: str) -> None:
    """End a session. Nothing happens where there is none."""
    with writing(engine) as session:
        session.execute(delete(Token).where(Token.hash == hash_of(secret), Token.parent_id.is_not(None)))


def new_secret() -> str:
    """256 random bits, as they are shown."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """What is stored of a secret: its SHA-256. It needs no salt and no slowness, since nobody guesses 256 bits."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _authenticate(engine: Engine, secret: str, *, session_only: bool) -> Caller | None:
    if not secret.startswith(PREFIX) or len(secret) > _LONGEST_SECRET:
        return None
    with reading(engine) as session:
        token = session.scalars(
            select(Token)
            .where(
                Token.hash == hash_of(secret),
                Token.parent_id.is_not(None) if session_only else Token.parent_id.is_(None),
            )
            .options(joinedload(Token.account), joinedload(Token.parent))
        ).first()
        if token is None:
            return None
        moment = now(session)
        if not all(_lives(one, moment) for one in (token, token.parent) if one is not None):
            return None
        account = token.account
        if account.disabled_at is not None:
            return None
        allowed = SCOPES_OF_ROLES.get(account.role, ())
        scopes = tuple(scope for scope in SCOPES if scope in token.scopes and scope in allowed)
        caller = Caller(account.id, account.name, account.role, scopes, token.parent_id or token.id)
        unused = token.last_used_at is None or (moment - token.last_used_at).total_seconds() > _USED_SECONDS
    if unused:
        _note_use(engine, token.id)
    return caller


def _note_use(engine: Engine, token_id: int) -> None:
    try:
        with writing(engine) as session:
            token = session.get(Token, token_id)
            if token is not None:
                token.last_used_at = now(session)
    except (OperationalError, PoolTimeoutError):  # a busy database is no reason to turn anyone away
        pass


def _lives(token: Token, moment: datetime) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > moment)


def _alive(moment: datetime) -> tuple[ColumnElement[bool], ...]:
    return Token.revoked_at.is_(None), or_(Token.expires_at.is_(None), Token.expires_at > moment)


def plain_name(what: str, text: str) -> str:
    """A name without the space around it.

    Raises:
        AccountError: it is not 1 to 80 characters that can be shown.
    """
    text = text.strip()
    refused = refused_character(text)
    if refused is not None or not 1 <= len(text) <= 80:
        raise AccountError(f"{what} {shown(text)}: {refused or 'not 1 to 80 characters'}; choose another name")
    return text


def log_account(session: Session, kind: str, account_id: int, text: str) -> None:
    """Add a line to the audit log about accounts and tokens."""
    session.add(Event(at=now(session), kind=kind, account_id=account_id, text=text))
