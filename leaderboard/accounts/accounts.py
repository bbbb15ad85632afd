"""The accounts of submitters and maintainers. `leaderboard.accounts.tokens` has the tokens with which they act."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from leaderboard.accounts.tokens import NewToken, issue_token, log_account, plain_name
from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import ROLES, Account, Role
from leaderboard.errors import AccountError, ConflictError, NotFoundError, SubmissionError
from leaderboard.text_safety import shown


@dataclass(frozen=True)
class AccountInfo:
    """The data of an account."""

    id: int
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


def make_account(engine: Engine, name: str, role: str = "submitter", *, by: int | None = None) -> AccountInfo:
    """Create an account.

    ``by`` is the id of the account that creates it, for the log; None for the account itself or the command line.

    Raises:
        AccountError: the name or the role breaks its rule.
        ConflictError: the name is taken, without regard to case.
    """
    name = plain_name("account", name)
    if role not in ROLES:
        raise AccountError(f"role={shown(role)}: must be one of {', '.join(ROLES)}")
    taken = ConflictError(f"account {shown(name)}: the name is taken; choose another one")
    try:
        with writing(engine) as session:
            if session.scalars(select(Account.id).where(func.lower(Account.name) == func.lower(name))).first():
                raise taken
            account = Account(name=name, role=role, created_at=now(session))
            session.add(account)
            session.flush()
            log_account(session, "account made", by or account.id, f"{name}, {role}")
            return _account_info(account)
    except IntegrityError as error:  # created by another process between the query and the write
        raise taken from error


def register(engine: Engine, name: str, token_name: str = "first token") -> tuple[AccountInfo, NewToken]:
    """Create an account of a submitter and its first token, for a user who registers."""
    account = make_account(engine, name)
    return account, issue_token(engine, account.id, token_name)


def find_or_make_account(session: Session, name: str) -> Account:
    """Return the account of a name. If there is none, create it as a submitter's account.

    Raises:
        SubmissionError: the name breaks its rule, or the account is disabled.
    """
    try:
        name = plain_name("account", name)
    except AccountError as error:
        raise SubmissionError(str(error)) from error
    account = session.scalars(select(Account).where(Account.name == name)).first()
    if account is None:
        account = Account(name=name, role="submitter", created_at=now(session))
        session.add(account)
        session.flush()
    if account.disabled_at is not None:
        raise SubmissionError(f"account {shown(name)}: disabled; ask a maintainer of the board")
    return account


def find_account(engine: Engine, name: str) -> AccountInfo:
    """Return the account of a name.

    Raises:
        NotFoundError: no account has this name.
    """
    with reading(engine) as session:
        account = session.scalars(select(Account).where(Account.name == name.strip())).first()
        if account is None:
            raise NotFoundError(f"account {shown(name)}: does not exist; `account list` shows all accounts")
        return _account_info(account)


def list_accounts(engine: Engine, *, limit: int = 100, offset: int = 0) -> tuple[list[AccountInfo], int]:
    """Return a page of the accounts in the order of their creation, and the number of all accounts."""
    with reading(engine) as session:
        total = session.scalar(select(func.count()).select_from(Account)) or 0
        found = session.scalars(select(Account).order_by(Account.id).limit(limit).offset(offset))
        return [_account_info(account) for account in found], total


def has_maintainer(engine: Engine) -> bool:
    """Return whether an account that is not disabled has the role maintainer."""
    with reading(engine) as session:
        chosen = select(Account.id).where(Account.role == "maintainer", Account.disabled_at.is_(None)).limit(1)
        return session.scalars(chosen).first() is not None


def set_disabled(engine: Engine, account_id: int, disabled: bool, *, by: int | None = None) -> AccountInfo:
    """Disable an account, so that its tokens are refused, or enable it again. Its submissions are kept.

    Raises:
        NotFoundError: the account does not exist.
        ConflictError: the account would disable itself.
    """
    if disabled and by == account_id:
        raise ConflictError(f"account {account_id}: you cannot disable your own account; ask another maintainer")
    with writing(engine) as session:
        account = session.get(Account, account_id)
        if account is None:
            raise NotFoundError(f"account {account_id}: does not exist; list the accounts to see their ids")
        if (account.disabled_at is not None) != disabled:
            account.disabled_at = now(session) if disabled else None
            log_account(session, "account disabled" if disabled else "account enabled", by or account_id, account.name)
        return _account_info(account)


def _account_info(account: Account) -> AccountInfo:
    return AccountInfo(account.id, account.name, account.role, account.created_at, account.disabled_at)
