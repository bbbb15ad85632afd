"""Carrying out a command: find its function, call it, and report errors: in a file of the user with their place."""

from __future__ import annotations

import argparse
import errno
import importlib
import sys

from rich.console import Console
from rich.markup import escape

from agents.catalogue import own_code
from agents.cli.options.subcommands import end_without_reader
from agents.training import distributed
from alma_env.errors import AlmaError

_WITH_CHECKPOINTS = (
    "runs.run_sweep:run",
    "runs.run_sweep:run_grid",
    "reproduce:reproduce",
    "decisions.surrogates:record",
)
_GOES_ON = (*_WITH_CHECKPOINTS, "arena:play")  # the arena plays a stopped stream again, and keeps the finished ones


def carry_out(options: argparse.Namespace) -> int:
    """Call the function ``options.command``, written ``room.module:function``; return the exit status."""
    module, _, function = options.command.partition(":")
    try:
        status: int = getattr(importlib.import_module(f"agents.cli.{module}"), function)(options, Console())
        sys.stdout.flush()  # an error of the output is reported here, not by Python at its end
        return status
    except distributed.OtherRankError:
        return 2  # the first rank has printed the reason
    except BrokenPipeError:
        return end_without_reader()
    except Exception as error:
        message = own_code.traceback_of(error) or _message(options, error)
        if message is None:
            raise
        return _refuse(options, message.rstrip())
    except KeyboardInterrupt:
        if distributed.rank() > 0:
            return 130
        how = "the same command without --fresh" if getattr(options, "fresh", False) else "the same command"
        where = "goes on from here" if options.command in _GOES_ON else "begins again"
        Console(stderr=True).print(f"stopped; {how} {where}", highlight=False)
        return 130


def _message(options: argparse.Namespace, error: Exception) -> str | None:
    """Return the message for an error of the user or of the system; None for a defect of this project."""
    if isinstance(error, AlmaError | ValueError | TypeError):
        return str(error)
    if not isinstance(error, OSError):
        return None
    if error.errno is None:  # of a library, such as of one that reads images
        return str(error)
    remedy = "choose a folder that can be read and written"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        goes_on = ": runs go on from their last checkpoint" if options.command in _WITH_CHECKPOINTS else ""
        remedy = f"make room on its disk, and give the same command again{goes_on}"
    return f"{error.filename or 'a file'}: {error.strerror}; {remedy}"


def _refuse(options: argparse.Namespace, message: str) -> int:
    # Escaped, since Rich would take a remedy such as 'alma-env[tensorboard]' for markup.
    who = f" on rank {distributed.rank()}" if distributed.rank() > 0 else ""
    text = f"[bold red]alma {options.name}{who}:[/] {escape(message)}"
    Console(stderr=True).print(text, highlight=False, soft_wrap=True, emoji=False)
    return 2
