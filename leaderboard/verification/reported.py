"""Check what the contestant and the evaluator report: nothing of their messages is used before."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from alma_env import Row
from alma_env.errors import AlmaError
from leaderboard.rules import PHASES

PHASES_OF_A_RUN = 64
CHARACTERS = 1_000_000  # of all reasons and operations of a run
_LARGEST = 2**63


class RunFailedError(AlmaError):
    """A run failed: the agent raised, exceeded a limit, or broke the protocol."""


class NamesAndTexts:
    """The names of phases, and the lengths of texts, that a run has reported so far: pages and tables show them."""

    def __init__(self) -> None:
        self._phases: set[str] = set()
        self._characters = 0

    def add(self, row: Row) -> None:
        """Add those of a row, or raise RunFailedError if the run has too many."""
        self._phases |= row.flops.keys()
        self._characters += sum(map(len, (*row.declared, *row.registered)))
        if len(self._phases) > PHASES_OF_A_RUN:
            raise RunFailedError(
                f"flops: {len(self._phases)} names of phases in the run; at most {PHASES_OF_A_RUN} are allowed; use "
                "the same names with meter.phase at every tick"
            )
        if self._characters > CHARACTERS:
            raise RunFailedError(
                f"declared and registered: {self._characters:,} characters in the run; at most {CHARACTERS:,} are "
                "allowed; declare once per tick, with a short reason"
            )


def flops(found: Any, total: Any) -> dict[str, int]:
    """Return the FLOPs by phase; phases with equal printable names are added up."""
    if not isinstance(found, dict):
        raise RunFailedError(f"flops={str(found)[:50]}: must be a table by phase, as the environment sends it")
    if len(found) > PHASES:
        raise RunFailedError(
            f"flops: {len(found)} phases in one tick; at most {PHASES} are allowed; use fewer names with meter.phase"
        )
    by_phase: Counter[str] = Counter()
    for phase, count in found.items():
        by_phase[printable(phase)[:50]] += whole(count, "flops")
    added = whole(by_phase.total(), "flops")
    if total is not None and whole(total, "total") != added:
        raise RunFailedError(f"flops: the phases add up to {added}, and the contestant's total is {total}")
    return dict(by_phase)


def whole(value: Any, name: str) -> int:
    """Return a whole number from 0 to 2⁶³ − 1, or raise RunFailedError."""
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise RunFailedError(f"{name}={str(value)[:50]}: must be a whole number of at least 0")
    return value


def number(value: Any, name: str) -> float:
    """Return a finite number of at least 0, or raise RunFailedError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise RunFailedError(f"{name}={str(value)[:50]}: must be a finite number of at least 0")
    return float(value)


def reasons(found: Any) -> tuple[str, ...]:
    """Return a list of texts, each without control characters and of at most 200 characters."""
    if not isinstance(found, list):
        raise RunFailedError(f"{str(found)[:50]}: must be a list")
    return tuple(printable(reason)[:200] for reason in found[:100])


def printable(value: Any) -> str:
    """Return the value as text without control characters, for logs and pages."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(value)[:10_000])
