"""Sessions, CSRF protection, limits of size and rate, and security headers."""

from __future__ import annotations

from contextlib import closing
from http.cookies import SimpleCookie

import pytest
from fastapi import Form, HTTPException, Request, Response
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from leaderboard.accounts import tokens
from leaderboard.database.engine import connect
from leaderboard.database.migrations import open_database
from leaderboard.web.guard.identity import check_csrf, csrf_token, identity, local_path, log_in, log_out
from leaderboard.web.guard.limits import Limiter
from leaderboard.web.guard.settings import Rate, Settings

from ..web_client import SETTINGS, at_one_moment, client_of, person

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def with_forms(client: TestClient) -> TestClient:
    """Add endpoints with forms and with errors."""
    app = client.app

    @app.get("/form")
    def form(request: Request) -> Response:
        return Response(csrf_token(request))

    @app.post("/in")
    def enter(request: Request, token: str = Form(""), csrf: str = Form("")) -> Response:
        check_csrf(request, csrf)
        response = Response("in")
        log_in(request, response, token)
        return response

    @app.post("/change")
    def change(request: Request, csrf: str = Form("")) -> Response:
        check_csrf(request, csrf)
        found = identity(request)
        return Response(found.name if found else "nobody")

    @app.post("/out")
    def leave(request: Request, csrf: str = Form("")) -> Response:
        check_csrf(request, csrf)
        response = Response("out")
        log_out(request, response)
        return response

    @app.get("/wrong")
    @app.get("/api/wrong")
    def wrong() -> None:
        raise RuntimeError("secret words")

    @app.get("/busy")
    @app.get("/api/busy")
    def busy() -> None:
        raise OperationalError("SELECT secret", {}, Exception("locked"))

    @app.get("/half")
    def half() -> None:
        raise HTTPException(418, "a teapot", headers={"X-Pot": "1"})

    @app.post("/api/size")
    async def size(request: Request) -> int:
        return len(await request.body())

    return client


@pytest.fixture
def client(client):
    return with_forms(client)


def enter(client, token, **headers) -> Response:
    return client.post("/in", data={"token": token, "csrf": client.get("/form").text}, headers=headers)


def test_a_browser_logs_in_with_a_token_and_logs_out(client, engine, ada):
    assert client.get("/form").headers["set-cookie"].startswith("alma-visit=")
    response = enter(client, f" {ada.token}\n")
    assert response.text == "in"
    (cookie,) = SimpleCookie(response.headers["set-cookie"]).values()
    assert (cookie.key, cookie["httponly"], cookie["samesite"], cookie["path"]) == ("alma-session", True, "lax", "/")
    assert ada.token not in response.headers["set-cookie"]
    assert "set-cookie" not in client.get("/form").headers
    form = client.get("/form").text
    assert client.post("/change", data={"csrf": form}).text == "Ada"
    session = client.cookies["alma-session"]
    assert client.post("/out", data={"csrf": form}).text == "out"
    assert "alma-session" not in client.cookies
    assert tokens.authenticate_session(engine, session) is None
    client.cookies["alma-session"] = session  # the session has ended
    assert client.post("/change", data={"csrf": client.get("/form").text}).text == "nobody"


def test_https_has_secure_cookies_and_hsts(engine, ada):
    with closing(with_forms(client_of(engine, https=True))) as client:
        client.base_url = "https://board"
        response = enter(client, ada.token)
        assert response.headers["set-cookie"].startswith("__Host-alma-session=")
        assert "; Secure" in response.headers["set-cookie"]
        assert response.headers["strict-transport-security"] == "max-age=31536000"
        assert client.post("/change", data={"csrf": client.get("/form").text}).text == "Ada"


def test_a_revoked_token_ends_its_sessions(client, engine, ada):
    enter(client, ada.token)
    tokens.revoke(engine, tokens.tokens_of(engine, ada.id)[0].id)
    assert client.post("/change", data={"csrf": client.get("/form").text}).text == "nobody"
    assert enter(client, ada.token).status_code == 401


