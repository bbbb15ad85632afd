"""Options and output that the commands share, and access to the board in a database or on the web."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from leaderboard.submission.manifest import Manifest
from leaderboard.submission.package import Package
from leaderboard.submission.static_check import Report

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from leaderboard.client.client import Client

# Modules that need the extra `web` are imported in functions, because `init` and `check` work without it.

Commands = argparse._SubParsersAction  # has no public name

DATABASE_VARIABLE = "ALMA_LEADERBOARD_DATABASE"
TOKEN_VARIABLE = "ALMA_LEADERBOARD_TOKEN"
LARGEST_ID = 2**31 - 1  # of the API and of the databases


def start_logging() -> None:
    """Write the messages of a server or worker, with times, to standard error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it names each of its plug-ins


def add_command(
    commands: Commands[argparse.ArgumentParser], name: str, function: Callable[..., int], help: str, **values: bool
) -> argparse.ArgumentParser:
    """Add a command, which calls a function with the options and the console. ``values`` are fixed options."""
    command = commands.add_parser(name, help=help)
    command.set_defaults(command=function, **values)
    return command


def id_number(text: str) -> int:
    """Return the id of a submission or of a token, for argparse.

    Raises:
        ArgumentTypeError: the text is not a number from 1 to `LARGEST_ID`.
    """
    # The length first: Python refuses to read a number of thousands of digits.
    if not (text.isdecimal() and len(text) <= 20 and 1 <= int(text) <= LARGEST_ID):
        raise argparse.ArgumentTypeError(f"{text}: must be a number from 1 to {LARGEST_ID}; copy the id from a list")
    return int(text)


def add_database(command: argparse.ArgumentParser) -> None:
    """Add the option ``--database``."""
    command.add_argument(
        "--database",
        metavar="URL",
        help=f"URL such as sqlite:///board.db or postgresql://user@host/board; default: ${DATABASE_VARIABLE}",
    )


def add_board(command: argparse.ArgumentParser) -> None:
    """Add the options ``--database``, ``--url`` and ``--token``."""
    add_database(command)
    command.add_argument("--url", help="address of a board on the web, instead of a database")
    command.add_argument(
        "--token", default=os.environ.get(TOKEN_VARIABLE), help=f"your token for --url; safer in ${TOKEN_VARIABLE}"
    )


def say(console: Console, message: str) -> None:
    """Print a message without markup and line breaks."""
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def print_report(report: Report, console: Console) -> tuple[Manifest, Package] | None:
    """Print the errors and warnings of a check; return what it read, None if there are errors."""
    for label, messages in (("[bold red]error[/]", report.errors), ("[yellow]warning[/]", report.warnings)):
        for message in messages:
            console.print(f"{label} {escape(message)}", highlight=False, soft_wrap=True)
    if not report.ok:
        return None
    assert report.manifest is not None
    assert report.package is not None
    return report.manifest, report.package


def database_url(options: argparse.Namespace) -> str:
    """Return the URL of the database.

    Raises:
        ValueError: the user gave none.
    """
    url = options.database or os.environ.get(DATABASE_VARIABLE)
    if not url:
        raise ValueError(f"--database: missing; give --database sqlite:///board.db, or set {DATABASE_VARIABLE}")
    return str(url)


@contextmanager
def opened(options: argparse.Namespace, *, new: bool = False, **settings: float) -> Iterator[Engine]:
    """Open the database with the settings of `open_database`, and close it at the end of the context.

    Args:
        options: they have the URL of the database.
        new: whether a file of SQLite that does not exist is created. Otherwise a mistyped name would look like an empty
            board.
        settings: of `open_database`.
    """
    url = database_url(options)
    from leaderboard.database.engine import require_existing
    from leaderboard.database.migrations import open_database

    if not new:
        require_existing(url)
    engine = open_database(url, **settings)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def connected(options: argparse.Namespace) -> Iterator[Client]:
    """Connect to the board on the web, and close the connection at the end of the context.

    Raises:
        ValueError: the user also gave options that belong to a database.
    """
    rules = {"database": "a board on the web has its own database", "account": "the board uses that of the token"}
    for name, rule in rules.items():
        if getattr(options, name, None) is not None:  # its value may have a password
            raise ValueError(f"--{name} with --url {options.url}: {rule}; leave --{name} out")
    from leaderboard.client.client import Client

    with Client(options.url, options.token or None) as client:
        yield client
