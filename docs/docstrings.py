"""For the API reference: examples with ``>>>`` in docstrings become blocks of code, wherever they stand."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# From a prompt to the next empty line or the end, at the indentation of the prompt.
_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent).*\S.*)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """The docstring with each example between fences; without these, Markdown would take `>` for a quotation."""
    return _EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", docstring)


class FencedExamples(Extension):
    """Called by mkdocstrings for all that it has read."""

    def on_object(self, *, obj: Object, **keywords: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring is not None and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_package(self, *, pkg: Object, **keywords: Any) -> None:
        """The same for the docstring of a whole package, for which the other is not called."""
        self.on_object(obj=pkg)
