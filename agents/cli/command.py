"""Carrying out a command: find its function, call it, and report errors in one line."""

from __future__ import annotations

import argparse
import errno
import importlib

from rich.console import Console
from rich.markup import escape

from agents.training import distributed
from alma_env.errors import AlmaError


def carry_out(options: argparse.Namespace) -> int:
    """Call the function ``options.command``, written ``module:function`` of `agents.cli`; return the exit status."""
    module, _, function = options.command.partition(":")
    try:
        status: int = getattr(importlib.import_module(f"agents.cli.{module}"), function)(options, Console())
        return status
    except distributed.OtherRankError:
        return 2  # the first rank has printed the reason
    except (AlmaError, ValueError, TypeError) as error:
        return _refuse(options, str(error))
    except OSError as error:
        remedy = "choose a folder that can be read and written"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "make room on its disk, and give the same command again: runs go on from their last checkpoint"
        return _refuse(options, f"{error.filename or 'a file'}: {error.strerror or error}; {remedy}")
    except KeyboardInterrupt:
        if distributed.rank() > 0:
            return 130
        how = "the same command without --fresh" if getattr(options, "fresh", False) else "the same command"
        Console(stderr=True).print(f"stopped; {how} goes on from here", highlight=False)
        return 130


def _refuse(options: argparse.Namespace, message: str) -> int:
    # Escaped, since Rich would take a remedy such as 'alma-env[tensorboard]' for markup.
    who = f" on rank {distributed.rank()}" if distributed.rank() > 0 else ""
    text = f"[bold red]alma {options.name}{who}:[/] {escape(message)}"
    Console(stderr=True).print(text, highlight=False, soft_wrap=True, emoji=False)
    return 2