@pytest.mark.parametrize("logged_in", [False, True])
def test_requests_from_other_sites_are_refused(client, ada, logged_in):
    if logged_in:
        enter(client, ada.token)
    form = client.get("/form").text
    for csrf in ("", "x", form[:-1], "ü", form.upper()):
        assert client.post("/change", data={"csrf": csrf}).status_code == 403
    assert client.post("/change").status_code == 403
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://board.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert client.post("/change", data={"csrf": form}, headers=headers).status_code == 403
    fine = {"Origin": "http://board", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/change", data={"csrf": form}, headers=fine).status_code == 200
    client.cookies.clear()
    assert client.post("/change", data={"csrf": form}, headers=fine).status_code == 403


def test_a_form_is_good_for_the_browser_and_the_session_that_it_was_made_for(client, engine, ada):
    before = client.get("/form").text
    enter(client, ada.token)
    assert client.post("/change", data={"csrf": before}).status_code == 403
    with closing(with_forms(client_of(engine))) as other:
        enter(other, ada.token)
        assert client.post("/change", data={"csrf": other.get("/form").text}).status_code == 403


def test_a_token_in_the_header_needs_no_csrf_token_and_must_be_valid(client, ada):
    assert client.post("/change", headers=ada.headers).text == "Ada"
    for header in ("Bearer", "Bearer x", "Basic YTpi", f"Bearer {ada.token}x", f"Token {ada.token}", "\xff"):
        response = client.post("/change", headers={"Authorization": header.encode("latin-1")})
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


def test_every_response_has_security_headers(client):
    with closing(client):
        for path in ("/", "/nothing", "/wrong", "/busy", "/api/nothing", "/api/wrong", "/static/nothing", "/form"):
            headers = client.get(path).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"]
            assert "strict-transport-security" not in headers
            assert "server" not in headers


def test_a_server_error_does_not_reveal_its_message(client, caplog):
    response = client.get("/api/wrong")
    assert response.status_code == 500
    assert response.json() == {
        "detail": "an error of the server; tell the maintainers when it happened",
        "problems": ["an error of the server; tell the maintainers when it happened"],
    }
    assert "secret words" in caplog.text
    page = client.get("/wrong")
    assert (page.status_code, page.headers["content-type"]) == (500, "text/html; charset=utf-8")
    assert "secret" not in page.text
    for path in ("/busy", "/api/busy"):
        busy = client.get(path)
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "5")
        assert "secret" not in busy.text
    pot = client.get("/half")
    assert (pot.status_code, pot.headers["x-pot"]) == (418, "1")


def test_an_error_without_its_page_is_plain_text(client, monkeypatch):
    def page(request, status, title, problems):
        identity(request)
        raise RuntimeError("no template")

    monkeypatch.setattr(client.app.state, "error_page", page)
    for path, status in (("/wrong", 500), ("/busy", 503), ("/nothing", 404)):
        response = client.get(path)
        assert (response.status_code, "no template" in response.text) == (status, False)
        assert response.headers["content-type"].startswith("text/plain")


def test_a_page_refuses_an_invalid_token(client):
    @client.app.get("/who")
    def who(request: Request) -> str:
        return str(identity(request))

    response = client.get("/who", headers={"Authorization": "Bearer alma_x"})
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


def test_a_line_of_the_log_is_one_line(client, caplog):
    @client.app.get("/api/odd/{name}")
    def odd(name: str) -> None:
        raise RuntimeError("odd")

    assert client.get("/api/odd/x%0aERROR%20forged%1b[31m").status_code == 500
    message = next(record.getMessage() for record in caplog.records if "forged" in record.getMessage())
    assert "\n" not in message
    assert "\x1b" not in message


def test_head_is_get_without_its_body(client):
    response = client.head("/form")
    assert (response.status_code, response.content) == (200, b"")
    assert int(response.headers["content-length"]) == 64


