"""What two runs must have in common: the rows of their ledgers, or the curve of their predictors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from alma_env import Row


def without_seconds(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of a ledger with 0 seconds, which differ between runs."""
    return [dataclasses.replace(row, seconds=0.0) for row in rows]


def curve(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Return error, size, costs and weights of the predictor at each tick."""
    return [(row.error, row.parameters, row.inference_flops, row.flops, row.digest) for row in rows]
