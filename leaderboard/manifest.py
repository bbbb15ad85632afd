"""``submission.toml``: what a submission says of itself.

    name = "Single model that waits"
    authors = ["Ada Learner"]
    env = "Digits-ALMA-v0"
    seeds = [0, 1, 2]
    method = "sm"
    description = "One network, trained on five mega-batches at a time."
    contact = "ada@example.org"           # optional

    [hyperparameters]                     # optional: names and plain values
    wait = 5

    [links]                               # optional: http or https
    code = "https://example.org/code"

A manifest is written by strangers and shown to everyone, so each value has a rule, and everything that breaks one is
told at once.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from leaderboard.errors import SubmissionError
from leaderboard.rules import MAXIMUM_SEEDS, MINIMUM_SEEDS, TICKS
from leaderboard.text_rules import refused_character, shown

Plain = bool | int | float | str

MAXIMUM_BYTES = 64 * 1024  # of the file
LARGEST_SEED = 2**32 - 1
LARGEST_INTEGER = 2**63 - 1  # what JSON readers, Parquet and databases have in common
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_METHOD = re.compile(r"[a-z0-9][a-z0-9+_.-]{0,39}", re.ASCII)
_URL = re.compile(r"[!-~]+", re.ASCII)


@dataclass(frozen=True)
class Manifest:
    """A submission's own words and numbers; made by `parse` or `from_dict`, which hold them to the rules.

    Attributes:
        name: what the board shows, 1 to 80 characters.
        authors: 1 to 20 names.
        env: id of the environment.
        seeds: of the runs, at least 3 and no two alike; each seeds the stream and the agent.
        method: id of the method, such as ``sm``: the board filters by it.
        description: what it does, up to 4,000 characters, in lines.
        hyperparameters: up to 64 names with a number, a text, true or false; ``wait``, where it is a whole number, is
            the waiting time that the board filters by.
        links: up to 10 labels, each with an http or https address.
        contact: how to reach the authors; it is shown.
    """

    name: str
    authors: tuple[str, ...]
    env: str
    seeds: tuple[int, ...]
    method: str
    description: str
    hyperparameters: dict[str, Plain] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    contact: str | None = None

    @property
    def waiting_time(self) -> int | None:
        """The hyper-parameter ``wait``, where it is a whole number from 1 on."""
        wait = self.hyperparameters.get("wait")
        return wait if isinstance(wait, int) and not isinstance(wait, bool) and 1 <= wait < 2**31 else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; `from_dict` gives the manifest back."""
        values: dict[str, Any] = {
            "name": self.name,
            "authors": list(self.authors),
            "env": self.env,
            "seeds": list(self.seeds),
            "method": self.method,
            "description": self.description,
            "hyperparameters": dict(self.hyperparameters),
            "links": dict(self.links),
        }
        return values if self.contact is None else values | {"contact": self.contact}

    def to_toml(self) -> str:
        """As ``submission.toml`` has it; `parse` gives the manifest back."""
        values = self.to_dict()
        tables = {name: values.pop(name) for name in ("hyperparameters", "links")}
        lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
        for name, table in tables.items():
            if table:
                lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        return "\n".join(lines) + "\n"


def parse(content: bytes) -> Manifest:
    """Read ``submission.toml``.

    Raises:
        SubmissionError: it is not TOML, or breaks rules; all that were found are told.
    """
    if len(content) > MAXIMUM_BYTES:
        raise SubmissionError(
            f"submission.toml: {len(content)} bytes, and at most {MAXIMUM_BYTES} are read; "
            "put what is long into a file of its own and link to it"
        )
    try:
        values = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SubmissionError(
            f"submission.toml: byte {error.start} is not UTF-8, and TOML is; save the file as UTF-8"
        ) from error
    except (ValueError, RecursionError, OverflowError) as error:  # of integers of thousands of digits, nested tables
        raise SubmissionError(
            f"submission.toml: not TOML ({shown(str(error), 200)}); `alma-leaderboard init` writes an example"
        ) from error
    return from_dict(values)


def from_dict(values: Mapping[str, object]) -> Manifest:
    """A manifest from plain values, as TOML or JSON give them.

    Raises:
        SubmissionError: values break rules; all that were found are told.
    """
    problems: list[str] = []
    for key in values:
        if key not in _FIELDS:
            near = difflib.get_close_matches(str(key), _FIELDS, n=1)
            what = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(_FIELDS)}"
            problems.append(f"{shown(key)}: unknown key; {what} A number of the agent goes into [hyperparameters]")
    checked: dict[str, Any] = {}
    for name, check in _FIELDS.items():
        if name in values:
            try:
                checked[name] = check(name, values[name])
            except SubmissionError as error:
                problems += error.problems
        elif name not in _OPTIONAL:
            problems.append(f"{name}: missing, and the board needs it; add it as `alma-leaderboard init` writes it")
    if problems:
        raise SubmissionError(problems)
    return Manifest(**checked)


def _text(most: int, allowed: str = "", what: str = "text on one line") -> Callable[[str, object], str]:
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


def _authors(name: str, value: object) -> tuple[str, ...]:
    given = _list(name, value, 1, 20, "names")
    return tuple(_each([(f"{name}[{index}]", author) for index, author in enumerate(given)], _text(80)))


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


def _env(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in TICKS:
        near = difflib.get_close_matches(value, TICKS, n=1) if isinstance(value, str) and len(value) < 100 else []
        remedy = f"did you mean {near[0]}?" if near else f"take one of {', '.join(TICKS)}"
        raise SubmissionError(f"{name} = {shown(value)}: no environment of the board; {remedy}")
    return value


def _seeds(name: str, value: object) -> tuple[int, ...]:
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


def _method(name: str, value: object) -> str:
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


def _hyperparameters(name: str, value: object) -> dict[str, Plain]:
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


def _links(name: str, value: object) -> dict[str, str]:
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


_FIELDS: dict[str, Callable[[str, object], Any]] = {
    "name": _text(80),
    "authors": _authors,
    "env": _env,
    "seeds": _seeds,
    "method": _method,
    "description": _text(4_000, allowed="\n\t", what="text"),
    "hyperparameters": _hyperparameters,
    "links": _links,
    "contact": _text(200),
}
_OPTIONAL = ("hyperparameters", "links", "contact")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        quoted = "".join(_ESCAPES.get(character, character) for character in value)
        return f'"{quoted}"'
    return repr(value)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
