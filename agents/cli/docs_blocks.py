"""The computed blocks of a page of the documentation, such as costs, and findings of the recorded runs.

A block is the text between two comments. The first comment is the command that prints the text:

    <!-- alma reproduce fig7 --scale cpu --recorded --print findings -->
    <!-- end -->

``python -m agents.cli.docs_blocks docs/reproduction.md`` computes the blocks of a page again.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

from agents.cli import main

_BLOCK = re.compile(r"<!-- alma (?P<words>[^>]*?) -->\n.*?<!-- end -->", re.DOTALL)


def fill(text: str) -> str:
    """Return a page with all of its blocks computed; ValueError if the command of a block fails."""
    return _BLOCK.sub(lambda found: f"<!-- alma {found['words']} -->\n\n{_output(found['words'])}\n<!-- end -->", text)


def commands(text: str) -> list[str]:
    """Return the commands of all blocks of a page, without ``alma``."""
    return [found["words"] for found in _BLOCK.finditer(text)]


@cache
def _output(words: str) -> str:
    with redirect_stdout(io.StringIO()) as written:
        try:
            status: object = main(shlex.split(words))
        except SystemExit as end:  # of the parser, which has named the wrong word
            status = end.code
    if status != 0:
        raise ValueError(f"<!-- alma {words} -->: the command failed, with the message above; write another one")
    return written.getvalue()


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
