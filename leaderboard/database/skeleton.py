"""The skeleton of a name, a column of the accounts: names with equal skeletons look alike."""

from __future__ import annotations

import unicodedata

# ASCII characters that look alike after lower case, as in the confusable characters of Unicode (UTS 39), and digits
# that stand for letters.
_LETTERS = str.maketrans("01i582", "ollsbz")
_PAIRS = (("rn", "m"), ("vv", "w"))
_LONGEST = 80  # characters, of the column


def skeleton(name: str) -> str:
    """Return a text that is equal for names that look alike; empty for a name without letters and digits.

    >>> skeleton("Bob-1") == skeleton("b0b_l"), skeleton("Modern") == skeleton("rnodem")
    (True, True)
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    letters = "".join(filter(str.isalnum, plain)).translate(_LETTERS)
    for pair, single in _PAIRS:
        letters = letters.replace(pair, single)
    return letters[:_LONGEST]
