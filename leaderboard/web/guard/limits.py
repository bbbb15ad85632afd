"""Rate limits of client addresses and accounts: token buckets in the memory of this process.

The processes of a server count independently, and a restart resets the counts. The limits keep one client from using
all resources, and make guessing slow. Exact limits, such as submissions per day, are counted in the database.
"""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Literal

from fastapi import HTTPException, Request

from leaderboard.web.guard.settings import Rate, Settings

Kind = Literal["requests", "changes", "archives", "log_ins", "sign_ins", "registrations", "exports", "downloads"]
_MOST_BUCKETS = 20_000


class Limiter:
    """Token buckets by key. A bucket holds up to ``burst`` tokens and gains ``per_minute`` tokens a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, and the time of this count

    def spend(self, key: Hashable, rate: Rate) -> float:
        """Take a token out of a bucket. Return 0, or the seconds until the next token if the bucket is empty."""
        if rate.per_minute == 0:
            return 0.0
        moment = self._clock()
        with self._lock:
            left, before = self._buckets.pop(key, (float(rate.burst), moment))
            left = min(rate.burst, left + (moment - before) * rate.per_minute / 60)
            waits = 0.0 if left >= 1 else (1 - left) * 60 / rate.per_minute
            self._buckets[key] = (left if waits else left - 1, moment)
            if len(self._buckets) > _MOST_BUCKETS:
                self._buckets.popitem(last=False)  # the least recently used bucket
            return waits


def spend(request: Request, kind: Kind, account_id: int | None = None) -> None:
    """Count a request of a client address, or of an account, towards a limit.

    Raises:
        HTTPException: 429 with ``Retry-After``, the limit is reached.
    """
    settings: Settings = request.app.state.settings
    limiter: Limiter = request.app.state.limiter
    who = network_of(request) if account_id is None else account_id
    seconds = limiter.spend((kind, who), getattr(settings, kind))
    if seconds:
        raise too_many(seconds)


def network_of(request: Request) -> str:
    """Return the network of the client that sent a request."""
    return client_network(request.client.host if request.client else None)


def too_many(seconds: float) -> HTTPException:
    """Return the error of a request beyond its limit."""
    wait = max(1, math.ceil(seconds))
    return HTTPException(429, f"too many requests; try again in {wait} s", headers={"Retry-After": str(wait)})


def client_network(host: str | None) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 network of an IPv6 address.

    >>> client_network("192.0.2.7"), client_network("2001:db8::1"), client_network("2001:db8::2"), client_network(None)
    ('192.0.2.7', '2001:db8::/64', '2001:db8::/64', 'unknown')
    """
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return (host or "unknown")[:64]  # the length of a column
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
