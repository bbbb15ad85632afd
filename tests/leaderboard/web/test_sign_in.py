"""Sign-in with GitHub and with an OpenID provider, against a provider that the test starts."""

from __future__ import annotations

import hashlib
import hmac
import time
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import select

from leaderboard.accounts import identities
from leaderboard.accounts.accounts import list_accounts, set_disabled
from leaderboard.accounts.identities import Person, identities_of
from leaderboard.accounts.tokens import issue_token, revoke, tokens_of
from leaderboard.database.engine import reading
from leaderboard.database.tables import Token
from leaderboard.errors import ConflictError, NotFoundError, TooManyError
from leaderboard.web.guard import providers
from leaderboard.web.guard.providers import Provider, configured, github, orcid
from leaderboard.web.guard.settings import Settings

from .. import openid_server
from ..openid_server import CLIENT, SECRET, Server
from ..page_reader import form, get, log_in
from ..web_client import client_of, person


@pytest.fixture
def server():
    with openid_server.serving() as found:
        yield found


def both(server: Server) -> tuple[Provider, Provider]:
    urls = {f"{name}_url": f"{server.url}/{path}" for name, path in (("authorize", "authorize"), ("token", "token"))}
    return (
        Provider("orcid", "ORCID", CLIENT, SECRET, issuer=server.url, scope="openid"),
        Provider("github", "GitHub", CLIENT, SECRET, user_url=f"{server.url}/user", **urls),
    )


@pytest.fixture
def client(engine, server):
    with closing(client_of(engine, public_url="http://board", providers=both(server))) as opened:
        yield opened


def begin(client, provider="orcid", page="/login", **values) -> str:
    return form(client, page, f"/sign-in/{provider}", **values).headers["location"]


def back(client, address: str, status: int = 303):
    assert address.startswith("http://board/sign-in/")
    response = client.get(address)
    assert response.status_code == status, response.text
    return response


def sign_in(client, server, provider="orcid", page="/login", status=303, **values):
    return back(client, server.visit(begin(client, provider, page, **values)), status)


def names(engine) -> list[str]:
    return [account.name for account in list_accounts(engine)[0]]


@pytest.mark.parametrize(("provider", "name"), [("orcid", "0000-0002-1825-0097"), ("github", "octo-cat")])
def test_a_person_gets_an_account_and_finds_it_again(client, engine, server, provider, name):
    assert sign_in(client, server, provider).headers["location"] == "/account"
    page = get(client, "/account")
    assert name in page.text
    assert f"signed in with {provider} as {name}" in page.text
    assert client.cookies.get("alma-sign-in") is None
    form(client, "/account", "/logout")
    assert client.get("/account").headers["location"].startswith("/login")
    server.github["login"] = "renamed"  # the number is the identity
    sign_in(client, server, provider)
    assert names(engine) == [name]
    assert len(tokens_of(engine, 1)) == 1
    assert sign_in_is_a_session(client, engine)


def sign_in_is_a_session(client, engine) -> bool:
    with reading(engine) as session:
        return len(session.scalars(select(Token).where(Token.parent_id.is_not(None))).all()) >= 1


def test_only_what_is_needed_is_asked_for_and_nothing_secret_is_in_the_address(client, server):
    address = begin(client)
    query = parse_qs(urlsplit(address).query)
    assert set(query) == {
        *("response_type", "client_id", "redirect_uri", "scope", "state", "nonce"),
        *("code_challenge", "code_challenge_method"),
    }
    assert query["redirect_uri"] == ["http://board/sign-in/orcid/callback"]
    assert SECRET not in address
    policy = client.get("/login").headers["content-security-policy"]
    assert f"form-action 'self' {server.url} {server.url};" in policy


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another board"},
        {"aud": None},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 300},
        {"sub": "a\u202eb"},
        {"exp": int(time.time()) - 3_600},
        {"exp": None},
        {"iat": None},
    ],
)
def test_an_id_token_with_wrong_claims_is_refused(client, engine, server, changes):
    server.claims = changes
    page = sign_in(client, server, status=502)
    assert "ORCID: the sign-in failed" in page.text
    assert names(engine) == []


@pytest.mark.parametrize(
    "sign",
    [
        openid_server.unsigned,
        openid_server.signed_by_another,
        openid_server.signed_with_the_public_key,
        lambda claims: "no token",
        lambda claims: None,
    ],
)
def test_an_id_token_with_a_wrong_signature_is_refused(client, engine, server, sign):
    server.sign = sign
    sign_in(client, server, status=502)
    assert names(engine) == []


