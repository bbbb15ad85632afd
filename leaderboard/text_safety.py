"""Which characters a text of a submission may have, and how a value is quoted in a message.

Texts are shown beside those of others, on pages and in terminals. What is invisible or turns the direction of writing
can make one text look like another, so it is refused; what is markup is harmless, for whoever shows it escapes it.
"""

from __future__ import annotations

import unicodedata

JOINERS = "\u200c\u200d"  # zero-width, but part of Persian and Indic words and of emoji
_REFUSED = {
    "Cc": "a control character",
    "Cf": "an invisible or direction-changing character",
    "Cs": "half of a surrogate pair",
    "Co": "a private-use character",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}


def refused_character(text: str, allowed: str = "") -> str | None:
    """The first character that a text may not have, as words such as ``U+202E, …``; None if all are fine.

    Args:
        text: what was written.
        allowed: characters that are fine here, such as line ends in a description.
    """
    for character in text:
        if character in allowed or character in JOINERS:
            continue
        number = ord(character)
        what = _REFUSED.get(unicodedata.category(character))
        if number & 0xFFFE == 0xFFFE or 0xFDD0 <= number <= 0xFDEF:
            what = "not a character"
        if what is not None:
            return f"U+{number:04X}, {what}"
    return None


def shown(value: object, limit: int = 60) -> str:
    """A value as it stands in a message: escaped, on one line, and short.

    >>> shown("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'"
    """
    if isinstance(value, str) and len(value) > limit:
        return repr(value[: limit - 3] + "…")
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or tables in tables
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def storable(text: str, limit: int) -> str:
    """A text of unknown origin as both databases take it: no NUL, no half characters, not longer than ``limit``.

    >>> storable("a\\0b\\ud800", 80)
    'a\ufffdb?'
    """
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    r"""A text of unknown origin as a terminal may get it: what would steer the terminal is written as an escape.

    >>> printable("red: \x1b[31m, line\nline")
    'red: \\x1b[31m, line\nline'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
