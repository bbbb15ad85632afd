"""A submission is stored once and read without changes."""

from __future__ import annotations

import pytest
from sqlalchemy import inspect

from leaderboard.accounts.accounts import find_or_make_account
from leaderboard.board.submissions import package_of, submit
from leaderboard.database.engine import now, reading, writing
from leaderboard.database.tables import Account, Submission
from leaderboard.errors import NotFoundError, SubmissionError
from leaderboard.submission.package import Package

from ..at_once import at_once
from ..conftest import package_of as good_package


def test_a_submission_is_stored_and_read_without_changes(engine):
    package = good_package(hyperparameters=5).files  # not a table, so it is refused
    with pytest.raises(SubmissionError, match="must be a table"):
        submit(engine, Package(package))
    package = good_package("def make_agent(env): return 'ü'")
    made = submit(engine, package, "Ada")
    assert (made.state, made.new) == ("queued", True)
    with reading(engine) as session:
        assert package_of(session, made.id) == package
        stored = session.get(Submission, made.id)
        assert (stored.digest, stored.env_id, stored.method) == (package.digest, "Digits-ALMA-v0", "sm")
        assert stored.account.name == "Ada"
        assert stored.manifest["seeds"] == [0, 1, 2]
        assert "package" in inspect(stored).unloaded  # a list of submissions does not read the files
        with pytest.raises(NotFoundError, match="submission 99"):
            package_of(session, 99)


def test_equal_files_sent_again_are_the_same_submission(engine):
    first = submit(engine, good_package(), "Ada")
    again = submit(engine, good_package(), "Bob")
    assert (again.id, again.new) == (first.id, False)
    other = submit(engine, good_package(name="B"), "Bob")
    assert other.id != first.id


def test_equal_files_sent_at_once_are_one_submission(engine):
    package = good_package()
    made = at_once(lambda account: submit(engine, package, account), "Ada", "Ada", "Bob", "Bob")
    assert len({one.id for one in made}) == 1
    assert sum(one.new for one in made) == 1


def test_markup_and_sql_are_stored_as_text(engine):
    name = "'; DROP TABLE submissions; -- <script>alert(1)</script>"
    sender = "Robert'); DROP TABLE accounts;--"
    with pytest.raises(SubmissionError, match="choose another name"):
        submit(engine, good_package(name=name), sender)
    with writing(engine) as session:  # an account from before the rule
        session.add(Account(name=sender, role="submitter", created_at=now(session)))
    made = submit(engine, good_package(name=name), sender)
    with reading(engine) as session:
        stored = session.get(Submission, made.id)
        assert stored.name == name
        assert stored.account.name == sender


def test_an_account_with_an_invalid_name_or_a_disabled_one_cannot_submit(engine):
    for name in ("", "a\nb", "a\u202eb", "x" * 81):
        with pytest.raises(SubmissionError, match="choose another name"):
            submit(engine, good_package(), name)
    with writing(engine) as session:
        find_or_make_account(session, "Ada").disabled_at = now(session)
    with pytest.raises(SubmissionError, match="disabled; ask a maintainer"):
        submit(engine, good_package(), "Ada")
