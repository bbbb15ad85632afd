"""How often a client address or an account may do something: token buckets, in the memory of this process.

Several processes of a server count each on their own, and a restart begins anew: this keeps one client from taking
everything, and guessing slow. What must hold exactly, such as submissions per day, is counted in the database.
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

from leaderboard.web.settings import Rate, Settings

Kind = Literal["requests", "changes", "log_ins", "registrations", "exports", "downloads"]
_MOST_BUCKETS = 20_000


class Limiter:
    """Token buckets by key: each holds up to ``burst`` and is refilled by ``per_minute``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # what is in it, and when it was

    def spend(self, key: Hashable, rate: Rate) -> float:
        """Take one out of a bucket; 0 if there was one, else the seconds until there will be."""
        if rate.per_minute == 0:
            return 0.0
        moment = self._clock()
        with self._lock:
            left, before = self._buckets.pop(key, (float(rate.burst), moment))
            left = min(rate.burst, left + (moment - before) * rate.per_minute / 60)
            waits = 0.0 if left >= 1 else (1 - left) * 60 / rate.per_minute
            self._buckets[key] = (left if waits else left - 1, moment)
            if len(self._buckets) > _MOST_BUCKETS:
                self._buckets.popitem(last=False)  # who was not here for the longest time
            return waits


def spend(request: Request, kind: Kind, account_id: int | None = None) -> None:
    """Count something that a client, or an account, does.

    Raises:
        HTTPException: 429, with ``Retry-After``: too often.
    """
    settings: Settings = request.app.state.settings
    limiter: Limiter = request.app.state.limiter
    who = client_network(request.client.host if request.client else None) if account_id is None else account_id
    seconds = limiter.spend((kind, who), getattr(settings, kind))
    if seconds:
        raise too_many(seconds)


def too_many(seconds: float) -> HTTPException:
    """The answer to more than is let through."""
    wait = max(1, math.ceil(seconds))
    return HTTPException(429, f"too many requests; wait {wait} s and try again", headers={"Retry-After": str(wait)})


def client_network(host: str | None) -> str:
    """What counts as one client: an IPv4 address, or the 64 bits of an IPv6 address that name a network.

    >>> client_network("192.0.2.7"), client_network("2001:db8::1"), client_network("2001:db8::2"), client_network(None)
    ('192.0.2.7', '2001:db8::/64', '2001:db8::/64', 'unknown')
    """
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return host or "unknown"
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
