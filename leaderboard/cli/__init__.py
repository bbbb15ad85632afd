"""The ``alma-leaderboard`` command: write, check, send and verify submissions; run and maintain a board."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

import alma_env
from agents.cli.options.listing_parser import SHELLS
from agents.cli.options.subcommands import Parser, end_without_reader
from alma_env import AlmaError
from alma_env.errors import how_to_install
from leaderboard.cli import maintaining, serving, submitting, verifying
from leaderboard.cli.common import DATABASE_VARIABLE, TOKEN_VARIABLE, add_command
from leaderboard.cli.verifying import load_verify
from leaderboard.rules import RULES_VERSION

__all__ = ["DATABASE_VARIABLE", "TOKEN_VARIABLE", "load_verify", "main"]
_PACKAGES_OF_WEB = ("alembic", "fastapi", "httpx2", "jinja2", "psycopg", "pyarrow", "sqlalchemy", "uvicorn")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``alma-leaderboard``; return the exit status: 0, 1 for a submission with errors, 2 for any other error."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        status: int = options.command(options, console)
        sys.stdout.flush()  # an error of the output is reported here, not by Python at its end
        return status
    except (AlmaError, ValueError, LookupError, TimeoutError) as error:
        return _refuse(options, str(error))
    except ImportError as error:
        if (error.name or "").split(".")[0] not in _PACKAGES_OF_WEB:
            raise
        return _refuse(options, f"the package {error.name} is missing; {how_to_install('web')}")
    except BrokenPipeError:
        return end_without_reader()
    except OSError as error:
        return _refuse(options, f"{error.filename or 'a file'}: {error.strerror or error}; choose another path")
    except KeyboardInterrupt:
        return 130


def _refuse(options: argparse.Namespace, message: str) -> int:
    console = Console(stderr=True)
    console.print(f"[bold red]alma-leaderboard {options.name}:[/] {escape(message)}", highlight=False, soft_wrap=True)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(prog="alma-leaderboard", description="The leaderboard of alma-env.")
    version = f"alma-env {alma_env.__version__}, rules {RULES_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="name", required=True)
    for module in (submitting, verifying, serving, maintaining):
        module.add(commands)
    summary = "print a script that completes the words of alma-leaderboard in your shell"
    add_command(commands, "completion", _completion, summary).add_argument("shell", choices=SHELLS)
    return parser


def _completion(options: argparse.Namespace, console: Console) -> int:
    from agents.cli.completion import print_script  # loads the learners

    return print_script(_parser(), options.shell)
