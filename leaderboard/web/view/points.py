"""The numbers of the Pareto charts, for a whole board."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, select

from leaderboard.database.engine import reading
from leaderboard.database.tables import Result, Submission
from leaderboard.web.charts.pareto import Cloud


@dataclass(frozen=True)
class Points:
    """All published results of a board, one entry per submission.

    Attributes:
        ids: numbers of the submissions.
        method: ids of the methods.
        budget_class: decades of Comp.
        waiting_time: in mega-batches; 0 if the manifest has none.
        cer: mean CER over seeds.
        comp: mean Comp over seeds.
        mem: mean Mem over seeds.
    """

    ids: NDArray[np.int64]
    method: NDArray[np.str_]
    budget_class: NDArray[np.int64]
    waiting_time: NDArray[np.int64]
    cer: NDArray[np.float64]
    comp: NDArray[np.float64]
    mem: NDArray[np.float64]

    def cloud(
        self, cost: NDArray[np.float64], method: str | None, budget_class: int | None, waiting_time: int | None
    ) -> Cloud:
        """Return CER against a cost for the submissions that pass the filters; None disables a filter."""
        chosen = np.ones(len(self.ids), bool)
        for column, value in (
            (self.method, method),
            (self.budget_class, budget_class),
            (self.waiting_time, waiting_time),
        ):
            if value is not None:
                chosen &= column == value
        return Cloud(self.ids[chosen], cost[chosen], self.cer[chosen])


def read(engine: Engine, env_id: str, rules_version: str) -> Points:
    """Read the points of a board from the database."""
    columns = (
        Result.submission_id,
        Result.method,
        Result.budget_class,
        Result.waiting_time,
        Result.cer_mean,
        Result.comp_mean,
        Result.mem_mean,
    )
    with engine.connect() as connection:  # rows, not ORM objects: three times as fast for 10,000 results
        rows = connection.execute(
            select(*columns).where(
                Result.env_id == env_id, Result.rules_version == rules_version, Result.published.is_(True)
            )
        ).all()
    ids, method, budget, wait, cer, comp, mem = zip(*rows, strict=True) if rows else ((),) * 7
    return Points(
        np.array(ids, np.int64),
        np.array(method, np.str_),
        np.array(budget, np.int64),
        np.array([waiting or 0 for waiting in wait], np.int64),
        np.array(cer, np.float64),
        np.array(comp, np.float64),
        np.array(mem, np.float64),
    )


def names(engine: Engine, ids: Iterable[int]) -> dict[int, str]:
    """Read names of submissions from the database."""
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    with reading(engine) as session:
        rows = session.execute(select(Submission.id, Submission.name).where(Submission.id.in_(wanted)))
        return {row[0]: row[1] for row in rows}
