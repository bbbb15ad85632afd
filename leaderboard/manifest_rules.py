"""The rule of each value of a manifest: a function from its name and value to the value, checked and made plain."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from leaderboard.errors import SubmissionError
from leaderboard.rules import MAXIMUM_SEEDS, MINIMUM_SEEDS, TICKS
from leaderboard.text_rules import refused_character, shown

Plain = bool | int | float | str

LARGEST_SEED = 2**32 - 1
LARGEST_INTEGER = 2**63 - 1  # what JSON readers, Parquet and databases have in common
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_METHOD = re.compile(r"[a-z0-9][a-z0-9+_.-]{0,39}", re.ASCII)
_URL = re.compile(r"[!-~]+", re.ASCII)


def text(most: int, allowed: str = "", what: str = "text on one line") -> Callable[[str, object], str]:
    """A text of 1 to ``most`` characters, white space around it aside; line ends only where ``allowed``."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str):
            raise SubmissionError(f"{name} = {shown(value)}: must be {what}; write it in quotes")
        text = value.strip()
        if not 1 <= len(text) <= most:
            raise SubmissionError(f"{name} = {shown(text)}: has {len(text)} characters; write 1 to {most}")
        refused = refused_character(text, allowed)
        if refused is not None:
            raise SubmissionError(f"{name} = {shown(text)}: {refused}, and a text has none; take it out")
        return text

    return check


def _list(name: str, value: object, least: int, most: int, of: str) -> list[object]:
    if not isinstance(value, list):
        raise SubmissionError(f"{name} = {shown(value)}: must be a list of {of}; write it in square brackets")
    if not least <= len(value) <= most:
        raise SubmissionError(f"{name} = {shown(value)}: has {len(value)} {of}; give {least} to {most}")
    return value


def authors(name: str, value: object) -> tuple[str, ...]:
    """Up to 20 names.

    Raises:
        SubmissionError: the value breaks its rule; where it has parts, all that do are told.
    """
    given = _list(name, value, 1, 20, "names")
    return tuple(_each([(f"{name}[{index}]", author) for index, author in enumerate(given)], text(80)))


def _each(pairs: list[tuple[str, object]], check: Callable[[str, object], Any]) -> list[Any]:
    """Check every pair of a name and a value, and tell all that is wrong."""
    checked: list[Any] = []
    problems: list[str] = []
    for name, value in pairs:
        try:
            checked.append(check(name, value))
        except SubmissionError as error:
            problems += error.problems
    if problems:
        raise SubmissionError(problems)
    return checked


def env(name: str, value: object) -> str:
    """An environment of the board.

    Raises:
        SubmissionError: the value breaks its rule; where it has parts, all that do are told.
    """
    if not isinstance(value, str) or value not in TICKS:
        near = difflib.get_close_matches(value, TICKS, n=1) if isinstance(value, str) and len(value) < 100 else []
        remedy = f"did you mean {near[0]}?" if near else f"take one of {', '.join(TICKS)}"
        raise SubmissionError(f"{name} = {shown(value)}: no environment of the board; {remedy}")
    return value


def seeds(name: str, value: object) -> tuple[int, ...]:
    """At least three different seeds.

    Raises:
        SubmissionError: the value breaks its rule; where it has parts, all that do are told.
    """
    if isinstance(value, list) and len(value) < MINIMUM_SEEDS:
        raise SubmissionError(
            f"{name} = {shown(value)}: a score needs at least {MINIMUM_SEEDS} seeds; write for example [0, 1, 2]"
        )
    given = _list(name, value, MINIMUM_SEEDS, MAXIMUM_SEEDS, "seeds")
    seeds: list[int] = []
    for seed in given:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LARGEST_SEED:
            raise SubmissionError(
                f"{name}: {shown(seed)} is no seed; a seed is a whole number from 0 to {LARGEST_SEED}"
            )
        if seed in seeds:
            raise SubmissionError(f"{name}: {seed} stands there twice, but a run counts once; give each seed once")
        seeds.append(seed)
    return tuple(seeds)


def method(name: str, value: object) -> str:
    """An id.

    Raises:
        SubmissionError: the value breaks its rule; where it has parts, all that do are told.
    """
    if not isinstance(value, str) or not _METHOD.fullmatch(value):
        raise SubmissionError(
            f"{name} = {shown(value)}: the board filters by it, so it is an id of up to 40 of a-z, 0-9, + _ . -, "
            "beginning with a letter or digit; write it like sm or growing-ensemble, and put the rest in description"
        )
    return value


def _table(name: str, value: object, most: int) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SubmissionError(f"{name} = {shown(value)}: must be a table; write it below a line [{name}]")
    if len(value) > most:
        raise SubmissionError(f"{name}: has {len(value)} entries; give at most {most}")
    for key in value:
        if not isinstance(key, str) or not _NAME.fullmatch(key):
            raise SubmissionError(
                f"{name}: {shown(key)} is no name; write up to 64 of A-Z, a-z, 0-9, _ and -, a letter first"
            )
    return value


def hyperparameters(name: str, value: object) -> dict[str, Plain]:
    """Names with plain values.

    Raises:
        SubmissionError: the value breaks its rule; where it has parts, all that do are told.
    """
    table = _table(name, value, 64)
    plain = _each([(f"{name}.{key}", entry) for key, entry in table.items()], _plain)
    return dict(zip(table, plain, strict=True))


def _plain(name: str, value: object) -> Plain:
    if isinstance(value, str):
        if len(value) > 200:
            raise SubmissionError(f"{name} = {shown(value)}: has {len(value)} characters; write at most 200")
        refused = refused_character(value)
        if refused is not None:
            raise SubmissionError(f"{name} = {shown(value)}: {refused}, and a text has none; take it out")
        return value
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > LARGEST_INTEGER:
            raise SubmissionError(f"{name} = {shown(value)}: larger than 64 bits; write it as text, or as 1e20")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SubmissionError(f"{name} = {value}: not a finite number; write it as text, or leave it out")
        return value
    raise SubmissionError(
        f"{name} = {shown(value)}: must be a number, a text, true or false; write what has parts as text"
    )


def links(name: str, value: object) -> dict[str, str]:
    """Labels with http or https addresses.

    Raises:
        SubmissionError: the value breaks its rule; where it has parts, all that do are told.
    """
    table = _table(name, value, 10)
    links = _each([(f"{name}.{key}", entry) for key, entry in table.items()], _link)
    return dict(zip(table, links, strict=True))


def _link(name: str, value: object) -> str:
    remedy = "write it like https://example.org/code, with %-escapes for anything but plain ASCII"
    if not isinstance(value, str) or not _URL.fullmatch(value) or len(value) > 500:
        raise SubmissionError(f"{name} = {shown(value)}: must be an address of up to 500 plain characters; {remedy}")
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port  # each of them may refuse
    except ValueError as error:
        raise SubmissionError(f"{name} = {shown(value)}: not an address ({error}); {remedy}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise SubmissionError(f"{name} = {shown(value)}: only http and https addresses are shown; {remedy}")
    if "@" in parts.netloc or "\\" in value or '"' in value or "<" in value or ">" in value:
        raise SubmissionError(
            f"{name} = {shown(value)}: a user name, backslash or bracket can disguise where it leads; {remedy}"
        )
    return value
