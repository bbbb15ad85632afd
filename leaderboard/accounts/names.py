"""The names of new accounts and of tokens. Everyone sees the name of an account next to its submissions.

A new name has only ASCII letters, digits and three separators. Then no table of the thousands of Unicode characters
that look like them is needed, and every page, terminal and URL shows the name alike. Among these names,
`leaderboard.database.skeleton` finds the ones that look alike. An account with another name was made before this rule
and keeps its name.
"""

from __future__ import annotations

import re

from leaderboard.database.skeleton import skeleton
from leaderboard.errors import AccountError, ConflictError
from leaderboard.text_safety import refused_character, shown

LONGEST = 40  # characters
BASELINES_ACCOUNT = "alma-env"
LOCAL_ACCOUNT = "local"  # of submissions that are given to a database without a name
PATTERN = rf"^[A-Za-z0-9]([A-Za-z0-9._-]{{0,{LONGEST - 2}}}[A-Za-z0-9])?$"
RULE = f"1 to {LONGEST} ASCII letters, digits, dots, hyphens and underscores, with a letter or digit at both ends"
_NAME = re.compile(PATTERN, re.ASCII)


def account_name(text: str) -> str:
    """Return the name of a new account without the space around it.

    Raises:
        AccountError: the name breaks its rule.
    """
    text = text.strip()
    if not _NAME.fullmatch(text):
        raise AccountError(f"account {shown(text)}: must have {RULE}; choose another name")
    return text


def require_unreserved(name: str) -> None:
    """Require that a person registers no name that looks like a reserved account.

    Otherwise the person would own the baselines or the submissions of the machine, or a board could not add them.

    Raises:
        ConflictError: the name looks like one of them.
    """
    for reserved in (BASELINES_ACCOUNT, LOCAL_ACCOUNT):
        if skeleton(name) == skeleton(reserved):
            raise ConflictError(
                f"account {shown(name)}: the name looks like one that is reserved, {reserved}; choose another one"
            )


def plain_name(what: str, text: str) -> str:
    """Return a name without the space around it.

    Raises:
        AccountError: the name has a refused character, or not 1 to 80 characters.
    """
    text = text.strip()
    refused = refused_character(text)
    if refused is not None or not 1 <= len(text) <= 80:
        rule = f"contains {refused}" if refused else "must have 1 to 80 characters"
        raise AccountError(f"{what} {shown(text)}: {rule}; choose another name")
    return text
