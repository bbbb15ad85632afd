"""Claimed ledgers: the ledgers of the authors' own runs, ``ledgers/seed-<n>.jsonl``, one file per seed.

A verification compares claims with the verified runs; the board never shows them. A claim comes from a stranger, so
this module checks every value. `alma_env.Ledger` reads the files of runs and does not check types.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from alma_env import Ledger, Row
from leaderboard.errors import SubmissionError
from leaderboard.rules import PHASES, TICKS, error_limit
from leaderboard.submission.manifest import LARGEST_INTEGER, Manifest
from leaderboard.text_safety import refused_character, shown

FOLDER = "ledgers"
_DIGEST = re.compile(r"[0-9a-zA-Z:_.+=/-]{0,200}", re.ASCII)
_MOST_SECONDS = 1e9  # of a tick, 30 years: the sum over the ticks must be finite
LARGEST_LEDGER = 2 * 2**20  # bytes; a row of a run has about 500
MOST_TEXTS = 100  # of a row
_REMEDY = "copy ledger.jsonl from the run's folder without changes"


def claimed_ledgers(files: Mapping[str, bytes], manifest: Manifest) -> tuple[dict[int, Ledger], list[str]]:
    """Return the claimed ledgers of a package by seed, and the problems. A package without ledgers has no problem."""
    present = [path for path in files if path.split("/")[0] == FOLDER]
    if not present:
        return {}, []
    problems = []
    ledgers: dict[int, Ledger] = {}
    seeds = {f"{FOLDER}/seed-{seed}.jsonl": seed for seed in manifest.seeds}
    for path in present:
        if path not in seeds:
            names = ", ".join(seeds)
            problems.append(f"{shown(path)}: not a ledger of the manifest's seeds; rename it to {names}, or remove it")
            continue
        try:
            ledgers[seeds[path]] = read_claim(files[path], manifest.env)
        except SubmissionError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
    missing = ", ".join(str(seed) for path, seed in seeds.items() if path not in files)
    if missing:
        problems.append(f"{FOLDER}: no ledger of seed {missing}; add the ledgers of all seeds, or none")
    return ledgers, problems


def read_claim(content: bytes, env_id: str) -> Ledger:
    """Read one claimed ledger, or raise SubmissionError if it cannot be the ledger of a run on this environment."""
    if len(content) > LARGEST_LEDGER:
        raise SubmissionError(f"{len(content):,} bytes: must have at most {LARGEST_LEDGER:,}; {_REMEDY}")
    ledger = Ledger()
    ticks = TICKS[env_id]
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SubmissionError(f"byte {error.start} is not UTF-8; {_REMEDY}") from error
    if len(lines) != ticks + 1:
        raise SubmissionError(f"{len(lines)} rows: must be {ticks + 1}, for ticks 0 to {ticks} of {env_id}; {_REMEDY}")
    for number, line in enumerate(lines, start=1):
        try:
            ledger.append(_row(line, error_limit(env_id)))
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise SubmissionError(f"line {number}: {shown(str(error), 200)}; {_REMEDY}") from error
    return ledger


def _row(line: str, error_limit: float) -> Row:
    values = json.loads(line, parse_constant=_refuse_constant)
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    _require("flops", values, isinstance(values.get("flops"), dict), "a table of phases")
    _require("declared", values, isinstance(values.get("declared"), list), "a list of reasons")
    _require("registered", values, isinstance(values.get("registered", []), list), "a list of operations")
    row = Row.from_dict(values)
    for name in ("tick", "parameters", "buffers", "paper_flops"):
        _require(name, values, _whole(values[name]), "a whole number of at least 0")
    for name, most in (("error", error_limit), ("inference_flops", math.inf), ("seconds", _MOST_SECONDS)):
        _require(name, values, _number(values[name]) and 0 <= values[name] <= most, f"a number from 0 to {most:g}")
    _require("flops", values, len(row.flops) <= PHASES, f"a table of at most {PHASES} phases")
    for phase, flops in row.flops.items():
        _require("flops", values, _whole(flops) and _is_short_text(phase, 100), "whole numbers by name of phase")
    for name, texts in (("declared", row.declared), ("registered", row.registered)):
        rule = f"at most {MOST_TEXTS} short texts"
        _require(name, values, len(texts) <= MOST_TEXTS and all(_is_short_text(text, 500) for text in texts), rule)
    digest = values["digest"]
    _require("digest", values, isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None, "a short digest")
    _require("refused", values, isinstance(values["refused"], bool), "true or false")
    return row


def _require(name: str, values: dict[str, Any], holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} = {shown(values.get(name))}: must be {rule}")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_INTEGER


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_short_text(value: object, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and refused_character(value) is None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name}: not a finite number")
