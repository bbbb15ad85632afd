"""No header and no query makes the server fail, and no header decides what the board shows as its address."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .. import asgi
from ..page_reader import BOARD, publish
from ..web_client import SETTINGS, app_of, client_of, person

NAMES = [
    *("host", "origin", "referer", "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"),
    *("content-length", "content-type", "content-encoding", "transfer-encoding", "expect", "upgrade", "connection"),
    *(
        "cookie",
        "authorization",
        "if-none-match",
        "if-modified-since",
        "if-range",
        "range",
        "accept",
        "accept-encoding",
    ),
    *("accept-language", "user-agent", "sec-fetch-site", "x-csrf-token", "x-http-method-override", "date", "te"),
]
BAD = [
    b"",
    b" ",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"http://[",
    b"http://[::1",
    b"http://]",
    b"http://a:99999999999",
    b"http://a:b",
    b"http://\xe2\x84\x80.example",  # NFKC makes a/c of it
    b"http://\xff",
    b"//",
    b":",
    b"[",
    b"a@b",
    b"null",
    b"-1",
    b"1e9",
    b"9" * 5000,
    b"\xb2",
    b"0x10",
    b"bytes=0-",
    b"bytes=-1,5-2,99999999999999999999-",
    b"bytes=" + b"0-1," * 2000,
    b"Bearer",
    b"Bearer \xff",
    b"Basic " + b"=" * 50,
    b"Digest \x00",
    b'W/"' + b'"' * 100,
    b"multipart/form-data",
    b"multipart/form-data; boundary=",
    b"multipart/form-data; boundary=x; charset=nothing",
    b"multipart/form-data; boundary=\xff" + b"x" * 300,
    b"application/x-www-form-urlencoded; charset=\xff",
    b"application/json; charset=nothing",
    b'application/json; a="',
    b"alma-session=; alma-visit=",
    b"alma-session=alma_\xff; alma-visit=\xff",
    b'alma-session="\\377\\',
    b"alma-visit=" + b"x" * 50 + b"; =;;=",
    b"; q=nan, gzip;q=x",
    b"a" * 20_000,
]
REQUESTS = [
    *(("GET", path, b"") for path in ("/", BOARD, "/submissions/1", "/submit", "/login", "/account", "/review")),
    *(("GET", path, b"") for path in ("/static/board.css", "/api/v1/health", "/api/v1/me", "/nowhere")),
    *(("POST", path, b"csrf=x&token=y") for path in ("/login", "/register", "/logout", "/submit", "/review/retry")),
    *(("POST", path, b"{}") for path in ("/api/v1/submissions", "/api/v1/tokens", "/api/v1/submissions/1/decision")),
    ("GET", "/boards/Digits-ALMA-v0?a=b", b""),
    ("HEAD", "/", b""),
    ("OPTIONS", "/api/v1/tokens", b""),
    ("DELETE", "/api/v1/tokens/1", b""),
]


@pytest.fixture
def apps(engine):
    """A board that knows its address, and one that does not."""
    publish(engine)
    return [app_of(engine, replace(SETTINGS, public_url=url)) for url in (None, "https://board.example")]


@pytest.mark.parametrize("name", NAMES)
def test_no_value_of_a_header_makes_the_server_fail(apps, name):
    app = apps[name == "origin"]
    for number, value in enumerate(BAD, NAMES.index(name)):  # all pairs of name, value and request
        method, path, body = REQUESTS[number % len(REQUESTS)]
        headers = [(b"host", b"board.example"), (name.encode(), value)]
        status, _, text = asgi.request(app, method, path, headers[name == "host" :], body)
        assert status < 500, (name, value, method, path, text)


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES).map(str.encode), st.one_of(st.sampled_from(BAD), st.binary(max_size=40))),
        max_size=5,
    ),
    st.sampled_from(REQUESTS),
)
def test_no_headers_together_make_the_server_fail(apps, headers, wanted):
    method, path, body = wanted
    for app in apps:
        status, _, text = asgi.request(app, method, path, headers, body)
        assert status < 500, text


@pytest.mark.parametrize(
    "query", ["?next=http://[", "?id=%ff", "?page=%00", "?next=%c3%28", "?a=1&a=" + "x" * 3000, "?state=%F0"]
)
@pytest.mark.parametrize("path", ["/login", "/review", "/submissions", "/compare", BOARD, "/api/v1/submissions"])
def test_no_query_makes_the_server_fail(apps, path, query):
    status, _, text = asgi.request(apps[0], "GET", path + query, [(b"host", b"board")])
    assert status < 500, text


@pytest.mark.parametrize(
    "origin", ["http://[", "http://evil.example", "null", "", "http://board@evil.example", "http://board:x", "board"]
)
@pytest.mark.parametrize("public_url", [None, "http://board"])
def test_a_change_from_another_origin_is_refused(engine, origin, public_url):
    with client_of(engine, public_url=public_url) as client:
        client.get("/login")
        response = client.post("/login", data={"csrf": "x"}, headers={"Origin": origin})
        assert (response.status_code, "comes from another site" in response.text) == (403, True)


def test_the_host_of_a_request_is_never_shown_as_the_address_of_the_board(engine):
    ada = person(engine, "Ada")
    headers = [(b"host", b"evil.example"), (b"authorization", f"Bearer {ada.token}".encode())]
    app = app_of(engine, SETTINGS)
    for path in ("/", "/submit", "/login", "/register", "/rules", "/account", "/submissions", "/api/v1/openapi.json"):
        status, found, text = asgi.request(app, "GET", path, headers)
        assert status in (200, 303), path
        assert "evil.example" not in text + str(found)
    with client_of(engine, public_url="http://board") as client:
        assert "alma-leaderboard submit my_agent --url http://board<" in client.get("/submit").text


def test_a_board_that_knows_its_address_refuses_other_hosts(engine):
    app = app_of(engine, replace(SETTINGS, public_url="https://Board.example:8443"))
    for host in (b"evil.example", b"board.example", b"board.example:8443.evil.example", b"", b"127.0.0.1:8443"):
        status, _, text = asgi.request(app, "GET", "/submit", [(b"host", host)])
        assert (status, "this board is at https://Board.example:8443" in text) == (421, True)
    assert asgi.request(app, "GET", "/submit", [(b"host", b"BOARD.example:8443")])[0] == 200
    assert asgi.request(app, "GET", "/api/v1/health", [(b"host", b"10.0.0.7:8000")])[0] == 200


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("https://board.example:443", [b"board.example", b"board.example:443"]),
        ("http://board.example", [b"board.example:80"]),
        ("https://B\u00fccher.example:8443/", [b"xn--bcher-kva.example:8443"]),
        ("https://stra\u00dfe.example", [b"xn--strae-oqa.example"]),
        ("http://[::1]:80", [b"[::1]"]),
    ],
)
def test_a_board_is_reached_at_its_address_however_the_operator_writes_it(engine, url, hosts):
    app = app_of(engine, replace(SETTINGS, public_url=url))
    for host in hosts:
        assert asgi.request(app, "GET", "/submit", [(b"host", host)])[0] == 200
    assert asgi.request(app, "GET", "/submit", [(b"host", b"evil.example")])[0] == 421


@pytest.mark.parametrize(
    "url",
    [
        "board.example",
        "ftp://board.example",
        "https://",
        "https://[",
        "https://a@b",
        "https://a/?b",
        "https://a\u2028b",
        "https://\u0300",
    ],
)
def test_a_wrong_address_of_the_board_is_refused(url):
    with pytest.raises(ValueError, match="public_url="):
        replace(SETTINGS, public_url=url)
