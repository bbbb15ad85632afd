"""Extension for the API reference: turn the ``>>>`` examples of docstrings into code blocks."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# An example starts at a prompt and ends before an empty line, at the indentation of the prompt.
_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent).*\S.*)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """Return the docstring with each example in a fence; without it, Markdown renders `>` as a quotation."""
    return _EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", docstring)


class FencedExamples(Extension):
    """Change docstrings before mkdocstrings parses them."""

    def on_object(self, *, obj: Object, **keywords: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_package(self, *, pkg: Object, **keywords: Any) -> None:
        """Change the docstring of a package, for which ``on_object`` is not called."""
        self.on_object(obj=pkg)
