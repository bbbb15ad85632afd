"""Execute the tutorials of the documentation, and make the notebooks that readers download.

    python -m tests.tutorials [PAGE ...]

executes pages of docs/tutorials/ (by default all) in an empty folder: also the blocks that take minutes, but not those
that take hours. It writes what a block printed into the text block below it, copies the pictures that the page shows,
and writes the notebook.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from .documentation import EXECUTED, PAGES, Block, blocks

_PICTURE = re.compile(r"^!\[[^\]]*\]\(([\w-]+\.png)\)$", re.MULTILINE)
_DOWNLOAD = re.compile(r"^\[[^\]]*\]\([\w-]+\.ipynb\).*\n\n?", re.MULTILINE)  # the link to the notebook itself


def main(names: list[str]) -> None:
    """Execute the pages of these names, and write their outputs, pictures and notebooks."""
    for name, page in PAGES.items():
        if name.startswith("tutorials/") and (not names or page.stem in names):
            print(page)
            _execute(page)
            page.with_suffix(".ipynb").write_text(nbformat.writes(notebook(page)) + "\n")


def output_of(page: list[Block], block: Block) -> Block | None:
    """Return the text block that shows what a block prints: the next one, with nothing but an empty line between."""
    following = page[page.index(block) + 1 :][:1]
    end = block.line + block.code.count("\n") + 1
    return next((text for text in following if text.language == "text" and text.line == end + 2), None)


def same_words(printed: str, shown: str) -> bool:
    """Whether two outputs are equal except for numbers and white space: numbers differ from machine to machine."""
    return _without_numbers(printed) == _without_numbers(shown)


def notebook(page: Path) -> NotebookNode:
    """Return a page as a notebook of Jupyter, with the outputs and pictures that the page shows."""
    cells: list[NotebookNode] = []
    found = blocks(page)
    outputs = [output_of(found, block) for block in found]
    for part in _parts(page, found):
        if isinstance(part, str):
            for text in _PICTURE.split(_DOWNLOAD.sub("", part))[::2]:
                if text.strip():
                    cells.append(new_markdown_cell(text.strip()))
            for picture in _PICTURE.findall(part):
                image = base64.b64encode((page.parent / picture).read_bytes()).decode()
                code = [cell for cell in cells if cell.cell_type == "code"][-1]
                code.outputs.append(new_output("display_data", {"image/png": image}))
        elif part in outputs:
            cells[-1].outputs.append(new_output("stream", name="stdout", text=part.code))
        elif part.language in EXECUTED:
            magic = f"%%writefile {part.title}\n" if part.is_file else "%%bash\n" if part.language == "sh" else ""
            cells.append(new_code_cell(magic + part.code.rstrip("\n")))
        else:
            cells.append(new_markdown_cell(f"```{part.language}\n{part.code}```"))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    made = new_notebook(cells=cells, metadata=kernel)
    nbformat.validate(made)
    return made


def _parts(page: Path, found: list[Block]) -> Iterator[str | Block]:
    """Yield the prose and the blocks of a page, in order."""
    lines, at = page.read_text().splitlines(keepends=True), 0
    for block in found:
        yield "".join(lines[at : block.line - 1])
        yield block
        at = block.line + block.code.count("\n") + 1
    yield "".join(lines[at:])


def _execute(page: Path) -> None:
    module = ModuleType("tutorial")
    sys.modules[module.__name__] = module
    lines, moved = page.read_text().splitlines(keepends=True), 0
    found = blocks(page)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        sys.path.insert(0, folder)
        for block in found:
            if block.is_file:
                Path(block.title).parent.mkdir(parents=True, exist_ok=True)
                Path(block.title).write_text(block.code)
            elif block.language in EXECUTED and block.reason in ("", "takes minutes"):
                printed = _printed(block, module)
                if shown := output_of(found, block):
                    at = shown.line + moved
                    lines[at : at + shown.code.count("\n")] = new = printed.splitlines(keepends=True)
                    moved += len(new) - shown.code.count("\n")
        sys.path.remove(folder)
        for picture in _PICTURE.findall(page.read_text()):
            (page.parent / picture).write_bytes(Path(picture).read_bytes())
    page.write_text("".join(lines))


def _printed(block: Block, module: ModuleType) -> str:
    if block.language == "sh":
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code],
            env={**os.environ, "COLUMNS": "100"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return _tidy(done.stdout)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block.code, str(block), "exec"), vars(module))
    return _tidy(printed.getvalue())


def _tidy(printed: str) -> str:
    """Return the lines without white space at their ends, and without empty lines around them."""
    return "\n".join(line.rstrip() for line in printed.strip("\n").splitlines()) + "\n"


def _without_numbers(text: str) -> list[str]:
    words = re.sub(r"[-+]?\d[\d.,:]*(e[-+]?\d+)?", "#", text).split()
    return [word for word in words if set(word) - set("-─ ")]


if __name__ == "__main__":
    main(sys.argv[1:])
