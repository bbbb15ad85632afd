"""Connections that do not finish their requests do not close the board to the others."""

from __future__ import annotations

import contextlib
import socket
import time

import httpx2
import pytest

from leaderboard.web.connections import ConnectionLimits, Connections

from ..web_client import serving

HALF_HEAD = b"GET / HTTP/1.1\r\nHost: board\r\nX-Half: "
HALF_BODY = b"POST /login HTTP/1.1\r\nHost: board\r\nContent-Length: 5000\r\n" + (
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\nhalf"
)


def open_many(stack: contextlib.ExitStack, port: int, count: int, sent: bytes) -> list[socket.socket]:
    found = []
    for _ in range(count):
        one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=120))
        with contextlib.suppress(OSError):  # the server may close it at once
            one.sendall(sent)
        found.append(one)
    return found


def ended(one: socket.socket) -> bool:
    try:
        return one.recv(4096) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    "sent", [b"", b"G", HALF_HEAD, HALF_BODY], ids=["nothing", "a letter", "half head", "half body"]
)
@pytest.mark.parametrize("limits", [ConnectionLimits(), ConnectionLimits(most=60, exempt=["127.0.0.1"])])
def test_hundreds_of_half_sent_requests_leave_the_board_open(engine, sent, limits):
    with serving(engine, limits) as port, contextlib.ExitStack() as stack:
        open_many(stack, port, 500, sent)
        for _ in range(5):
            assert httpx2.get(f"http://127.0.0.1:{port}/api/v1/health", timeout=120).status_code == 200


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, b"GET /rules HTTP/1.1\r\nHost: board\r\n\r\n" + HALF_HEAD])
def test_a_connection_that_waits_too_long_for_its_client_is_closed(engine, sent):
    with serving(engine, ConnectionLimits(head_seconds=0.3)) as port, contextlib.ExitStack() as stack:
        (one,) = open_many(stack, port, 1, sent)
        received = b""
        while True:
            try:
                more = one.recv(65536)
            except ConnectionError:
                break
            if not more:
                break
            received += more
        assert received.count(b"HTTP/1.1 200 OK") == sent.count(b"/rules")


def test_a_request_that_does_not_end_is_closed(engine):
    with serving(engine, ConnectionLimits(request_seconds=0.3)) as port, contextlib.ExitStack() as stack:
        (one,) = open_many(stack, port, 1, HALF_BODY)
        assert ended(one)


def test_a_connection_with_several_requests_stays_open(engine):
    with serving(engine, ConnectionLimits(head_seconds=3.0)) as port, httpx2.Client() as client:
        for _ in range(4):
            assert client.get(f"http://127.0.0.1:{port}/api/v1/health").status_code == 200
            time.sleep(0.9)


class Fake:
    def __init__(self, registry: Connections, address: str, waits: bool = True) -> None:
        self.registry, self.address, self.waits_for_client, self.closed = registry, address, waits, False

    def give_up(self) -> None:
        self.closed = True
        self.registry.remove(self, self.address)


def opened(registry: Connections, address: str, waits: bool = True) -> Fake | None:
    new = Fake(registry, address, waits)
    return new if registry.add(new, address) else None


def test_room_is_made_by_the_oldest_idle_connection_of_the_heaviest_address():
    registry = Connections(ConnectionLimits(most=6, per_address=4))
    flood = [opened(registry, "192.0.2.1", waits=number > 0) for number in range(4)]
    assert opened(registry, "192.0.2.1")  # closes the oldest one that waits
    assert [each.closed for each in flood] == [False, True, False, False]
    others = [opened(registry, f"192.0.2.{number}") for number in (2, 3, 4)]
    assert [each.closed for each in flood] == [False, True, True, False]
    assert not any(each.closed for each in others)


def test_a_request_in_progress_is_not_interrupted_for_a_new_connection():
    registry = Connections(ConnectionLimits(most=3, per_address=2))
    busy = [opened(registry, address, waits=False) for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2")]
    assert opened(registry, "192.0.2.1") is None
    assert opened(registry, "192.0.2.3") is None
    registry.remove(busy[0], busy[0].address)
    registry.remove(busy[0], busy[0].address)  # no effect
    assert opened(registry, "192.0.2.3")


@pytest.mark.parametrize(
    ("exempt", "host", "other"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
        ("::1", "::1", "::2"),
        ("0:0::1", "::1", "::2"),
        ("10.0.0.0/8", "10.7.0.1", "11.0.0.1"),
        ("fd00::/8", "fd12::1", "fe00::1"),
        ("*", "192.0.2.7", None),
        ("*", "2001:db8::1", None),
    ],
)
def test_a_proxy_has_no_limit_of_its_own(exempt, host, other):
    registry = Connections(ConnectionLimits(most=5, per_address=1, exempt=[exempt]))
    proxy = registry.address_of(host)
    assert None not in [opened(registry, proxy, waits=False) for _ in range(4)]
    if other is not None:
        client = registry.address_of(other)
        assert opened(registry, client, waits=False)
        assert opened(registry, client) is None
    else:
        assert opened(registry, proxy, waits=False)
    assert opened(registry, proxy) is None


def test_wrong_limits_are_refused():
    with pytest.raises(ValueError, match="every limit must be more than 0"):
        ConnectionLimits(most=0)


@pytest.mark.parametrize("exempt", [["proxy.example"], ["10.0.0.1/8"], ["*", "127.0.0.1"], ["127.0.0.1,::1"]])
def test_a_proxy_that_uvicorn_would_not_recognise_is_refused(exempt):
    with pytest.raises(ValueError, match="trusted proxy .*; give an address such as 127.0.0.1"):
        ConnectionLimits(exempt=exempt)
