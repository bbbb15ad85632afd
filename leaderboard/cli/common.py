"""What the commands share: how they print, and where the board is: in a database, or on the web."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from leaderboard.check import Report

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from leaderboard.client import Client

# What needs a database or the web is imported where it is used: a submission is begun and checked without the extra.

Commands = argparse._SubParsersAction  # has no public name

DATABASE_VARIABLE = "ALMA_LEADERBOARD_DATABASE"
TOKEN_VARIABLE = "ALMA_LEADERBOARD_TOKEN"


def add_database(command: argparse.ArgumentParser) -> None:
    """``--database``."""
    command.add_argument(
        "--database",
        metavar="URL",
        default=os.environ.get(DATABASE_VARIABLE),
        help=f"such as sqlite:///board.db or postgresql://user@host/board; default: ${DATABASE_VARIABLE}",
    )


def add_board(command: argparse.ArgumentParser) -> None:
    """``--database``, or ``--url`` and ``--token``."""
    add_database(command)
    command.add_argument("--url", help="of a board on the web, instead of a database")
    command.add_argument(
        "--token", default=os.environ.get(TOKEN_VARIABLE), help=f"of your account there; better in ${TOKEN_VARIABLE}"
    )


def say(console: Console, message: str) -> None:
    """Print a message as it is."""
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def print_report(report: Report, console: Console) -> None:
    """What a check found."""
    for message in report.errors:
        console.print(f"[bold red]error[/] {escape(message)}", highlight=False, soft_wrap=True)
    for message in report.warnings:
        console.print(f"[yellow]warning[/] {escape(message)}", highlight=False, soft_wrap=True)


def database_url(options: argparse.Namespace) -> str:
    """The URL of the database.

    Raises:
        ValueError: none was given.
    """
    if not options.database:
        raise ValueError(f"no database; give --database sqlite:///board.db, or set {DATABASE_VARIABLE}")
    return str(options.database)


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[Engine]:
    """The database, for the time of a `with`."""
    url = database_url(options)
    from leaderboard.migrations import open_database

    engine = open_database(url)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def connected(options: argparse.Namespace) -> Iterator[Client]:
    """The board on the web, for the time of a `with`."""
    from leaderboard.client import Client

    with Client(options.url, options.token or None) as client:
        yield client