@pytest.mark.parametrize(
    "metadata",
    [{"issuer": "https://evil.example"}, {"token_endpoint": None}, {"jwks_uri": "https://[", "issuer": None}],
)
def test_a_provider_with_wrong_metadata_is_refused(client, server, metadata):
    address = begin(client)
    server.metadata = metadata
    back(client, server.visit(address), 502)


def test_a_provider_that_does_not_answer_is_reported(client, server):
    server.broken = True
    form(client, "/login", "/sign-in/orcid", 502)
    address = begin(client, "github")
    page = back(client, server.visit(address), 502)
    assert "the sign-in failed" in page.text
    assert "Traceback" not in page.text


def test_only_the_browser_that_began_can_finish(client, engine, server):
    address = server.visit(begin(client))
    with closing(client_of(engine, public_url="http://board", providers=both(server))) as other:
        assert "began in another browser" in back(other, address, 403).text  # without a cookie
        begin(other)
        assert "began in another browser" in back(other, address, 403).text  # with its own
    state = client.cookies["alma-sign-in"]
    back(client, address.replace("state=", "state=x"), 403)
    client.cookies["alma-sign-in"] = state
    back(client, address.replace("/orcid/", "/github/"), 403)
    client.cookies["alma-sign-in"] = state
    for broken in ("", "a", "a.b.c", "." * 50, state + "x"):
        client.cookies["alma-sign-in"] = broken
        back(client, address, 403)
    client.cookies["alma-sign-in"] = state
    back(client, address)
    assert len(names(engine)) == 1
    client.cookies["alma-sign-in"] = state
    back(client, address, 403)  # the browser has a session now, so the state is another one


@pytest.mark.parametrize("made", ["x", "a.b", "a.b.c.d", "a.x.YQ==", "a.0.YQ", "a.0._w==", f"a.{'9' * 5_000}.YQ=="])
def test_a_cookie_that_the_browser_made_itself_is_refused(client, made):
    client.get("/login")
    visit = client.cookies["alma-visit"]
    key = f"{made}\0{visit}\0orcid".encode()
    state = hmac.new(key, b"alma state", hashlib.sha256).hexdigest()
    client.cookies.set("alma-sign-in", made)
    response = client.get(f"/sign-in/orcid/callback?state={state}&code=x")
    assert response.status_code == 403
    assert "began in another browser" in response.text


def test_a_code_is_used_once_and_needs_the_secret_of_its_flow(client, engine, server):
    first = server.visit(begin(client))
    begin(client)  # another flow of the same browser
    stolen = f"{first.partition('?')[0]}?{urlsplit(first).query}"
    back(client, stolen, 403)
    (code,) = server.codes
    mine = server.visit(begin(client))
    state = parse_qs(urlsplit(mine).query)["state"][0]
    back(client, f"http://board/sign-in/orcid/callback?code={code}&state={state}", 502)  # its verifier is another one
    assert names(engine) == []


def test_a_person_who_declines_is_told_so(client, server):
    state = parse_qs(urlsplit(begin(client)).query)["state"][0]
    page = back(client, f"http://board/sign-in/orcid/callback?error=access_denied&state={state}", 403)
    assert "ORCID did not confirm the sign-in" in page.text


