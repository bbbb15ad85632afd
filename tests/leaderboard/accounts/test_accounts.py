"""Accounts, tokens and sessions: what they allow, when they end, and what the database stores."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.exc import OperationalError

from leaderboard.accounts import accounts, tokens
from leaderboard.accounts.accounts import (
    find_account,
    find_or_make_account,
    list_accounts,
    make_account,
    register,
    set_disabled,
)
from leaderboard.accounts.tokens import authenticate, authenticate_session, issue_token, open_session, revoke
from leaderboard.database.engine import reading, writing
from leaderboard.database.tables import Event, Token
from leaderboard.errors import AccountError, ConflictError, NotFoundError

from ..at_once import at_once


def events(engine) -> list[tuple[str, str]]:
    with reading(engine) as session:
        return [(event.kind, event.text) for event in session.scalars(select(Event).order_by(Event.id))]


def test_registering_gives_an_account_and_a_valid_token(engine):
    account, token = register(engine, " Ada ")
    assert (account.name, account.role, account.disabled_at) == ("Ada", "submitter", None)
    caller = authenticate(engine, token.secret)
    assert (caller.account_id, caller.name, caller.role) == (account.id, "Ada", "submitter")
    assert caller.scopes == ("submit", "manage")
    assert events(engine) == [("account made", "Ada, submitter"), ("token made", f"token {token.id}, submit, manage")]
    for secret in ("", "alma_", token.secret[:-1], token.secret + "x", token.secret.upper(), "a" * 10**6, "\ud800"):
        assert authenticate(engine, secret) is None


def test_only_the_hash_of_a_token_is_stored(engine):
    _, token = register(engine, "Ada")
    _, session_secret = open_session(engine, token.secret)
    with reading(engine) as session:
        rows = [[str(value) for value in row] for row in session.execute(select(Token.__table__))]
    assert [hashlib.sha256(token.secret.encode()).hexdigest() in row for row in rows] == [True, False]
    for secret in (token.secret, session_secret):
        assert not any(secret in value for row in rows for value in row)


def test_an_account_whose_first_token_fails_keeps_no_name(engine, monkeypatch):
    def fails(*_):
        raise OperationalError("insert", {}, Exception("the database is locked"))

    with monkeypatch.context() as patched:
        patched.setattr(accounts, "add_token", fails)
        for make in (register, make_account):
            with pytest.raises(OperationalError):
                make(engine, "Ada")
    assert (list_accounts(engine), events(engine)) == (([], 0), [])
    register(engine, "Ada")


def test_names_are_unique_without_regard_to_case(engine):
    register(engine, "Ada")
    for name in ("Ada", "ADA", " ada"):
        with pytest.raises(ConflictError, match="the name is taken"):
            register(engine, name)
    for name in ("", " ", "a\nb", "a\0b", "a\u202eb", "\ud800", "x" * 81):
        with pytest.raises(AccountError, match="choose another name"):
            register(engine, name)
    with pytest.raises(AccountError, match="must be one of submitter, maintainer"):
        make_account(engine, "Bob", "king")
    assert [account.name for account in list_accounts(engine)[0]] == ["Ada"]


def test_only_one_of_several_simultaneous_registrations_gets_a_name(engine):
    def ask(name: str) -> str:
        try:
            register(engine, name)
            return "made"
        except ConflictError:
            return "refused"

    assert sorted(at_once(ask, *["Ada"] * 4)) == ["made", "refused", "refused", "refused"]


def test_scopes_and_role_limit_the_actions_of_a_token(engine):
    ada, _ = make_account(engine, "Ada")
    mia, first = make_account(engine, "Mia", "maintainer", by=ada.id)
    assert issue_token(engine, mia.id, "all").scopes == first.scopes == ("submit", "review", "manage")
    sending = issue_token(engine, mia.id, "robot", scopes=["submit"])
    assert authenticate(engine, sending.secret).scopes == ("submit",)
    for account, scopes in ((ada, ["review"]), (mia, []), (mia, ["everything"]), (ada, ["submit", "review"])):
        with pytest.raises(AccountError, match="scopes="):
            issue_token(engine, account.id, "t", scopes=scopes)
    with pytest.raises(AccountError, match="scopes="):  # a token cannot create a token with more scopes
        issue_token(engine, mia.id, "t", scopes=["manage"], within=["submit"])
    with pytest.raises(NotFoundError, match="account 99"):
        issue_token(engine, 99, "t")
    # A maintainer who loses the role also loses its scopes.
    token = issue_token(engine, mia.id, "review", scopes=["review", "submit"])
    with writing(engine) as session:
        session.merge(find_or_make_account(session, "Mia")).role = "submitter"
    assert authenticate(engine, token.secret).scopes == ("submit",)


def test_a_token_ends_when_it_expires_or_is_revoked_or_its_account_is_disabled(engine):
    ada, token = register(engine, "Ada")
    short = issue_token(engine, ada.id, "short", days=1)
    assert short.expires_at - datetime.now(UTC) > timedelta(hours=23)
    with writing(engine) as session:
        session.execute(update(Token).where(Token.id == short.id).values(expires_at=datetime.now(UTC)))
    assert authenticate(engine, short.secret) is None
    for days in (0, -1, 5000, float("nan")):
        with pytest.raises(AccountError, match="days="):
            issue_token(engine, ada.id, "t", days=days)

    other = issue_token(engine, ada.id, "other")
    with pytest.raises(NotFoundError, match="does not exist; list the tokens"):
        revoke(engine, other.id, account_id=ada.id + 1)
    revoke(engine, other.id, account_id=ada.id)
    revoke(engine, other.id)
    assert authenticate(engine, other.secret) is None
    assert events(engine).count(("token revoked", f"token {other.id}")) == 1

    set_disabled(engine, ada.id, True)
    assert authenticate(engine, token.secret) is None
    with pytest.raises(ConflictError, match="disabled"):
        issue_token(engine, ada.id, "t")
    set_disabled(engine, ada.id, False)
    assert authenticate(engine, token.secret).name == "Ada"
    with pytest.raises(ConflictError, match="cannot disable your own account; ask another"):
        set_disabled(engine, ada.id, True, by=ada.id)
    with pytest.raises(NotFoundError, match="account 99"):
        set_disabled(engine, 99, True)
    assert find_account(engine, "Ada").disabled_at is None
    with pytest.raises(NotFoundError, match="'Bob'"):
        find_account(engine, "Bob")


def test_the_list_of_tokens_has_no_sessions_and_the_time_of_last_use(engine):
    ada, token = register(engine, "Ada")
    issue_token(engine, ada.id, "second", scopes=["submit"])
    open_session(engine, token.secret)
    found = tokens.tokens_of(engine, ada.id)
    assert [(token.name, token.scopes) for token in found] == [
        ("second", ("submit",)),
        ("first token", ("submit", "manage")),
    ]
    assert found[0].last_used_at is None
    assert datetime.now(UTC) - found[1].last_used_at < timedelta(minutes=1)


def test_the_number_of_tokens_is_limited(engine, monkeypatch):
    monkeypatch.setattr(tokens, "MAXIMUM_TOKENS", 2)
    ada, first = register(engine, "Ada")
    issue_token(engine, ada.id, "second")
    with pytest.raises(ConflictError, match="has 2 tokens, the maximum; revoke one"):
        issue_token(engine, ada.id, "third")
    revoke(engine, first.id)
    issue_token(engine, ada.id, "third")


def test_a_session_acts_for_its_token_and_ends_with_it(engine):
    ada, token = register(engine, "Ada")
    caller, secret = open_session(engine, token.secret)
    assert authenticate_session(engine, secret) == caller
    assert authenticate(engine, secret) is None  # a session is not a token
    assert authenticate_session(engine, token.secret) is None
    assert open_session(engine, secret) is None  # and cannot open another session
    _, another = open_session(engine, token.secret)
    tokens.close_session(engine, another)
    tokens.close_session(engine, token.secret)  # not a session: no effect
    assert authenticate_session(engine, another) is None
    assert authenticate_session(engine, secret) == caller
    with reading(engine) as session:
        number = session.scalars(select(Token.id).where(Token.parent_id.is_not(None))).one()
    with pytest.raises(NotFoundError):
        revoke(engine, number)
    revoke(engine, token.id, ada.id)
    assert authenticate_session(engine, secret) is None
    assert open_session(engine, token.secret) is None


def test_expired_sessions_are_deleted_at_the_next_log_in(engine):
    ada, _ = register(engine, "Ada")
    token = issue_token(engine, ada.id, "short", days=0.25)
    _, secret = open_session(engine, token.secret, hours=1000)
    with writing(engine) as session:
        row = session.scalars(select(Token).where(Token.parent_id.is_not(None))).one()
        assert row.expires_at == token.expires_at  # not later than its token
        row.expires_at = datetime.now(UTC)
    assert authenticate_session(engine, secret) is None
    open_session(engine, token.secret)
    with reading(engine) as session:
        assert session.scalar(select(func.count()).where(Token.parent_id.is_not(None))) == 1
