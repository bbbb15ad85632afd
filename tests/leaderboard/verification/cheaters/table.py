"""The table of the gallery for the docs, made of the marks of its tests.

``python tests/leaderboard/verification/cheaters/table.py`` writes docs/leaderboard-attacks.md again. With ``--print``
it prints the page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[3] / "docs" / "leaderboard-attacks.md"
HEAD = """\
# The gallery of attacks

Each line is a test that plays a cheater: `pytest {folder}` runs all {number} attacks. The page
is made of the tests: `python {folder}/table.py` writes it again.
[leaderboard.md](leaderboard.md#threat-model) has the threat model.
"""


class Collector:
    """A plugin of pytest that keeps the attacks of the collected tests, by file."""

    def __init__(self) -> None:
        self.attacks: dict[str, list[tuple[str, str]]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            marks = [mark.args for mark in reversed([*item.iter_markers("attack")])]
            lines = self.attacks.setdefault(item.path.relative_to(FOLDER).as_posix(), [])
            lines += [mark for mark in marks if mark not in lines]


def page() -> str:
    """Return the page: a table for each file, whose docstring is the heading."""
    collector, silent = Collector(), io.StringIO()
    with contextlib.redirect_stdout(silent):
        status = pytest.main(
            # A test calls this function, too: the second pytest leaves the output and the faults to the first.
            ["--collect-only", "-q", "-n0", "-s", "-p", "no:cacheprovider", "-p", "no:faulthandler", str(FOLDER)],
            plugins=[collector],
        )
    if status != pytest.ExitCode.OK:
        raise RuntimeError(f"the gallery cannot be collected: {silent.getvalue()[-2000:]}")
    files = sorted(collector.attacks, key=lambda file: file.replace("test_", "", 1))  # folders lie between the files
    return "\n".join(_lines({file: collector.attacks[file] for file in files if collector.attacks[file]}))


def _lines(attacks: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    number = sum(map(len, attacks.values()))
    yield HEAD.format(number=number, folder=FOLDER.relative_to(PAGE.parents[1]))
    for file, found in attacks.items():
        subject = ast.get_docstring(ast.parse((FOLDER / file).read_text(encoding="utf-8"))) or file
        yield f"## {subject.splitlines()[0].rstrip('.')}\n"
        yield f"`{file}`\n"
        yield "| the cheater | what comes of it |\n| --- | --- |"
        yield from (f"| {_cell(does)} | {_cell(comes_to)} |" for does, comes_to in found)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    if "--print" in sys.argv:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page(), encoding="utf-8")