def test_oversized_bodies_are_refused_with_and_without_content_length(client):
    limit = SETTINGS.form_bytes
    assert client.post("/api/size", content=b"x" * limit).json() == limit
    response = client.post("/api/size", content=b"x" * (limit + 1))
    assert response.status_code == 413
    assert "at most 65,536 bytes" in response.json()["detail"]

    def chunks():
        for _ in range(limit // 1024 + 1):
            yield b"x" * 1024

    assert client.post("/api/size", content=chunks()).status_code == 413
    assert client.post("/in", content=chunks(), headers=FORM).status_code == 413
    for length in ("x", "-1", "1" * 30):
        assert client.post("/api/size", content=b"x", headers={"Content-Length": length}).status_code == 400


def test_requests_beyond_a_rate_limit_get_retry_after(engine, ada):
    with closing(with_forms(at_one_moment(client_of(engine, requests=Rate(60, 3))))) as client:
        assert [client.get("/form").status_code for _ in range(4)] == [200, 200, 200, 429]
        response = client.get("/api/v1/nothing")
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        assert "try again in 1 s" in response.json()["detail"]
    with closing(with_forms(at_one_moment(client_of(engine, log_ins=Rate(1, 2))))) as client:
        for status in (401, 401, 429):
            assert client.post("/change", headers={"Authorization": "Bearer alma_guess"}).status_code == status
        assert enter(client, "alma_guess").status_code == 429
        # A valid token works although others at the same address guess tokens.
        assert client.post("/change", headers=ada.headers).status_code == 200
        assert enter(client, ada.token).status_code == 200
    with closing(at_one_moment(client_of(engine, archives=Rate(1, 2)))) as client:
        headers = {**ada.headers, "Content-Type": "application/zip"}
        sent = [client.post("/api/v1/submissions", content=b"no zip", headers=headers) for _ in range(3)]
        assert [response.status_code for response in sent] == [422, 422, 429]
        form = {"archive": ("a.zip", b"no zip")}  # the form of the page has the same limit
        assert client.post("/submit", files=form, headers=ada.headers).status_code == 429
    with closing(with_forms(at_one_moment(client_of(engine, changes=Rate(1, 2))))) as client:
        enter(client, ada.token)
        form = client.get("/form").text
        assert [client.post("/change", data={"csrf": form}).status_code for _ in range(3)] == [200, 200, 429]


def test_a_bucket_refills_and_the_least_recently_used_is_removed(monkeypatch):
    clock = [0.0]
    limiter = Limiter(lambda: clock[0])
    rate = Rate(60, 2)
    assert [limiter.spend("a", rate) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert limiter.spend("b", rate) == 0.0
    clock[0] = 1.0
    assert [limiter.spend("a", rate) for _ in range(2)] == [0.0, 1.0]
    monkeypatch.setattr("leaderboard.web.guard.limits._MOST_BUCKETS", 1)
    limiter.spend("c", rate)
    limiter.spend("c", rate)
    assert limiter.spend("c", rate) > 0
    assert len(limiter._buckets) <= 2


def test_invalid_settings_are_refused():
    for values in ({"registration": "perhaps"}, {"submissions_per_day": 0}, {"uploads_at_once": 0}):
        with pytest.raises(ValueError, match="must be"):
            Settings(**values)
    with pytest.raises(ValueError, match="burst of at least 1"):
        Rate(1, 0)


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/a\nb", "", "evil", None],
)
def test_a_login_never_leads_to_another_site(path):
    assert local_path(path, "/home") == "/home"
    assert local_path("/submissions/1?a=b#c") == "/submissions/1?a=b#c"


def test_a_locked_database_gives_status_503(tmp_path):
    open_database(f"sqlite:///{tmp_path / 'a.db'}").dispose()
    holder, engine = (connect(f"sqlite:///{tmp_path / 'a.db'}", busy_seconds=seconds) for seconds in (1, 0.05))
    ada = person(engine, "Ada")
    with closing(with_forms(client_of(engine))) as client:
        form = client.get("/form").text
        with holder.execution_options(writes=True).begin():
            response = client.post("/in", data={"token": ada.token, "csrf": form})
            assert (response.status_code, response.headers["retry-after"]) == (503, "5")
            assert client.post("/change", headers=ada.headers).text == "Ada"  # reading does not wait
        assert client.post("/in", data={"token": ada.token, "csrf": form}).status_code == 200
    for one in (holder, engine):
        one.dispose()
