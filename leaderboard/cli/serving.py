"""``serve``: the board on the web, and workers beside it."""

from __future__ import annotations

import argparse
import logging
import socket
import sys

from rich.console import Console

from leaderboard.cli.common import Commands, add_database, database_url, say
from leaderboard.cli.verifying import add_verify, load_verify

BUSY_SECONDS = 5.0  # a request does not wait longer for the database


def add(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    serve = commands.add_parser("serve", help="the board on the web, until it is stopped")
    serve.set_defaults(command=_serve)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen at; 0.0.0.0 for everyone; default here")
    serve.add_argument("--port", type=int, default=8000, help="to listen at, 0 for any that is free; default 8000")
    serve.add_argument("--title", default="ALMA leaderboard", help="of the pages")
    serve.add_argument("--https", action="store_true", help="it is reached by HTTPS, through a proxy that has the key")
    serve.add_argument("--root-path", default="", metavar="/PATH", help="below which a proxy shows it")
    serve.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="whose word about the client's address is taken; may be repeated; default nobody's",
    )
    serve.add_argument(
        "--registration", choices=("open", "closed"), default="closed", help="whether everyone makes an account"
    )
    serve.add_argument("--submissions-per-day", type=int, default=50, help="new ones of an account; default 50")
    serve.add_argument("--no-baselines", action="store_true", help="do not put the project's own agents on the board")
    serve.add_argument("--workers", type=int, default=0, help="verification workers to start beside it; default none")
    add_verify(serve)
    add_database(serve)


def _serve(options: argparse.Namespace, console: Console) -> int:
    url = database_url(options)
    if options.workers < 0 or not 0 <= options.port < 2**16:
        raise ValueError(f"--workers {options.workers}, --port {options.port}: give 0 or more, and a port up to 65535")
    if options.root_path and not (options.root_path.startswith("/") and not options.root_path.endswith("/")):
        raise ValueError(f"--root-path {options.root_path}: write it with a slash before and none behind, as in /board")
    if options.workers:
        load_verify(options.verify)  # here a mistake is told, there it would be a worker that ends again and again
    import uvicorn
    from sqlalchemy import make_url

    from leaderboard import baselines
    from leaderboard.accounts import has_maintainer
    from leaderboard.migrations import open_database
    from leaderboard.web.app import create_app
    from leaderboard.web.settings import Settings
    from leaderboard.web.workers import beside

    settings = Settings(
        title=options.title,
        https=options.https,
        registration=options.registration,
        submissions_per_day=options.submissions_per_day,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    with _listening(options.host, options.port) as listening:
        engine = open_database(url, busy_seconds=BUSY_SECONDS)
        try:
            if not options.no_baselines:
                baselines.install(engine)
            config = uvicorn.Config(
                create_app(engine, settings),
                root_path=options.root_path,
                proxy_headers=bool(options.trusted_proxy),
                forwarded_allow_ips=options.trusted_proxy,
                server_header=False,
                timeout_graceful_shutdown=10,
                limit_concurrency=500,
            )
            host, port = listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            say(console, f"the board is at http://{shown}:{port}{options.root_path}/")
            if not has_maintainer(engine):
                shown = make_url(url).render_as_string(hide_password=True)
                how = f"alma-leaderboard account add NAME --role maintainer --database {shown}"
                say(console, f"it has no maintainer yet: {how}")
            with beside(url, options.workers, options.verify):
                uvicorn.Server(config).run(sockets=[listening])
        finally:
            engine.dispose()
    return 0


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol named: without, asyncio leaves Nagle's algorithm on, and every answer takes 40 ms longer.
        opened = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(2048)
        except BaseException:
            opened.close()
            raise
    except OSError as error:
        raise ValueError(
            f"--host {host} --port {port}: cannot listen there ({error.strerror or error}); choose another port, such "
            "as 0 for any that is free, or an address of this machine"
        ) from error
    return opened
