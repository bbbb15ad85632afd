"""The characters that a text of a submission can have, and how messages quote a value.

Pages and terminals show texts of different authors next to each other. An invisible character, or one that changes the
direction of writing, can make one text look like another, so these characters are refused. Markup is allowed, because
every page escapes it.
"""

from __future__ import annotations

import re
import unicodedata

JOINERS = "\u200c\u200d"  # zero-width, but part of Persian and Indic words and of emoji
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
_ALIKE = ("CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "GEORGIAN")
_LATIN_LIKE_GREEK = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρικυ"
_REFUSED = {
    "Cc": "a control character",
    "Cf": "an invisible or direction-changing character",
    "Cs": "half of a surrogate pair",
    "Co": "a private-use character",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}


def refused_character(text: str, allowed: str = "") -> str | None:
    """Return a description such as ``U+202E, …`` of the first refused character of a text, or None.

    Args:
        text: the text.
        allowed: characters that are not refused here, such as line ends in a description.
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


def disguise(text: str) -> str | None:
    """Return a description of the first character of a name that looks like another one, or None.

    Refused are spaces other than the plain one, letters that show nothing, variants of Latin letters, and letters of
    other alphabets in a word of Latin letters. Words of one alphabet are allowed, and Greek letters that look like no
    Latin letter.

    >>> disguise("Growing β-mixture, Борис Ивáнов"), disguise("b\u043eb")
    (None, 'U+043E, a letter of another alphabet in a word of Latin letters')
    """
    for character in text:
        number = ord(character)
        if unicodedata.category(character) == "Zs" and character != " ":
            return f"U+{number:04X}, a space that looks like another one"
        if character in _BLANK:
            return f"U+{number:04X}, a character that shows nothing"
        plain = unicodedata.normalize("NFKC", character)
        if plain != character and plain.isascii() and plain.isalpha():
            return f"U+{number:04X}, a variant of {plain}"
    for word in re.findall(r"[^\W\d_]+", text):
        if re.search("[A-Za-z]", word):
            for letter in word:
                if _alphabet(letter) in _ALIKE or letter in _LATIN_LIKE_GREEK:
                    return f"U+{ord(letter):04X}, a letter of another alphabet in a word of Latin letters"
    return None


def _alphabet(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]


def shown(value: object, limit: int = 60) -> str:
    """Return a value as messages quote it: escaped, on one line, at most ``limit`` characters.

    >>> shown("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'"
    """
    if isinstance(value, str) and len(value) > limit:
        return repr(value[: limit - 3] + "…")
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deeply nested tables
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def storable(text: str, limit: int) -> str:
    """Return a text that both databases accept: without NUL and lone surrogates, at most ``limit`` characters.

    >>> storable("a\\0b\\ud800", 80)
    'a\ufffdb?'
    """
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    r"""Return a text that a terminal can print: characters that control the terminal become escapes.

    >>> printable("red: \x1b[31m, line\nline")
    'red: \\x1b[31m, line\nline'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
