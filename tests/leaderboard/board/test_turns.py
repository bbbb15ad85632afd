"""The queue is shared fairly: turns go round over addresses and accounts, and nobody fills the queue."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from leaderboard.accounts.accounts import find_account, register, set_disabled
from leaderboard.board import queue, turns
from leaderboard.board.submissions import submit
from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import Account, Job, Submission
from leaderboard.errors import TooManyError

from ..at_once import at_once
from ..conftest import package_of, verification_of


def send(engine, account, number, network=None, **limits) -> int:
    package = package_of(name=f"{account} {number}")
    return submit(engine, package, account, network=network, **limits).id


def order(engine) -> list[str]:
    """Verify everything, and return the names in the order of their turns."""
    names = []
    while (lease := queue.claim(engine, "w")) is not None:
        with reading(engine) as session:
            names.append(session.get(Submission, lease.submission_id).name)
        queue.finish(engine, lease, verification_of())
    return names


def test_one_account_with_many_submissions_does_not_delay_the_others(engine):
    for number in range(5):
        send(engine, "flood", number)
    send(engine, "ada", 0)
    send(engine, "bob", 0)
    send(engine, "ada", 1)
    assert order(engine) == ["flood 0", "ada 0", "bob 0", "flood 1", "ada 1", "flood 2", "flood 3", "flood 4"]


def test_many_accounts_of_one_address_have_one_turn_like_one_account(engine):
    for number in range(4):
        send(engine, f"flood{number}x", 0, "192.0.2.1")
    send(engine, "ada", 0, "192.0.2.2")
    send(engine, "ada", 1, "192.0.2.2")
    send(engine, "local", 0)
    found = order(engine)
    assert found[:3] == ["flood0x 0", "ada 0", "local 0"]
    assert found.index("ada 1") == 4
    assert found[3] == "flood1x 0"


def test_within_an_address_the_accounts_take_turns(engine):
    for number in range(3):
        send(engine, "flood", number, "192.0.2.1")
    send(engine, "ada", 0, "192.0.2.1")
    assert order(engine) == ["flood 0", "ada 0", "flood 1", "flood 2"]


def test_the_number_of_submissions_ahead_follows_the_turns(engine):
    floods = [send(engine, "flood", number) for number in range(4)]
    ada = send(engine, "ada", 0)
    with reading(engine) as session:
        assert [turns.ahead(session, id) for id in (*floods, ada)] == [0, 2, 3, 4, 1]
        assert turns.ahead(session, 999) == 0


def test_an_account_and_an_address_have_few_submissions_in_the_queue(engine):
    limits = {"waiting_per_account": 2, "waiting_per_network": 3}
    for number in range(2):
        send(engine, "ada", number, "192.0.2.1", **limits)
    with pytest.raises(TooManyError, match="account 'ada': has 2 submissions in the queue") as caught:
        send(engine, "ada", 2, "192.0.2.2", **limits)
    assert caught.value.seconds > 0
    send(engine, "bob", 0, "192.0.2.1", **limits)
    with pytest.raises(TooManyError, match=r"192\.0\.2\.1: has 3 submissions in the queue"):
        send(engine, "eve", 0, "192.0.2.1", **limits)
    assert submit(engine, package_of(name="ada 0"), "eve", network="192.0.2.1", **limits).new is False
    queue.finish(engine, queue.claim(engine, "w"), verification_of())
    send(engine, "ada", 2, "192.0.2.1", **limits)


def test_simultaneous_submissions_do_not_pass_the_limit_together(engine):
    def ask(number: int) -> str:
        try:
            send(engine, f"account{number}x", 0, "192.0.2.1", waiting_per_network=2)
            return "sent"
        except TooManyError:
            return "refused"

    assert sorted(at_once(ask, *range(6))) == ["refused"] * 4 + ["sent"] * 2


def test_a_worker_forgets_addresses_of_jobs_that_ended_without_a_turn_and_of_registrations(engine):
    send(engine, "ada", 0, "192.0.2.1")
    ada = find_account(engine, "ada").id
    register(engine, "bob", network="192.0.2.2", per_day=20)
    set_disabled(engine, ada, True)
    assert queue.claim(engine, "w") is None  # ends the job of ada

    def addresses() -> set[str | None]:
        with reading(engine) as session:
            return {*session.scalars(select(Job.network)), *session.scalars(select(Account.network))}

    assert addresses() == {"192.0.2.1", "192.0.2.2", None}  # ada sent without a registration
    with writing(engine) as session:
        before = now(session) - timedelta(days=2)
        session.execute(update(Job).values(finished_at=before))
        session.execute(update(Account).values(created_at=before))
    assert queue.claim(engine, "w") is None
    assert addresses() == {None}


def test_addresses_are_forgotten_a_day_after_their_turn(engine):
    send(engine, "ada", 0, "192.0.2.1")
    send(engine, "bob", 0, "192.0.2.2")
    queue.finish(engine, queue.claim(engine, "w"), verification_of())
    with writing(engine) as session:
        session.execute(
            update(Job).where(Job.claimed_at.is_not(None)).values(claimed_at=now(session) - timedelta(days=2))
        )
    send(engine, "eve", 0, "192.0.2.3")
    with reading(engine) as session:
        assert sorted(session.scalars(select(Job.network)), key=str) == ["192.0.2.2", "192.0.2.3", None]
