"""``alma completion``, also of alma-leaderboard: a script for the shell that completes commands, options and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from agents.catalogue.methods import METHODS
from agents.cli.options.parser import FIGURES, build_parser
from agents.policies.specs import EXPLORING, LEARNED
from agents.policies.waiting import SCHEDULES
from agents.rl.registration import trainable_ids
from agents.sweeps import trackers
from alma_env.errors import MissingPackageError, how_to_install
from alma_env.registration import STREAM_IDS

# Words that an option or an argument takes, by its name, where the parser leaves the check to the command.
_WORDS = {
    "env": STREAM_IDS,
    "agent": tuple(METHODS),
    "agents": tuple(METHODS),
    "learner": tuple(METHODS),
    "decision_env": tuple(trainable_ids()),
    "policy": (*SCHEDULES, LEARNED, EXPLORING),
    "track": tuple(trackers.NAMES),
    "kind": tuple(FIGURES),
}
_PATHS = ("data", "file", "folder", "path", "paths", "recorded", "tensorboard")


def completion(options: argparse.Namespace, console: Console) -> int:
    """Print the script for a shell; errors as `print_script`."""
    return print_script(build_parser(), options.shell)


def print_script(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print a script that completes the words of a command in a shell. The parser can parse nothing afterwards.

    Raises:
        MissingPackageError: the package shtab is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        remedy = how_to_install("completion")
        raise MissingPackageError(f"{parser.prog} completion: the package shtab is missing; {remedy}") from error
    for action in _actions(parser):
        if action.choices is None and action.dest in _WORDS and action.nargs != 0:
            action.choices = _WORDS[action.dest]
        elif action.type is Path or action.dest in _PATHS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
