"""The command ``serve``: the board on the web, with workers."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys

from rich.console import Console

from leaderboard.cli.common import (
    DATABASE_VARIABLE,
    Commands,
    add_command,
    add_database,
    database_url,
    opened,
    say,
    start_logging,
)
from leaderboard.cli.verifying import DEFAULT_VERIFY, add_verify, load_verify
from leaderboard.errors import SubmissionError

BUSY_SECONDS = 5.0  # the longest wait of a request for the database
log = logging.getLogger(__name__)


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    serve = add_command(commands, "serve", _serve, "serve the board on the web until stopped")
    serve.add_argument("--host", default="127.0.0.1", help="address; 0.0.0.0 for all interfaces; default 127.0.0.1")
    serve.add_argument("--port", type=int, default=8000, help="port to listen on; 0 for any free port; default 8000")
    serve.add_argument("--title", default="ALMA leaderboard", help="title of the pages")
    serve.add_argument("--https", action="store_true", help="users connect by HTTPS, through a proxy")
    serve.add_argument("--root-path", default="", metavar="/PATH", help="path below which a proxy serves the board")
    serve.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address or network of a proxy, whose headers are trusted for the address of the client; can be repeated",
    )
    serve.add_argument(
        "--registration",
        choices=("open", "closed"),
        default="closed",
        help="whether everyone can create an account; default closed",
    )
    serve.add_argument(
        "--public-url",
        metavar="URL",
        help="address of the board, such as https://board.example; requests to other hosts are then refused",
    )
    serve.add_argument("--registrations-per-day", type=int, default=20, help="limit per client address; default 20")
    serve.add_argument("--submissions-per-day", type=int, default=50, help="limit per account; default 50")
    serve.add_argument("--waiting-per-account", type=int, default=10, help="submissions in the queue; default 10")
    serve.add_argument("--waiting-per-address", type=int, default=40, help="submissions in the queue; default 40")
    serve.add_argument(
        "--connections-per-address", type=int, default=100, help="limit, except for a trusted proxy; default 100"
    )
    serve.add_argument("--no-baselines", action="store_true", help="do not add the project's own agents")
    serve.add_argument("--workers", type=int, default=0, help="number of verification workers to start; default 0")
    add_verify(serve)
    add_database(serve)


def _serve(options: argparse.Namespace, console: Console) -> int:
    url = database_url(options)
    if options.workers < 0 or not 0 <= options.port < 2**16:
        raise ValueError(
            f"--workers {options.workers}, --port {options.port}: must be at least 0, the port at most 65535"
        )
    if options.root_path and not (options.root_path.startswith("/") and not options.root_path.endswith("/")):
        raise ValueError(
            f"--root-path {options.root_path}: must begin with a slash and end without; write it like /board"
        )
    if options.workers or options.verify != DEFAULT_VERIFY:
        load_verify(options.verify)  # raises here; otherwise every worker would end with this error
    import uvicorn
    from sqlalchemy import make_url

    from leaderboard.accounts.accounts import has_maintainer
    from leaderboard.board import baselines
    from leaderboard.web.app import create_app
    from leaderboard.web.connections import ConnectionLimits, limited
    from leaderboard.web.guard.providers import configured
    from leaderboard.web.guard.settings import Settings
    from leaderboard.web.workers import running_workers

    settings = Settings(
        title=options.title,
        https=options.https,
        registration=options.registration,
        public_url=options.public_url,
        providers=configured(os.environ),
        registrations_per_day=options.registrations_per_day,
        submissions_per_day=options.submissions_per_day,
        waiting_per_account=options.waiting_per_account,
        waiting_per_address=options.waiting_per_address,
    )
    connections = ConnectionLimits(per_address=options.connections_per_address, exempt=options.trusted_proxy)
    start_logging()
    with (
        _listening(options.host, options.port) as listening,
        opened(options, new=True, busy_seconds=BUSY_SECONDS) as engine,
    ):
        if not options.no_baselines:
            try:
                baselines.install(engine)
            except SubmissionError as error:  # an account must not stop the board
                log.warning(
                    "the baselines are not added, because their account cannot send them (%s); enable the account, or "
                    "serve with --no-baselines",
                    error,
                )
        config = uvicorn.Config(
            create_app(engine, settings),
            root_path=options.root_path,
            proxy_headers=bool(options.trusted_proxy),
            forwarded_allow_ips=options.trusted_proxy,
            server_header=False,
            timeout_graceful_shutdown=10,
            http=limited(connections),
            ws="none",
        )
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say(console, f"the board is at http://{shown}:{port}{options.root_path}/")
        if not has_maintainer(engine):
            shown = make_url(url).render_as_string(hide_password=True)
            how = f"alma-leaderboard account add NAME --role maintainer --database {shown}"
            say(console, f"the board has no maintainer yet; add one: {how}")
        command = [sys.executable, "-m", "leaderboard.cli", "worker"]
        command += ["--verify", options.verify, "--while-input-is-open"]
        with running_workers(command, {DATABASE_VARIABLE: url}, options.workers):
            uvicorn.Server(config).run(sockets=[listening])
    return 0


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With an explicit protocol asyncio turns off Nagle's algorithm, which would delay every answer by 40 ms.
        listening = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(2048)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise ValueError(
            f"--host {host} --port {port}: cannot listen there ({error.strerror or error}); choose an address of this "
            "machine and another port, or --port 0 for any free port"
        ) from error
    return listening
