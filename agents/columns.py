"""A ledger by columns, for those who look at many runs: as exact as its rows, and read many times as fast."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from alma_env import Ledger, Row, Score

NAMES = tuple(field.name for field in dataclasses.fields(Row))


@dataclass(frozen=True)
class Columns:
    """The columns of a ledger; each a sequence with one value per tick, tick 0 first, as `Row` has them."""

    tick: Sequence[int]
    error: Sequence[float]
    parameters: Sequence[int]
    buffers: Sequence[int]
    inference_flops: Sequence[float]
    flops: Sequence[Mapping[str, int]]
    paper_flops: Sequence[int]
    declared: Sequence[Sequence[str]]
    digest: Sequence[str]
    refused: Sequence[bool]
    seconds: Sequence[float]

    def __len__(self) -> int:
        return len(self.tick)

    @classmethod
    def of(cls, ledger: Ledger) -> Columns:
        """Of rows."""
        return cls(**{name: [getattr(row, name) for row in ledger] for name in NAMES})

    @classmethod
    def from_json(cls, text: bytes) -> Columns:
        """Of the lines that `Ledger.to_json` wrote.

        Raises:
            ValueError: a line is not a row, or the rows are not in order.
        """
        try:
            rows = json.loads(b"[" + b",".join(text.splitlines()) + b"]")
            values = list(zip(*map(itemgetter(*NAMES), rows), strict=True)) or [()] * len(NAMES)
            good = all(len(row) == len(NAMES) for row in rows) and values[0] == tuple(range(len(rows)))
        except (ValueError, TypeError, KeyError):
            good = False
        if not good:
            return cls.of(Ledger.from_json(text.decode()))  # knows the line, and what is wrong with it
        return cls(*values)

    def ledger(self) -> Ledger:
        """The same as rows."""
        columns = (getattr(self, name) for name in NAMES)
        return Ledger([Row.from_dict(dict(zip(NAMES, row, strict=True))) for row in zip(*columns, strict=True)])

    @property
    def errors(self) -> NDArray[np.float64]:
        """Error at each tick, float64 (B + 1,)."""
        return np.array(self.error, np.float64)

    @property
    def comp(self) -> NDArray[np.float64]:
        """FLOPs spent at each tick, float64 (B + 1,)."""
        return np.array([sum(flops.values()) for flops in self.flops], np.float64)

    def score(self) -> Score:
        """What `Ledger.score` gives, to the last bit.

        Raises:
            ValueError: there is no row.
        """
        if not len(self):
            return Ledger().score()
        cer, cer_from_1, ticks = sum(self.error), sum(self.error[1:]), len(self) - 1
        phases: dict[str, int] = {}
        for flops in self.flops:
            for phase, number in flops.items():
                phases[phase] = phases.get(phase, 0) + number
        return Score(
            ticks=ticks,
            cer=cer,
            cer_from_1=cer_from_1,
            mean_error=cer / len(self),
            mean_error_from_1=cer_from_1 / ticks if ticks else None,
            final_error=self.error[-1],
            mem=sum(self.parameters),
            comp=sum(phases.values()),
            comp_by_phase=phases,
            paper_flops=sum(self.paper_flops),
            declared=any(self.declared),
            seconds=sum(self.seconds),
            truncated=any(self.refused),
        )
