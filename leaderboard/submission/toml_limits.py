"""Limits of a TOML text before it is parsed, so that the time to parse it grows only with its length.

`tomllib` walks through all parts of a key for every key, so its time grows with the square of the number of parts. It
calls itself for every bracket. This module looks at brackets and at the dots of keys, and reads strings and comments
only to skip them. Up to the first error of `tomllib`, both agree about what is a string.
"""

from __future__ import annotations

import re

from leaderboard.errors import SubmissionError

MAXIMUM_KEY_PARTS = 4  # a manifest needs two: hyperparameters.wait
MAXIMUM_DEPTH = 8  # of brackets; a manifest needs one
MAXIMUM_LINES = 2_000  # of 64 KiB; a manifest has some dozen
# Every alternative that begins also matches, at the latest at the end: a failed one would be tried from every quote.
_TOKENS = re.compile(
    r'"""(?:\\(?:.|\Z)|[^\\])*?(?:"{3,5}|\Z)'  # a text of several lines can end with two quotes of its own
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\(?:.|\Z)|[^"\\\n])*(?:"|\n|\Z)'
    r"|'[^'\n]*(?:'|\n|\Z)"
    r"|\#[^\n]*"
    r"|(?P<mark>[.\[\]{}=,\n])",
    re.DOTALL,
)


def require_small(text: str) -> None:
    """Require that keys have few parts and brackets few levels, or raise SubmissionError."""
    dots = depth = lines = 0
    for token in _TOKENS.finditer(text):
        match token["mark"]:
            case None:
                continue
            case ".":
                dots += 1
                if dots >= MAXIMUM_KEY_PARTS:
                    raise _too_large(f"a key of more than {MAXIMUM_KEY_PARTS} parts", text, token.start())
                continue
            case "[" | "{":
                depth += 1
                if depth > MAXIMUM_DEPTH:
                    raise _too_large(f"more than {MAXIMUM_DEPTH} brackets inside each other", text, token.start())
            case "]" | "}":
                depth = max(0, depth - 1)
            case "\n":
                lines += 1
                if lines > MAXIMUM_LINES:
                    raise _too_large(f"more than {MAXIMUM_LINES} lines", text, token.start())
        dots = 0


def _too_large(what: str, text: str, position: int) -> SubmissionError:
    line = text.count("\n", 0, position) + 1
    return SubmissionError(
        f"submission.toml: not TOML of a manifest (line {line}: {what}); `alma-leaderboard init` writes an example"
    )
