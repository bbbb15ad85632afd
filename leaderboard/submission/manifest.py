"""``submission.toml``: the description that the authors give of their submission.

    name = "Single model that waits"
    authors = ["Ada Learner"]
    env = "Digits-ALMA-v0"
    seeds = [0, 1, 2]
    method = "sm"
    description = "One network, trained on five mega-batches at a time."
    contact = "ada@example.org"           # optional

    [hyperparameters]                     # optional: names with a number, a text, true or false
    wait = 5

    [links]                               # optional: http or https
    code = "https://example.org/code"

Strangers write manifests, and everyone can read them. The types of the fields are their rules. An error lists all rules
that a manifest breaks.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, StringConstraints, TypeAdapter, ValidationError

from leaderboard.errors import SubmissionError
from leaderboard.rules import MAXIMUM_SEEDS, MINIMUM_SEEDS, TICKS
from leaderboard.submission import toml_limits
from leaderboard.text_safety import refused_character, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAXIMUM_BYTES = 64 * 1024  # of the file
MOST_PROBLEMS = 50  # that an error lists
LARGEST_INTEGER = 2**63 - 1  # for JSON readers, Parquet and databases
LARGEST_SEED = 2**32 - 1


# Each function checks one value and raises ValueError with the rule and the remedy.


def _visible(text: str, allowed: str = "") -> str:
    refused = refused_character(text, allowed)
    if refused is not None:
        raise ValueError(f"contains {refused}; remove it")
    return text


def _known_env(env: object) -> str:
    if not isinstance(env, str) or env not in TICKS:
        near = difflib.get_close_matches(env, TICKS, n=1) if isinstance(env, str) and len(env) < 100 else []
        remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(TICKS)}"
        raise ValueError(f"no environment of the board; {remedy}")
    return env


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("the seeds must differ; write each seed once")
    return seeds


def _number_or_text(value: object) -> bool | int | float | str:
    if not isinstance(value, int | float | str):
        raise ValueError("must be a number, a text, true or false; write a list or a table as text")
    if isinstance(value, str):
        if len(value) > 200:
            raise ValueError(f"has {len(value)} characters; write at most 200")
        return _visible(value)
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError("larger than 64 bits; write it as text, or as 1e20")
    if not math.isfinite(value):
        raise ValueError("not a finite number; write it as text, or remove it")
    return value


def _web_address(text: str) -> str:
    remedy = "write it like https://example.org/code"
    if not re.fullmatch("[!-~]{1,500}", text):
        raise ValueError(f"an address has up to 500 ASCII characters and no spaces; {remedy}")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port  # both can raise
    except ValueError as error:
        raise ValueError(f"not an address ({error}); {remedy}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"only http and https addresses are allowed; {remedy}")
    if "@" in parts.netloc or any(character in text for character in '\\"<>'):
        raise ValueError(f"a user name, backslash, quote or bracket can disguise the target; {remedy}")
    return text


Text = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
Line = Annotated[Text, StringConstraints(max_length=80), AfterValidator(_visible)]
Paragraphs = Annotated[Text, StringConstraints(max_length=4_000), AfterValidator(partial(_visible, allowed="\n\t"))]
Contact = Annotated[Text, StringConstraints(max_length=200), AfterValidator(_visible)]
Seed = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SEED)]
MethodId = Annotated[str, StringConstraints(strict=True, pattern="^[a-z0-9][a-z0-9+_.-]{0,39}$")]
Key = Annotated[str, StringConstraints(strict=True, pattern="^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
Scalar = Annotated[bool | int | float | str, PlainValidator(_number_or_text)]
Address = Annotated[str, Field(strict=True), AfterValidator(_web_address)]


@dataclass(frozen=True)
class Manifest:
    """The contents of a ``submission.toml``. Only `parse` and `from_dict` check them.

    Attributes:
        name: the title on the board, 1 to 80 characters.
        authors: 1 to 20 names.
        env: id of the environment.
        seeds: of the runs, 3 to 20 different ones; each seeds the stream and the agent.
        method: id of the method, such as ``sm``: the board filters by it.
        description: of the method, up to 4,000 characters, may have several lines.
        hyperparameters: up to 64 names with a number, a text, true or false. The board filters by ``wait``, the waiting
            time, if it is a whole number.
        links: up to 10 labels, each with an http or https address.
        contact: how maintainers reach the authors; only the sender and maintainers see it.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: Line
    authors: Annotated[tuple[Line, ...], Field(min_length=1, max_length=20)]
    env: Annotated[str, PlainValidator(_known_env)]
    seeds: Annotated[
        tuple[Seed, ...], Field(min_length=MINIMUM_SEEDS, max_length=MAXIMUM_SEEDS), AfterValidator(_distinct)
    ]
    method: MethodId
    description: Paragraphs
    hyperparameters: Annotated[dict[Key, Scalar], Field(max_length=64)] = field(default_factory=dict)
    links: Annotated[dict[Key, Address], Field(max_length=10)] = field(default_factory=dict)
    contact: Contact | None = None

    @property
    def waiting_time(self) -> int | None:
        """The hyperparameter ``wait`` if it is a whole number from 1 on, else None."""
        wait = self.hyperparameters.get("wait")
        return wait if isinstance(wait, int) and not isinstance(wait, bool) and 1 <= wait < 2**31 else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; `from_dict` is the inverse."""
        copies = {"authors": list, "seeds": list, "hyperparameters": dict, "links": dict}
        values = vars(self) | {name: copy(getattr(self, name)) for name, copy in copies.items()}
        if self.contact is None:
            del values["contact"]
        return values

    def to_toml(self) -> str:
        """Return the text of a ``submission.toml``; `parse` is the inverse."""
        values = self.to_dict()
        tables = {name: values.pop(name) for name in ("hyperparameters", "links")}
        lines = [_toml_line(*item) for item in values.items()]
        for name, table in tables.items():
            if table:
                lines += ["", f"[{name}]", *(_toml_line(*item) for item in table.items())]
        return "\n".join(lines) + "\n"


def parse(content: bytes) -> Manifest:
    """Read ``submission.toml``, or raise a SubmissionError that lists all the rules that it breaks."""
    if len(content) > MAXIMUM_BYTES:
        remedy = "move long texts to another file and link to it"
        raise SubmissionError(f"submission.toml: {len(content)} bytes; at most {MAXIMUM_BYTES} are read; {remedy}")
    try:
        text = content.decode("utf-8")
        toml_limits.require_small(text)
        values = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise SubmissionError(f"submission.toml: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except SubmissionError:
        raise
    except (ValueError, RecursionError, OverflowError) as error:  # integers of thousands of digits, nested tables
        raise SubmissionError(
            f"submission.toml: not TOML ({shown(str(error), 200)}); `alma-leaderboard init` writes an example"
        ) from error
    return from_dict(values)


def from_dict(values: Mapping[str, object]) -> Manifest:
    """Make a manifest from plain values of TOML or JSON, or raise a SubmissionError that lists all broken rules."""
    try:
        return _MANIFEST.validate_python(dict(values))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    # pydantic counts only the valid entries of a list: with a wrong entry it also reports that entries are missing.
    wrong_inside = {details["loc"][0] for details in errors if len(details["loc"]) > 1}
    errors = [each for each in errors if each["type"] != "too_short" or each["loc"][0] not in wrong_inside]
    problems = [_problem(details) for details in errors[:MOST_PROBLEMS]]
    if len(errors) > MOST_PROBLEMS:
        problems.append(f"submission.toml: {len(errors) - MOST_PROBLEMS} more problems; correct these first")
    raise SubmissionError(problems)


_MANIFEST = TypeAdapter(Manifest)
_KEYS = tuple(Manifest.__dataclass_fields__)
_RULES = {  # by pydantic's type of error
    "string_type": "must be text",
    "string_too_short": "must have at least {min_length} character",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}
_REMEDIES = {
    "name": "write 1 to 80 characters on one line, in quotes",
    "authors": 'write 1 to 20 names in square brackets, as in ["Ada Learner"]',
    "seeds": f"write {MINIMUM_SEEDS} to {MAXIMUM_SEEDS} different seeds from 0 to {LARGEST_SEED}, as in [0, 1, 2]",
    "method": "write a short id like sm or growing-ensemble; the board filters by it",
    "description": "write 1 to 4000 characters, in quotes",
    "hyperparameters": "write up to 64 lines like `wait = 5` below a line [hyperparameters]",
    "links": 'write up to 10 lines like `code = "https://example.org/code"` below a line [links]',
    "contact": "write 1 to 200 characters, in quotes",
}


def _problem(error: ErrorDetails) -> str:
    """Return the message of one broken rule."""
    key, *inner = error["loc"]
    if error["type"] == "unexpected_keyword_argument":
        near = difflib.get_close_matches(str(key), _KEYS, n=1)
        what = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(_KEYS)}."
        return f"{shown(key)}: unknown key; {what} A setting of the agent belongs in [hyperparameters]"
    if error["type"] == "missing":
        return f"{key}: missing; add it, as `alma-leaderboard init` does"
    place = str(key) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in inner)
    if inner and inner[-1] == "[key]":
        place = f"a name in {key}"
    context = error.get("ctx", {})
    if error["type"] == "value_error":
        rule = str(context["error"])
    else:
        rule = _RULES.get(error["type"], error["msg"]).format(**context) + "; " + _REMEDIES[str(key)]
    return f"{place} = {shown(error['input'])}: {rule}"


def _toml_line(key: str, value: object) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"  # a value without tables is equal in JSON and TOML
