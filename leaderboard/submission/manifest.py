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
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leaderboard import manifest_rules
from leaderboard.errors import SubmissionError
from leaderboard.manifest_rules import Plain
from leaderboard.text_rules import shown

MAXIMUM_BYTES = 64 * 1024  # of the file


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
        contact: how maintainers reach the authors; nobody else is shown it.
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


_FIELDS: dict[str, Callable[[str, object], Any]] = {
    "name": manifest_rules.text(80),
    "authors": manifest_rules.authors,
    "env": manifest_rules.env,
    "seeds": manifest_rules.seeds,
    "method": manifest_rules.method,
    "description": manifest_rules.text(4_000, allowed="\n\t", what="text"),
    "hyperparameters": manifest_rules.hyperparameters,
    "links": manifest_rules.links,
    "contact": manifest_rules.text(200),
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
