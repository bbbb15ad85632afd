"""Limits of connections: of all, of one client address, and of the time that a client lets the server wait.

A client can open many connections and send half a request on each. A connection that waits for its client longer than
the limit is closed. If there are too many connections, the server closes the oldest one that waits for its client. It
is one of the address of the new connection if this address has too many, and otherwise one of the address with the
most. A request that the server works on is never interrupted for that. So one address cannot close the board to the
others, and a class behind one address loses only idle connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from leaderboard.web.guard.limits import client_network

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits of connections.

    Attributes:
        most: number of connections.
        per_address: number of connections of a client address.
        head_seconds: time from the begin of a connection, or the end of a response, to the end of the next head.
        request_seconds: time from there to the end of the response. A slow reader of the response is disconnected.
        exempt: addresses and networks without a limit of their own: the proxies of the board; ``*`` for all.
    """

    most: int = 500
    per_address: int = 100
    head_seconds: float = 15.0
    request_seconds: float = 300.0
    exempt: Collection[str] = ()

    def __post_init__(self) -> None:
        _networks(self.exempt)  # raises
        if min(self.most, self.per_address, self.head_seconds, self.request_seconds) <= 0:
            raise ValueError(f"{self}: every limit must be more than 0; leave it out for the default")


class Connections:
    """The open connections of a server, by address and in the order of their beginning."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._exempt = _networks(limits.exempt)
        self._by_address: dict[str, dict[LimitedProtocol, None]] = {}
        self._count = 0

    def add(self, new: LimitedProtocol, address: str) -> bool:
        """Add a connection, and close another one if there are too many. Return False if there is no room."""
        here = self._by_address.get(address, {})
        if len(here) >= self.limits.per_address and not self._is_exempt(address):
            if not self._close_one(here):
                return False
        elif self._count >= self.limits.most:
            heaviest = sorted(self._by_address.values(), key=len, reverse=True)
            if not any(map(self._close_one, heaviest)):
                return False
        self._by_address.setdefault(address, {})[new] = None
        self._count += 1
        return True

    def address_of(self, host: str | None) -> str:
        """Return the address that a connection counts for: that of a proxy, or the network of another client."""
        return host if host and self._is_exempt(host) else client_network(host)

    def _is_exempt(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:  # the network of a client
            return "*" in self.limits.exempt
        return any(found in network for network in self._exempt)

    def remove(self, ended: LimitedProtocol, address: str) -> None:
        """Remove a connection that has ended; one that was removed before has no effect."""
        here = self._by_address.get(address, {})
        if ended in here:
            del here[ended]
            self._count -= 1
        if not here:
            self._by_address.pop(address, None)

    def _close_one(self, connections: dict[LimitedProtocol, None]) -> bool:
        waiting = next((each for each in connections if each.waits_for_client), None)
        if waiting is None:
            return False
        waiting.give_up()
        return True


class LimitedProtocol(H11Protocol):
    """A connection of uvicorn with a limit for each time that it can wait. `limited` makes the class of a server."""

    registry: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, or close it if there is no room."""
        super().connection_made(transport)
        self._address = self.registry.address_of(self.client[0] if self.client else None)
        self._timer: asyncio.TimerHandle | None = None
        self._waits_in: tuple[Any, bool] | None = None
        if not self.registry.add(self, self._address):
            transport.write(_NO_ROOM)
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Handle what arrived."""
        if not self.transport.is_closing():
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    @property
    def waits_for_client(self) -> bool:
        """Whether the server does nothing for this connection: the head or the body of a request is not complete."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)

    def give_up(self) -> None:
        """Close the connection now."""
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        self.registry.remove(self, self._address)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Start the clock of the present request, or of the wait for the next one, when it begins."""
        waits_in = self.cycle, self.cycle is None or self.cycle.response_complete
        if self.transport.is_closing() or waits_in == self._waits_in:
            return
        self._waits_in = waits_in
        if self._timer is not None:
            self._timer.cancel()
        limits = self.registry.limits
        self._timer = self.loop.call_later(limits.head_seconds if waits_in[1] else limits.request_seconds, self._late)

    def _late(self) -> None:
        log.info("a connection waited too long for its client; it is closed")
        self.give_up()


def _networks(texts: Collection[str]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return the networks that uvicorn trusts for these texts; raise ValueError for a text that it would ignore."""
    if list(texts) == ["*"]:
        return ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ValueError(
                f"trusted proxy {text!r}: {error}; give an address such as 127.0.0.1 or ::1, a network such as "
                "10.0.0.0/8, or only *"
            ) from error
    return tuple(found)


_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def limited(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """Return the class of the connections of a server, for `uvicorn.Config(http=...)`."""
    return type("LimitedProtocol", (LimitedProtocol,), {"registry": Connections(limits)})
