"""The ``alma`` command.

This module and `agents.cli.options` load neither PyTorch nor the learners, so that ``alma --help`` answers at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from agents.cli.options.parser import build_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``alma`` or ``python -m agents``, with these words or those of this process; return the exit status."""
    options = build_parser().parse_args(arguments)
    status: int = importlib.import_module("agents.cli.command").carry_out(options)
    return status
