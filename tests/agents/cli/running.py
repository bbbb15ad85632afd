"""The command ``alma`` in this process, with what it prints."""

from __future__ import annotations

from agents.cli import main


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Return the exit status of ``alma ARGUMENTS``, its output and its error output."""
    try:
        status = main(list(map(str, arguments)))
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    return status, out, err