@pytest.mark.parametrize("after", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\nb", "x" * 600])
def test_a_sign_in_never_leads_to_another_site(client, server, after):
    address = client_form(client, after)
    assert back(client, server.visit(address)).headers["location"] == "/account"


def client_form(client, after: str) -> str:
    page = get(client, "/login")
    csrf = next(a["value"] for a in page.all("input", name="csrf"))
    return client.post("/sign-in/orcid", data={"csrf": csrf, "next": after}).headers["location"]


def test_a_sign_in_leads_to_the_page_that_asked_for_it(client, server):
    address = begin(client, page="/login?next=/submit")
    assert back(client, server.visit(address)).headers["location"] == "/submit"


def test_a_beginning_from_another_site_is_refused(client):
    assert client.post("/sign-in/orcid", data={"csrf": "x"}).status_code == 403
    assert client.get("/sign-in/orcid").status_code == 405
    assert client.post("/sign-in/nowhere", data={"csrf": "x"}).status_code in (403, 404)


def test_an_identity_is_linked_only_by_the_session_that_began(client, engine, server):
    ada, eve = person(engine, "Ada"), person(engine, "Eve")
    log_in(client, ada)
    address = server.visit(begin(client, "github", "/account"))
    state = client.cookies["alma-sign-in"]
    form(client, "/account", "/logout")
    log_in(client, eve)
    client.cookies["alma-sign-in"] = state
    back(client, address, 403)
    assert identities_of(engine, ada.id) == identities_of(engine, eve.id) == []
    form(client, "/account", "/logout")
    log_in(client, ada)
    assert sign_in(client, server, "github", "/account").headers["location"] == "/account"
    assert [one.name for one in identities_of(engine, ada.id)] == ["octo-cat"]
    form(client, "/account", "/logout")
    sign_in(client, server, "github")
    assert "Ada" in get(client, "/account").text
    # A second account cannot link the same identity.
    form(client, "/account", "/logout")
    log_in(client, eve)
    page = sign_in(client, server, "github", "/account", 409)
    assert "signs in to another account" in page.text
    assert names(engine) == ["Ada", "Eve"]


def test_an_account_is_never_found_by_a_name(client, engine, server):
    person(engine, "octo-cat")
    sign_in(client, server, "github")
    assert names(engine) == ["octo-cat", "octo-cat-github"]
    server.github = {"id": 43, "login": "octo_cat"}
    form(client, "/account", "/logout")
    sign_in(client, server, "github")
    assert names(engine)[2] == "octo_cat-github-2"


@pytest.mark.parametrize(
    "user", [{}, {"id": "42", "login": "a"}, {"id": True, "login": "a"}, {"id": 1, "login": ""}, []]
)
def test_an_answer_that_is_no_person_is_refused(client, engine, server, user):
    server.github = user
    sign_in(client, server, "github", status=502)
    assert names(engine) == []


def test_a_disabled_account_and_a_closed_registration_are_refused(client, engine, server):
    sign_in(client, server)
    form(client, "/account", "/logout")
    set_disabled(engine, 1, True)
    assert "disabled" in sign_in(client, server, status=409).text
    with closing(client_of(engine, public_url="http://board", providers=both(server), registration="closed")) as closed:
        assert "no account has this identity" in sign_in(closed, server, "github", status=403).text
    assert len(names(engine)) == 1


def test_registrations_by_sign_in_count_towards_the_limit_of_the_address(engine, server):
    settings = {"public_url": "http://board", "providers": both(server), "registrations_per_day": 1}
    with closing(client_of(engine, **settings)) as client:
        sign_in(client, server)
        form(client, "/account", "/logout")
        assert "made 1 accounts in 24 hours" in sign_in(client, server, "github", status=429).text
        sign_in(client, server)  # a known person


def test_revoking_the_token_of_a_sign_in_ends_its_sessions_and_unlinking_needs_another_way_in(client, engine, server):
    sign_in(client, server)
    (token,) = tokens_of(engine, 1)
    revoke(engine, token.id, 1)
    assert client.get("/account").status_code == 303
    sign_in(client, server)
    (identity,) = identities_of(engine, 1)
    target = "/account/identities/unlink"
    assert "the only way to log in" in form(client, "/account", target, 409).text
    issue_token(engine, 1, "robot")
    form(client, "/account", target)
    assert client.get("/account").status_code == 303  # its session has ended
    assert identities_of(engine, 1) == []
    with pytest.raises(NotFoundError):
        identities.unlink(engine, 1, identity.id)


def test_two_people_and_two_providers_are_different_identities(engine):
    people = [Person("orcid", "1", "a"), Person("orcid", "2", "a"), Person("github", "1", "a")]
    for one in people:
        identities.register_person(engine, one, network=None, per_day=None)
    found = {identities.sign_in(engine, one)[0].name for one in people}
    assert found == {"a", "a-orcid", "a-github"}
    with pytest.raises(ConflictError):
        identities.link(engine, 1, people[1])
    identities.register_person(engine, Person("github", "8", "c"), network="192.0.2.1", per_day=1)
    with pytest.raises(TooManyError):
        identities.register_person(engine, Person("github", "9", "b"), network="192.0.2.1", per_day=1)


def test_providers_are_off_until_they_are_configured(engine):
    assert configured({}) == ()
    found = configured({f"ALMA_LEADERBOARD_{name}": "x" for name in ("GITHUB_ID", "GITHUB_SECRET")})
    assert [one.id for one in found] == ["github"]
    with pytest.raises(ValueError, match="one is missing"):
        configured({"ALMA_LEADERBOARD_ORCID_ID": "x"})
    with pytest.raises(ValueError, match="public_url=None"):
        Settings(providers=found)
    assert "secret-words" not in repr(github("a", "secret-words"))
    assert (github("a", "b").origin, orcid("a", "b").origin) == ("https://github.com", "https://orcid.org")
    with closing(client_of(engine)) as client:
        assert "Sign in with" not in get(client, "/login").text
        assert client.get("/sign-in/github/callback").status_code == 404
    assert providers.SECONDS < 30
