"""The code blocks of the documentation pages, and the commands in them as bash parses them.

The fence of a block determines what the tests do with the block:

    python, sh                     execute it
    … {data-test="takes hours"}    (or another word of `NOT_RUN`) check its names, because a test cannot execute it; the
                                   site does not show the word
    … title="sweep.toml"           (a file name) write it to this file, for the blocks below; the site shows the title
    text, nginx, bibtex            nothing; it shows an output, a drawing, or the text of another program
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_AT_THE_TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
_DOCS = ROOT / "docs"
PAGES = {name: ROOT / name for name in _AT_THE_TOP} | {
    str(page.relative_to(_DOCS)): page for pattern in ("*.md", "tutorials/*.md") for page in sorted(_DOCS.glob(pattern))
}
NOT_RUN = ("takes minutes", "takes hours", "needs a GPU", "needs a network", "needs CleanRL", "needs the novels")
EXECUTED = ("python", "sh")
SHOWN = ("text", "nginx", "bibtex")

_BLOCK = re.compile(
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]*)"| \{data-test="(?P<reason>[^"]*)"\})?\n(?P<code>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
_FENCE = re.compile(r"^\s*```", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# Commands that bash passes to the test. Bash finds no other commands, because its PATH is empty.
_COMMANDS = (
    *("alma", "alma-leaderboard", "pip", "pytest", "python", "torchrun", "createuser", "createdb", "hf", "pre-commit"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: file name.
        line: line number of the opening fence.
        language: language of the fence.
        title: title of the fence, or empty.
        reason: why the tests do not execute the block, a word of `NOT_RUN`, or empty.
        code: the lines between the fences.
    """

    page: str
    line: int
    language: str
    title: str
    reason: str
    code: str

    @property
    def is_file(self) -> bool:
        """Whether the title names a file that later blocks use."""
        return re.fullmatch(r"[\w/-]+\.(toml|py|txt|md)", self.title) is not None

    @property
    def is_run(self) -> bool:
        """Whether the tests execute the block."""
        return self.language in EXECUTED and not self.reason and not self.is_file

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order.

    Raises:
        ValueError: a fence does not have the form above.
    """
    text = page.read_text()
    found = [
        Block(
            page.name,
            text.count("\n", 0, match.start()) + 1,
            match["language"],
            match["title"] or "",
            match["reason"] or "",
            match["code"],
        )
        for match in _BLOCK.finditer(text)
    ]
    if len(_FENCE.findall(text)) != 2 * len(found):
        raise ValueError(
            f'{page.name}: a fence is not closed, indented, or has another title than title="…" or {{data-test="…"}}'
        )
    return found


def prose(page: Path) -> str:
    """Return the text of a page without its blocks."""
    return _BLOCK.sub("", page.read_text())


def inline_code(page: Path) -> list[str]:
    """Return the inline code of the prose of a page, each on one line."""
    return [" ".join(code.split()) for code in _INLINE.findall(prose(page))]


def commands(script: str, folder: Path) -> list[list[str]]:
    """Return the words of each command of a script; bash expands its loops and variables.

    Raises:
        AssertionError: the script fails, or has an unknown command.
    """
    hand_over = " ".join(
        f"""function {name} {{ printf '%s\\0' "$(( $# + 1 ))" {name} "$@" >&3; }};""" for name in _COMMANDS
    )
    done = subprocess.run(
        ["/bin/bash", "-euc", f"exec 3>&1 1>&2; {hand_over}\n{script}"],
        cwd=folder,
        env={"PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    words, found = done.stdout.split("\0")[:-1], []
    while words:
        count, *rest = words
        found.append(rest[: int(count)])
        words = rest[int(count) :]
    return found
