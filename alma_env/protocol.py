"""The numbers of a protocol, checked: which stream is made of the data, how it is scored, and which budgets hold."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from alma_env.data.datasets import DataSet
from alma_env.data.stream import Stream, as_written
from alma_env.errors import ArgumentTypeError
from alma_env.integers import require_integer
from alma_env.text.corpus import TextCorpus

PARTITIONS = ("alma", "continuum")


@dataclass(frozen=True)
class Protocol:
    """The arguments of ``AlmaEnv`` without ``data``; the manual of ``AlmaEnv`` describes them.

    Numbers of NumPy and fractions become numbers of Python, so that the protocol can be written as JSON.

    Raises:
        TypeError: an argument is not a number, or not a whole one.
        ValueError: a budget is not positive and finite, the partition is unknown, or the size of a batch is below 1.
    """

    ticks: int
    valid_fraction: float = 0.1
    partition: str = "alma"
    flops_budget: float | None = None
    parameter_budget: int | None = None
    evaluation_batch_size: int = 500

    def __post_init__(self) -> None:
        whole = ("ticks", "evaluation_batch_size", "parameter_budget")
        _require_numbers({name: getattr(self, name) for name in whole}, Integral, "a whole number", 50)
        real = ("valid_fraction", "flops_budget")
        _require_numbers({name: getattr(self, name) for name in real}, Real, "a number", 0.1)
        for name in ("flops_budget", "parameter_budget"):
            budget = getattr(self, name)
            if budget is not None and not 0 < budget < math.inf:
                raise ValueError(f"{name}={budget}: a budget must be positive and finite; use None for no budget")
        if self.partition not in PARTITIONS:
            raise ValueError(f"partition={self.partition!r}: must be one of {', '.join(PARTITIONS)}; use 'alma'")
        if self.evaluation_batch_size < 1:
            raise ValueError(
                f"evaluation_batch_size={self.evaluation_batch_size}: a forward pass needs at least 1 example; use, "
                "for example, evaluation_batch_size=500"
            )
        for field in fields(self):
            object.__setattr__(self, field.name, _to_python(getattr(self, field.name)))

    def require_stream(self, data: DataSet | TextCorpus) -> Stream | None:
        """Check that the data have a stream with these numbers; return the one of seed 0, except for text.

        Raises:
            TypeError: the data are neither a `DataSet` nor a `TextCorpus`.
            ValueError: there is no such stream, or a keyword is not for text.
        """
        if not isinstance(data, DataSet | TextCorpus):
            raise ArgumentTypeError(
                f"data={reprlib.repr(data)}: must be a DataSet or a TextCorpus; use alma_env.make('Digits-ALMA-v0'), "
                "or alma_env.from_arrays for arrays of your own"
            )
        if isinstance(data, DataSet):
            return Stream(data, self.ticks, seed=0, valid_fraction=self.valid_fraction, scheme=self.partition)
        if (self.valid_fraction, self.partition) != (0.1, "alma"):
            raise ValueError(
                f"valid_fraction={self.valid_fraction}, partition={self.partition!r} with text: text has a separate "
                "validation set, and its documents are permuted by seed; leave both out"
            )
        data.check(self.ticks)
        return None


def require_arrived(tick: Any, answered: int, ticks: int) -> int:
    """Return the tick of a mega-batch that has arrived: after the answer at tick t, D_1 .. D_{t+1} have arrived.

    Args:
        tick: the tick of the mega-batch.
        answered: the last answered tick; -1 before the first ``reset``.
        ticks: the number of mega-batches.

    Raises:
        TypeError: the tick is not an integer.
        ValueError: the mega-batch has not arrived yet, or does not exist.
    """
    number = require_integer(tick, "tick")
    arrived = min(answered + 1, ticks)
    if not 1 <= number <= arrived:
        raise ValueError(
            f"tick={tick}: mega-batches 1 to {arrived} have arrived; step() releases the next one"
            if arrived
            else f"tick={tick}: no mega-batch has arrived yet; call reset() first"
        )
    return number


def read_options(options: Any, example: str) -> dict[str, Any]:
    """Return the options of ``reset`` as a new dictionary; TypeError, with the example, if they are none."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options={reprlib.repr(options)}: must be a dict, for example {example}")
    return dict(options or {})


def _require_numbers(values: Mapping[str, object], kind: type, rule: str, example: float) -> None:
    for name, value in values.items():
        if value is None and name.endswith("_budget"):
            continue
        if isinstance(value, bool) or not isinstance(value, kind):
            raise ArgumentTypeError(f"{name}={reprlib.repr(value)}: must be {rule}, for example {name}={example}")


def _to_python(number: Any) -> Any:
    if isinstance(number, Real) and not isinstance(number, Integral):
        return as_written(number)
    return number.item() if isinstance(number, np.generic) else number
