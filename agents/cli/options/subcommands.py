"""The parser of a command and of its subcommands: a wrong word is answered with the most similar known words."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NoReturn

from alma_env.errors import did_you_mean


class Parser(argparse.ArgumentParser):
    """A parser whose errors suggest similar names for a wrong value of a choice and for an unknown option."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), names)
            raise argparse.ArgumentError(action, f"{value!r}: unknown; choose from {', '.join(names)}{hint}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words of this command.

        A parser of a subcommand gets only its own words, so a word that it does not know is an error of the user.
        """
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return options, unknown

    def _refuse(self, word: str) -> NoReturn:
        hint = did_you_mean(word.partition("=")[0], self._option_string_actions) if word.startswith("-") else ""
        self.error(f"{word}: unknown; `{self.prog} --help` lists the options{hint}")


def add_command(commands: Any, name: str, function: str, summary: str, **keywords: Any) -> argparse.ArgumentParser:
    """Add a subcommand that `agents.cli.command.carry_out` carries out by calling a function.

    `agents.cli.options.parser` says how the function is written.
    """
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, **keywords)
    parser.set_defaults(command=function)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON; messages go to standard error")


def end_without_reader() -> int:
    """Drop what is left of the output, since its reader, such as ``head``, has ended; return the exit status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest of its buffer at its end
    return 1
