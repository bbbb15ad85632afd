"""Macro for the documentation site: the commands and options of a program, as its parser defines them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import leaderboard.cli
from agents.cli.options.parser import build_parser

PARSERS = {"alma": build_parser, "alma-leaderboard": leaderboard.cli._parser}


def define_env(env: Any) -> None:
    """Define the macro ``{{ command_line("alma") }}``."""
    env.macro(reference, "command_line")


def reference(program: str) -> str:
    """Return Markdown with a section for each command of a program."""
    parser = PARSERS[program]()
    return "\n\n".join(_section(command, summary) for command, summary in commands(parser))


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield each command below a parser that has no commands of its own, with its summary."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                below = list(commands(command))
                yield from below or [(command, summaries.get(name, ""))]


def _section(command: argparse.ArgumentParser, summary: str) -> str:
    command.color = False  # type: ignore[attr-defined]  # Python 3.14 would colour the usage
    lines = [f"### {command.prog}", "", f"{summary[:1].upper()}{summary[1:]}.", ""]
    lines += ["| argument | |", "| --- | --- |"]
    formatter = command._get_formatter()
    for action in command._actions:
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            text = formatter._expand_help(action) if action.help else ""
            lines.append(f"| `{_cell(_invocation(action, formatter))}` | {_cell(text)} |")
    lines += ["", *(["```text", command.epilog.rstrip(), "```"] if command.epilog else [])]
    return "\n".join(lines)


def _invocation(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """The words of an argument on the command line, as in `--seeds SEEDS [SEEDS ...]`."""
    names = action.option_strings[-1:]
    if action.nargs != 0:
        default = action.dest.upper() if names else action.dest
        names = [*names, formatter._format_args(action, default)]
    return " ".join(names)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
