"""Whose turn it is in the queue, and how much one account or one client address may have in it.

The next turn goes to the client address that has waited longest for one. Within the address it goes to the account
that has waited longest, and within the account to the oldest job. Jobs without an address, such as those of the
command line, take turns by their accounts alone.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session, aliased

from leaderboard.database.engine import lock
from leaderboard.database.tables import WAITING, Account, Job, Submission
from leaderboard.errors import TooManyError
from leaderboard.text_safety import shown

_DAY = timedelta(hours=24)
_RETRY_SECONDS = 600.0  # the end of a verification is not known


def in_order(jobs: Select[int]) -> Select[int]:
    """Order a query of jobs by their turns, the next one first."""
    sent = aliased(Submission)
    by_account = (
        select(sent.account_id, func.max(Job.claimed_at).label("served"))
        .join(sent, sent.id == Job.submission_id)
        .where(Job.claimed_at.is_not(None))
        .group_by(sent.account_id)
        .subquery()
    )
    by_network = (
        select(Job.network, func.max(Job.claimed_at).label("served"))
        .where(Job.network.is_not(None), Job.claimed_at.is_not(None))
        .group_by(Job.network)
        .subquery()
    )
    # A job without an address has the turn of its account as the turn of its address.
    of_address = func.coalesce(by_network.c.served, by_account.c.served)
    return (
        jobs.join(Submission, Submission.id == Job.submission_id)
        .outerjoin(by_account, by_account.c.account_id == Submission.account_id)
        .outerjoin(by_network, by_network.c.network == Job.network)
        .order_by(of_address.asc().nulls_first(), by_account.c.served.asc().nulls_first(), Job.available_at, Job.id)
    )


def ahead(session: Session, submission_id: int) -> int:
    """Return about how many submissions have their turn before a queued one; 0 if it is not queued."""
    rows = session.execute(
        select(Job.submission_id, Submission.account_id, Job.network)
        .join(Submission, Submission.id == Job.submission_id)
        .where(Job.state == "queued")
        .order_by(Job.available_at, Job.id)
    ).all()
    sender = {id: network or account for id, account, network in rows}
    if submission_id not in sender:
        return 0
    turn: Counter[str | int] = Counter()  # the number of the turn in which a sender has a submission
    before = 0
    mine = list(sender.values())[: list(sender).index(submission_id)].count(sender[submission_id]) + 1
    for id, who in sender.items():
        turn[who] += 1
        before += id != submission_id and (turn[who] < mine or (turn[who] == mine and id < submission_id))
    return before


def require_room(
    session: Session,
    account: Account,
    network: str | None,
    moment: datetime,
    *,
    per_account: int | None,
    per_network: int | None,
) -> None:
    """Require that an account and its client address have few submissions waiting. None is no limit.

    Raises:
        TooManyError: the account or the address has reached its limit.
    """
    forget_addresses(session, moment)
    waiting = select(func.count()).select_from(Job).where(Job.state.in_(WAITING))
    if per_account is not None:
        lock(session, f"waiting of account {account.id}")
        mine = waiting.join(Submission, Submission.id == Job.submission_id).where(Submission.account_id == account.id)
        if (session.scalar(mine) or 0) >= per_account:
            raise _full(f"account {shown(account.name)}", per_account)
    if per_network is not None and network is not None:
        lock(session, f"waiting of {network}")
        if (session.scalar(waiting.where(Job.network == network)) or 0) >= per_network:
            raise _full(network, per_network)


def forget_addresses(session: Session, moment: datetime) -> None:
    """Delete the client addresses of jobs that ended, and whose last turn is a day ago if they had one.

    Addresses are personal data: the board keeps an address only as long as the limits need it.
    """
    last = func.coalesce(Job.claimed_at, Job.finished_at, moment)  # a job can end without a turn
    old = Job.network.is_not(None), last <= moment - _DAY, Job.state.not_in(WAITING)
    session.execute(update(Job).where(*old).values(network=None))


def _full(who: str, most: int) -> TooManyError:
    return TooManyError(
        f"{who}: has {most} submissions in the queue, the limit of the board; send the next one when one of them is "
        "verified",
        _RETRY_SECONDS,
    )
