"""The characters that a text of a submission can have, and how messages quote a value.

Pages and terminals show texts of different authors next to each other. An invisible character, or one that changes the
direction of writing, can make one text look like another, so these characters are refused. Markup is allowed, because
every page escapes it.
"""

from __future__ import annotations

import re
import unicodedata

_NO_JOIN, _JOIN = JOINERS = "\u200c\u200d"  # zero-width, but part of Persian and Indic words and of emoji
# Unicode's other characters that show nothing (Default_Ignorable_Code_Point), outside of the category Cf.
_IGNORABLE = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)
_HIDDEN = re.compile(f"[{JOINERS}{_IGNORABLE}]")
_EMOJI_STYLE = "\ufe0f"  # shows the symbol before it as an emoji
_MORE_EMOJI = "\u203c\u2049\u2139\u2194\u25fd\u25fe\u2934\u2935\u3030"  # emoji outside of the category So
_KEYS, _KEYCAP = "0123456789#*", "\u20e3"  # an emoji of a key is the key, the style, the keycap
_NOT_JOINED = "\u0622\u0623\u0624\u0625\u0627\u0629\u062f\u0630\u0631\u0632\u0648\u0698"  # to the next Arabic letter
_VIRAMA = 9  # combining class of the signs that join Indic consonants, such as U+094D
_MOST_MARKS = 3  # on a letter; Vietnamese has 2, Hebrew 3
_BLANK = "\u2800"
_ALIKE = ("CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "GEORGIAN")
# Alphabets of phonetics, whose letters look like Latin ones.
_PHONETIC = re.compile("[\u0250-\u02af\u1d00-\u1dbf\ua730-\ua7ff]")
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


def hidden_character(text: str, *, emoji: bool = True) -> str | None:
    """Return a description of the first character of a text that shows nothing, or None.

    Joiners are allowed where they change what a reader sees: next to a virama, between two Arabic letters, and in
    emoji. Only new submissions are checked: `refused_character`, with which stored texts are read, allows more.

    Args:
        text: the text.
        emoji: whether joiners and selectors of emoji are allowed.

    >>> hidden_character("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"), hidden_character("bo\u200cb")
    (None, 'U+200C, an invisible character')
    """
    for found in _HIDDEN.finditer(text):
        character, place = found[0], found.start()
        before, after = text[place - 1 : place], text[place + 1 : place + 2]
        if character in JOINERS and _joins_letters(before, character, after):
            continue
        if emoji and _shapes_emoji(before, character, after):
            continue
        return f"U+{ord(character):04X}, an invisible character"
    return None


def _joins_letters(before: str, joiner: str, after: str) -> bool:
    if any(unicodedata.combining(neighbour or " ") == _VIRAMA for neighbour in (before, after)):
        return True
    arabic = all(_alphabet(neighbour) == "ARABIC" for neighbour in (before, after))
    return joiner == _NO_JOIN and arabic and before not in _NOT_JOINED


def _shapes_emoji(before: str, character: str, after: str) -> bool:
    if character == _EMOJI_STYLE:
        return _is_emoji(before) or (before != "" and before in _KEYS and after == _KEYCAP)
    styled = before == _EMOJI_STYLE or unicodedata.category(before or " ") == "Sk"  # Sk: the colours of skin
    return character == _JOIN and (styled or _is_emoji(before)) and _is_emoji(after)


def _is_emoji(character: str) -> bool:
    return character != "" and (unicodedata.category(character) == "So" or character in _MORE_EMOJI)


def disguise(text: str) -> str | None:
    """Return a description of the first character of a name that looks like another one, or None.

    Refused are characters that show nothing, also in emoji, spaces other than the plain one, many marks on one letter,
    variants of Latin letters, and letters of other alphabets in a word of Latin letters. Words of one alphabet are
    allowed, and Greek letters that look like no Latin letter.

    >>> disguise("Growing β-mixture, Борис Ивáнов"), disguise("b\u043eb")
    (None, 'U+043E, a letter of another alphabet in a word of Latin letters')
    """
    hidden = hidden_character(text, emoji=False)
    if hidden is not None:
        return hidden
    marks = 0
    for character in text:
        number = ord(character)
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks > _MOST_MARKS:
            return f"U+{number:04X}, the mark number {marks} on one letter: at most {_MOST_MARKS} are allowed"
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
                if _PHONETIC.match(letter):
                    return f"U+{ord(letter):04X}, a letter of a phonetic alphabet in a word of Latin letters"
                if _alphabet(letter) in _ALIKE or letter in _LATIN_LIKE_GREEK:
                    return f"U+{ord(letter):04X}, a letter of another alphabet in a word of Latin letters"
    return None


def _alphabet(letter: str) -> str:
    return unicodedata.name(letter or " ", "").partition(" ")[0]


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
