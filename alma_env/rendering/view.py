"""The content of a picture: the errors so far, when the learner trained and grew, and the curves to compare with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from alma_env.ledger import Ledger

FixedWaits = Mapping[int, Sequence[float] | NDArray[np.float64]]  # waiting time -> errors at ticks 0..B

_WITHOUT_TRAINING = ("validation", "policy")  # phases whose FLOPs change no weights
_HEADROOM = 0.1  # of the axis, above the highest error, for the labels of the fixed waits
_STEPS = (1, 1.5, 2, 3, 5, 7)


@dataclass(frozen=True)
class Trace:
    """One learner up to a tick t: arrays of shape (t + 1,), tick 0 first.

    Attributes:
        errors: float64, test error or perplexity.
        trained: bool, whether the learner trained at the tick.
        grown: bool, whether the deployed predictor has more parameters than the predictor before it.
        parameters: of the deployed predictor.
        comp: FLOPs so far.
        stopped: the tick at which a budget was exceeded, or None.
    """

    errors: NDArray[np.float64]
    trained: NDArray[np.bool_]
    grown: NDArray[np.bool_]
    parameters: float
    comp: float
    stopped: int | None = None

    @classmethod
    def of(
        cls,
        errors: Sequence[float] | NDArray[np.float64],
        trained: Sequence[bool] | NDArray[np.bool_],
        parameters: Sequence[float] | NDArray[np.float64],
        comp: float,
        stopped: int | None = None,
    ) -> Trace:
        """Return a trace whose growth follows from the parameters at each tick."""
        counts = np.asarray(parameters, np.float64)
        grown = np.diff(counts, prepend=counts[:1]) > 0
        grown[1:] &= counts[:-1] > 0  # the first predictor replaces a guess without parameters
        return cls(
            np.asarray(errors, np.float64), np.asarray(trained, np.bool_), grown, float(counts[-1]), comp, stopped
        )

    @classmethod
    def of_ledger(cls, ledger: Ledger, tick: int | None = None) -> Trace:
        """Return the trace of a ledger's rows, up to a tick; the ledger of an agent without budget has all ticks."""
        rows = ledger.rows if tick is None else ledger.rows[: tick + 1]
        return cls.of(
            [row.error for row in rows],
            [any(flops for phase, flops in row.flops.items() if phase not in _WITHOUT_TRAINING) for row in rows],
            [row.parameters for row in rows],
            sum(row.comp for row in rows),
            next((row.tick for row in rows if row.refused), None),
        )


@dataclass(frozen=True)
class View:
    """An episode at a tick.

    Attributes:
        title: the environment.
        ticks: mega-batches of the stream, B.
        traces: the learners by name.
        is_rate: whether the error is a fraction of wrong answers; else it is a perplexity.
        error_of: the data of the error, for the axis; empty if unknown.
        fixed_waits: errors of learners that wait for a fixed number of mega-batches.
    """

    title: str
    ticks: int
    traces: Mapping[str, Trace]
    is_rate: bool = True
    error_of: str = "test"
    fixed_waits: FixedWaits = field(default_factory=dict)

    @property
    def tick(self) -> int:
        """The last answered tick."""
        return max(len(trace.errors) for trace in self.traces.values()) - 1

    @property
    def measure(self) -> str:
        """The name of the error of a tick."""
        return "error" if self.is_rate else "perplexity"

    def total(self, trace: Trace) -> str:
        """Return the result so far as text: the CER, or the average perplexity of ticks 1..t."""
        if self.is_rate:
            return f"CER {trace.errors.sum():.2f}"
        return f"average perplexity {trace.errors[1:].mean():.1f}" if len(trace.errors) > 1 else "no average yet"

    def limits(self) -> tuple[float, float]:
        """Return the ends of the logarithmic error axis.

        The lower end is a round number below the lowest error so far, so it rarely moves. An error of 0 has no place on
        the axis.
        """
        curves = [trace.errors for trace in self.traces.values()]
        curves += [np.asarray(errors, np.float64) for errors in self.fixed_waits.values()]
        known = np.concatenate(curves)
        positive = known[known > 0]
        if not len(positive):
            return 0.1, 1.0
        lowest, highest = float(positive.min()) * 0.95, float(positive.max())
        decade = 10.0 ** math.floor(math.log10(lowest))
        steps = (step * scale for scale in (decade / 10, decade) for step in _STEPS)  # the logarithm may be rounded up
        low = round(max(step for step in steps if step <= lowest), 12)
        return low, highest * (highest / low) ** _HEADROOM

    def marks(self) -> list[float]:
        """Return round numbers on the error axis: at least three."""
        low, high = self.limits()
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found: list[float] = []
        for steps in ((1,), (1, 2, 5), _STEPS, range(10, 100, 5), range(10, 100)):
            found = [round(step * 10.0**decade, 12) for decade in (-1 + min(decades), *decades) for step in steps]
            found = sorted({mark for mark in found if low <= mark <= high})
            if len(found) >= 3:
                break
        return found
