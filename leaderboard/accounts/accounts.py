"""The accounts of submitters and maintainers. `leaderboard.accounts.tokens` has the tokens with which they act."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import TypeAdapter
from sqlalchemy import Engine, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from leaderboard.accounts.names import account_name, require_unreserved
from leaderboard.accounts.tokens import NewToken, add_token, log_account
from leaderboard.database.damage import each_readable
from leaderboard.database.engine import lock, now, reading, writing
from leaderboard.database.skeleton import skeleton
from leaderboard.database.tables import ROLES, Account, Role
from leaderboard.errors import AccountError, ConflictError, NotFoundError, SubmissionError, TooManyError
from leaderboard.text_safety import shown

DAY = timedelta(hours=24)


@dataclass(frozen=True)
class AccountInfo:
    """The data of an account."""

    id: int
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


_ACCOUNTS = TypeAdapter(list[AccountInfo])


def make_account(
    engine: Engine,
    name: str,
    role: str = "submitter",
    *,
    by: int | None = None,
    network: str | None = None,
    per_day: int | None = None,
) -> tuple[AccountInfo, NewToken]:
    """Create an account and its first token, which has all scopes of the role.

    Args:
        engine: engine of the board's database.
        name: name of the account; see `leaderboard.accounts.names`.
        role: submitter or maintainer.
        by: id of the account that creates it, for the log; None for the account itself or the command line.
        network: client address of a registration; None for no limit.
        per_day: maximum number of registrations of a client address in 24 hours; None for no limit.

    Raises:
        AccountError: the name or the role breaks its rule.
        ConflictError: an account has this name, or a name that looks like it.
        TooManyError: the client address has reached its limit.
    """
    with making_account(engine, name, role, by=by, network=network, per_day=per_day) as (session, account):
        return account_info(account), add_token(session, account, "first token")


@contextmanager
def making_account(
    engine: Engine,
    name: str,
    role: str = "submitter",
    *,
    by: int | None = None,
    network: str | None = None,
    per_day: int | None = None,
) -> Iterator[tuple[Session, Account]]:
    """Create an account, and in the same transaction what the ``with`` adds to it; see `make_account`.

    If the first token were added later and failed, the name would be taken by an account that nobody can use.
    """
    name = account_name(name)
    if role not in ROLES:
        raise AccountError(f"role={shown(role)}: must be one of {', '.join(ROLES)}")
    taken = _taken(name)
    try:
        with writing(engine) as session:
            if per_day is not None and network is not None:
                _require_few_registrations(session, network, per_day)
            account = _add(session, name, role, network)
            log_account(session, "account made", by or account.id, f"{name}, {role}")
            yield session, account
    except IntegrityError as error:  # created by another process between the query and the write
        raise taken from error


def register(
    engine: Engine, name: str, *, network: str | None = None, per_day: int | None = None
) -> tuple[AccountInfo, NewToken]:
    """Create an account of a submitter, for a user who registers. See `make_account`.

    A ConflictError also refuses reserved names.
    """
    require_unreserved(name)
    return make_account(engine, name, network=network, per_day=per_day)


def find_or_make_account(session: Session, name: str) -> Account:
    """Return the account of a name. If there is none, create it as a submitter's account.

    Raises:
        SubmissionError: the name breaks its rule or looks like the name of another account, or the account is disabled.
    """
    account = session.scalars(select(Account).where(Account.name == name.strip())).first()
    if account is None:
        try:
            account = _add(session, account_name(name), "submitter", None)
        except (AccountError, ConflictError) as error:
            raise SubmissionError(str(error)) from error
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
        return account_info(account)


def list_accounts(engine: Engine, *, limit: int = 100, offset: int = 0) -> tuple[list[AccountInfo], int]:
    """Return a page of the accounts in the order of their creation without damaged ones, and the number of all."""
    with reading(engine) as session:
        total = session.scalar(select(func.count()).select_from(Account)) or 0
        ids = session.scalars(select(Account.id).order_by(Account.id).limit(limit).offset(offset)).all()

        def read(ids: Sequence[int]) -> list[AccountInfo]:
            found = session.scalars(select(Account).where(Account.id.in_(ids)).order_by(Account.id))
            return _ACCOUNTS.validate_python([vars(account_info(account)) for account in found])

        return each_readable(ids, read)[0], total


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
        return account_info(account)


def forget_addresses(session: Session, moment: datetime) -> None:
    """Delete the client addresses of registrations that are a day old.

    Addresses are personal data: the board keeps an address only as long as the limit needs it.
    """
    old = Account.network.is_not(None), Account.created_at <= moment - DAY
    session.execute(update(Account).where(*old).values(network=None))


def _add(session: Session, name: str, role: str, network: str | None) -> Account:
    alike = or_(func.lower(Account.name) == func.lower(name), Account.skeleton == skeleton(name))
    if session.scalars(select(Account.id).where(alike)).first():
        raise _taken(name)
    account = Account(name=name, role=role, created_at=now(session), skeleton=skeleton(name), network=network)
    session.add(account)
    session.flush()
    return account


def _taken(name: str) -> ConflictError:
    return ConflictError(f"account {shown(name)}: the name is taken, or looks like one that is; choose another one")


def _require_few_registrations(session: Session, network: str, per_day: int) -> None:
    lock(session, network)
    moment = now(session)
    forget_addresses(session, moment)
    here = select(Account.created_at).where(Account.network == network).order_by(Account.created_at.desc())
    newest = session.scalars(here.limit(per_day)).all()
    if len(newest) >= per_day:
        raise TooManyError(
            f"{network}: made {per_day} accounts in 24 hours, the limit of an address; ask a maintainer for an "
            "account, or register tomorrow",
            (newest[-1] + DAY - moment).total_seconds(),
        )


def account_info(account: Account) -> AccountInfo:
    """Return what is shown of an account."""
    return AccountInfo(account.id, account.name, account.role, account.created_at, account.disabled_at)
