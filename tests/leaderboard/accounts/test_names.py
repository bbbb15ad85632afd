"""No new account has a name that looks like the name of another one."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from leaderboard.accounts.accounts import find_or_make_account, make_account, register
from leaderboard.accounts.identities import Person, register_person
from leaderboard.accounts.names import account_name
from leaderboard.board.submissions import submit
from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import Account
from leaderboard.errors import AccountError, ConflictError, SubmissionError, TooManyError

from ..conftest import package_of


@pytest.mark.parametrize("name", ["Ada", "alma-env", "a", "7", "ada.lovelace_2", "A" * 40, "0000-0001-2345-6789"])
def test_plain_names_are_accepted(name):
    assert account_name(f" {name} ") == name


@pytest.mark.parametrize(
    "name",
    [
        "b ob",
        *("b\u00a0ob", "b\u2009ob", "b\u200cob", "bo\u3164b", "bo\u2800b", "bo\u0301b"),  # spaces, marks
        *(
            "b\u043eb",
            "b\u03bfb",
            "b\u0585b",
            "\uff42ob",
            "\U0001d41bob",
            "bob\u0e4f",
            "Goo\u0261le",
            "\u1d00da",
        ),  # letters of other scripts
        *("-bob", "bob.", "_", "b/ob", "b\\ob", "b@ob", "<b>", "b%20ob", "A" * 41, "", "bob\ud800"),
    ],
)
def test_names_with_other_characters_are_refused(name):
    with pytest.raises(AccountError, match="choose another name"):
        account_name(name)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("bob", "B0B"),
        ("bob", "b-o.b"),
        ("Paul", "PauI"),
        ("Paul", "pau1"),
        ("modern", "rnodern"),
        ("modern", "modem"),
        ("wave", "vvave"),
        ("team5", "teams"),
        ("alma-env", "alma_env"),
        ("alma-env", "a1maenv"),
        ("alma-env", "Alma.Env"),
    ],
)
def test_a_name_that_looks_like_another_one_is_taken(engine, first, second):
    make_account(engine, first)
    with pytest.raises(ConflictError, match="the name is taken"):
        make_account(engine, second)
    with writing(engine) as session, pytest.raises(SubmissionError, match="the name is taken"):
        find_or_make_account(session, second)


@pytest.mark.parametrize(("first", "second"), [("bob", "rob"), ("Ada", "Ida"), ("team1", "team2"), ("ann", "anna")])
def test_a_name_that_looks_different_is_free(engine, first, second):
    assert [make_account(engine, name)[0].name for name in (first, second)] == [first, second]


@pytest.mark.parametrize(
    ("name", "reserved"),
    [("alma-env", "alma-env"), ("A1ma_env", "alma-env"), (" ALMA.ENV", "alma-env"), ("1oca1", "local")],
)
def test_nobody_registers_a_name_like_a_reserved_one(engine, name, reserved):
    with pytest.raises(ConflictError, match=f"looks like one that is reserved, {reserved}; choose another one"):
        register(engine, name)
    person = Person("github", "7", name)
    assert register_person(engine, person, network=None, per_day=None).name == f"{name.strip()}-github"
    submit(engine, package_of(), reserved)  # as the baselines do, and a submission to a database without a name


def test_an_account_from_before_the_rule_still_sends_submissions(engine):
    with writing(engine) as session:
        session.add(Account(name="B\u00f6b the Great", role="submitter", created_at=now(session)))
    submit(engine, package_of(), "B\u00f6b the Great")
    with reading(engine) as session:
        assert list(session.scalars(select(Account.name))) == ["B\u00f6b the Great"]


def test_an_address_registers_few_accounts_a_day(engine):
    for number in range(3):
        register(engine, f"ada{number}x", network="192.0.2.1", per_day=3)
    with pytest.raises(TooManyError, match=r"192\.0\.2\.1: made 3 accounts in 24 hours") as caught:
        register(engine, "eve", network="192.0.2.1", per_day=3)
    assert 86_000 < caught.value.seconds <= 86_400
    register(engine, "eve", network="192.0.2.2", per_day=3)
    make_account(engine, "mia")  # by a maintainer: without limit
