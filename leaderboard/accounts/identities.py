"""Identities at other providers, such as GitHub, with which accounts sign in. This module does not depend on HTTP.

An identity belongs to one account. It opens sessions through a token of the account whose secret nobody knows, so the
account sees it among its tokens, and revoking it ends its sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from leaderboard.accounts.accounts import AccountInfo, account_info, making_account
from leaderboard.accounts.names import require_unreserved
from leaderboard.accounts.tokens import (
    SCOPES,
    SCOPES_OF_ROLES,
    Caller,
    hash_of,
    log_account,
    new_secret,
    new_session,
    session_caller,
)
from leaderboard.database.damage import each_readable
from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import Account, Identity, Token
from leaderboard.errors import AccountError, ConflictError, NotFoundError
from leaderboard.text_safety import printable, storable


@dataclass(frozen=True)
class Person:
    """A person as a provider knows them.

    Attributes:
        provider: id of the provider, such as ``github``.
        subject: the provider's permanent id of the person.
        name: how the provider calls the person; it may change.
    """

    provider: str
    subject: str
    name: str


@dataclass(frozen=True)
class IdentityInfo:
    """An identity of an account."""

    id: int
    provider: str
    name: str
    created_at: datetime


def sign_in(engine: Engine, person: Person, hours: float = 12.0) -> tuple[Caller, str] | None:
    """Open a session of the account of a person; return its caller and its secret, or None if there is no account.

    Raises:
        ConflictError: the account is disabled.
    """
    with writing(engine) as session:
        identity = _find(session, person)
        if identity is None:
            return None
        account = identity.account
        if account.disabled_at is not None:
            raise ConflictError(f"account {account.name}: disabled; ask a maintainer of the board")
        identity.name = _shown_name(person)
        moment = now(session)
        token = session.get(Token, identity.token_id) if identity.token_id is not None else None
        if token is None or token.revoked_at is not None:
            token = Token(
                account_id=account.id,
                name=storable(f"signed in with {person.provider} as {identity.name}", 80),
                hash=hash_of(new_secret()),  # nobody knows the secret
                scopes=[scope for scope in SCOPES if scope in SCOPES_OF_ROLES[account.role]],
                created_at=moment,
            )
            session.add(token)
            session.flush()
            identity.token_id = token.id
            log_account(session, "token made", account.id, f"token {token.id}, {person.provider}")
        token.last_used_at = moment
        return session_caller(account, token), new_session(session, token, hours)


def link(engine: Engine, account_id: int, person: Person) -> None:
    """Let a person sign in to an account. A second call has no effect.

    Raises:
        ConflictError: the person signs in to another account.
        NotFoundError: there is no such account.
    """
    taken = ConflictError(
        f"{person.provider} {_shown_name(person)}: signs in to another account; unlink it there first"
    )
    try:
        with writing(engine) as session:
            identity = _find(session, person)
            if identity is not None and identity.account_id != account_id:
                raise taken
            if session.get(Account, account_id) is None:
                raise NotFoundError(f"account {account_id}: does not exist; log in again")
            if identity is None:
                _add(session, account_id, person)
    except IntegrityError as error:  # linked by another process between the query and the write
        raise taken from error


def register_person(engine: Engine, person: Person, *, network: str | None, per_day: int | None) -> AccountInfo:
    """Make an account for a person who has none, under a free name like the provider's.

    Raises:
        ConflictError: the person has an account, or all such names are taken.
        TooManyError: the client address has reached its limit.
    """
    for name in _names(person):
        try:
            require_unreserved(name)
            with making_account(engine, name, network=network, per_day=per_day) as (session, account):
                _add(session, account.id, person)
                return account_info(account)
        except (AccountError, ConflictError):
            continue
    raise ConflictError(
        f"{person.name}: all names like it are taken, or the account was made a moment ago; sign in again, or ask a "
        "maintainer for an account, and link it"
    )


def identities_of(engine: Engine, account_id: int) -> list[IdentityInfo]:
    """Return the identities of an account without damaged ones, the oldest first."""
    with reading(engine) as session:
        ids = session.scalars(select(Identity.id).where(Identity.account_id == account_id).order_by(Identity.id)).all()

        def read(ids: Sequence[int]) -> list[IdentityInfo]:
            found = session.scalars(select(Identity).where(Identity.id.in_(ids)).order_by(Identity.id))
            return [IdentityInfo(each.id, each.provider, each.name, each.created_at) for each in found]

        return each_readable(ids, read)[0]


def unlink(engine: Engine, account_id: int, identity_id: int) -> None:
    """Remove an identity of an account, and end its sessions.

    Raises:
        NotFoundError: the account has no such identity.
        ConflictError: the account has no other way to log in.
    """
    with writing(engine) as session:
        identity = session.get(Identity, identity_id)
        if identity is None or identity.account_id != account_id:
            raise NotFoundError(f"identity {identity_id}: does not exist; see the page of your account")
        moment = now(session)
        of_identities = select(Identity.token_id).where(
            Identity.account_id == account_id, Identity.token_id.is_not(None)
        )
        unexpired = or_(Token.expires_at.is_(None), Token.expires_at > moment)
        own = (Token.account_id == account_id, Token.parent_id.is_(None), Token.revoked_at.is_(None), unexpired)
        tokens = (
            session.scalar(select(func.count()).select_from(Token).where(*own, Token.id.not_in(of_identities))) or 0
        )
        others = select(func.count()).where(Identity.account_id == account_id, Identity.id != identity_id)
        if not tokens and not session.scalar(others):
            raise ConflictError(f"identity {identity_id}: the only way to log in; make a token first")
        if identity.token_id is not None:
            session.execute(update(Token).where(Token.id == identity.token_id).values(revoked_at=moment))
        log_account(session, "identity unlinked", account_id, f"{identity.provider} {identity.name}")
        session.delete(identity)


def _find(session: Session, person: Person) -> Identity | None:
    same = Identity.provider == person.provider, Identity.subject == person.subject
    return session.scalars(select(Identity).where(*same)).first()


def _add(session: Session, account_id: int, person: Person) -> None:
    row = {"provider": person.provider, "subject": person.subject, "name": _shown_name(person)}
    session.add(Identity(account_id=account_id, created_at=now(session), **row))
    log_account(session, "identity linked", account_id, f"{person.provider} {_shown_name(person)}")


def _shown_name(person: Person) -> str:
    return storable(printable(person.name), 80)


def _names(person: Person) -> Iterator[str]:
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", person.name)[:24].strip("._-") or person.provider
    yield base
    yield f"{base}-{person.provider}"
    for number in range(2, 50):
        yield f"{base}-{person.provider}-{number}"
