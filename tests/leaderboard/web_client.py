"""A test client and a server of the web application, and accounts, for tests of the web."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from leaderboard.accounts.accounts import make_account
from leaderboard.accounts.tokens import issue_token
from leaderboard.web.app import create_app
from leaderboard.web.connections import ConnectionLimits, limited
from leaderboard.web.guard.limits import Limiter
from leaderboard.web.guard.settings import Rate, Settings

UNLIMITED = Rate(0, 1)
# Without rate limits, which would slow down the tests.
SETTINGS = Settings(
    registration="open",
    requests=UNLIMITED,
    changes=UNLIMITED,
    archives=UNLIMITED,
    log_ins=UNLIMITED,
    sign_ins=UNLIMITED,
    registrations=UNLIMITED,
    exports=UNLIMITED,
    downloads=UNLIMITED,
    submissions_per_day=1_000,
    registrations_per_day=1_000,
    waiting_per_account=1_000,
    waiting_per_address=1_000,
)


_routes: list[BaseRoute] = []


def app_of(engine: Engine, settings: Settings) -> FastAPI:
    """Return an application with the routes of the first one: FastAPI analyses their functions at its first request."""
    app = create_app(engine, settings)
    if not _routes:
        _routes.extend(app.router.routes)
    app.router.routes[:] = _routes
    return app


def client_of(engine: Engine, **changes: object) -> TestClient:
    """Return a client of an application with this database, without a server."""
    app = app_of(engine, replace(SETTINGS, **changes))
    return TestClient(app, base_url="http://board", follow_redirects=False)


def at_one_moment(client: TestClient) -> TestClient:
    """Stop the clock of the rate limits, so that no bucket gains a token while a test runs."""
    client.app.state.limiter = Limiter(lambda: 0.0)
    return client


@contextmanager
def serving(engine: Engine, limits: ConnectionLimits | None = None) -> Iterator[int]:
    """Serve a board in a thread, and give its port."""
    http = limited(limits or ConnectionLimits())
    server = uvicorn.Server(uvicorn.Config(create_app(engine, SETTINGS), http=http, ws="none", log_level="critical"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@dataclass(frozen=True)
class Person:
    """An account with a token."""

    id: int
    name: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def person(engine: Engine, name: str, role: str = "submitter", scopes: list[str] | None = None) -> Person:
    account, token = make_account(engine, name, role)
    return Person(account.id, name, (issue_token(engine, account.id, "t", scopes=scopes) if scopes else token).secret)
