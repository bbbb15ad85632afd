"""A recorded run: the table of its trainings, to which surrogates are fitted.

Between two trainings predictor and error do not change, so the trainings determine the error at every tick.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.run_config import RunConfig

# Fields of a StageRecord; the other columns come from the ledger.
FIELDS = ("tick", "pending", "examples", "replay", "grow", "validation_loss", "validation_error", "held_out_error")
COLUMNS = (*FIELDS, "error", "flops", "parameters", "window", "restart")


@dataclass(frozen=True)
class Recording:
    """A recorded run. ``env`` and ``learner`` are ids, and ``ticks`` is the length of the stream, B.

    Attributes:
        settings: the other settings that determine the learning curve, without seed and schedule, as JSON.
        seed: of stream and agent.
        error: of the untrained predictor, at tick 0.
        parameters: of the untrained predictor.
        trainings: float64 (trainings, 13) with the columns `COLUMNS`; NaN for a held-out error that was not recorded,
            and for the window of a training without one.
    """

    env: str
    learner: str
    width: int | None
    settings: str
    schedule: str
    seed: int
    ticks: int
    classes: int
    error: float
    parameters: int
    trainings: NDArray[np.float64]

    @property
    def run_config(self) -> RunConfig:
        """The recorded part of the run configuration: all but the policy and the computation."""
        values = json.loads(self.settings)
        agent = {**values.get("agent", {}), "id": self.learner, "width": self.width}
        return RunConfig(self.env, values.get("protocol", {}), AgentConfig(agent), self.seed)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one column of the trainings."""
        values: NDArray[np.float64] = self.trainings[:, COLUMNS.index(name)]
        return values

    def at_ticks(self, name: str, untrained: float) -> NDArray[np.float64]:
        """Return a column at each tick 0..B, float64 (B + 1,): the value of the last training up to the tick."""
        values = np.append(untrained, self.column(name))
        return values[np.searchsorted(self.column("tick"), np.arange(self.ticks + 1), side="right")]

    @property
    def errors(self) -> NDArray[np.float64]:
        """The error at each tick 0..B, float64 (B + 1,)."""
        return self.at_ticks("error", self.error)

    @property
    def decisions(self) -> NDArray[np.int64]:
        """Train (0 or 1), replay (0 or 1) and growth steps at each tick 1..B, int64 (B, 3)."""
        decisions = np.zeros((self.ticks, 3), np.int64)
        trained = self.column("tick").astype(int) - 1
        decisions[trained] = np.stack([np.ones(len(trained)), self.column("replay"), self.column("grow")], -1)
        return decisions

    @property
    def sizes(self) -> NDArray[np.float64]:
        """Mega-batches that each training trained on, float64 (trainings,)."""
        tick, pending, window = (self.column(name) for name in ("tick", "pending", "window"))
        replayed = np.where(np.isnan(window), tick, np.minimum(pending + window, tick))
        return np.where(self.column("replay") > 0, replayed, pending)

    @property
    def repeats(self) -> NDArray[np.bool_]:
        """Whether each training repeated earlier data, bool (trainings,); at the first one, replay finds none."""
        return self.sizes > self.column("pending")

    @property
    def held(self) -> NDArray[np.float64]:
        """Ticks for which the error of each training holds, float64 (trainings,)."""
        return np.diff(np.append(self.column("tick"), self.ticks + 1))

    @property
    def validation_log_losses(self) -> NDArray[np.float64]:
        """Logarithm of the validation loss after each training, float64 (trainings,), finite for a loss of 0."""
        return np.log(np.maximum(self.column("validation_loss"), 1e-6))

    @property
    def identity(self) -> tuple[int, bytes]:
        """The seed and the trainings, which determine the curve of a learner: two schedules can have the same ones."""
        decided = self.column("tick"), self.sizes, self.column("grow"), self.column("restart")
        return self.seed, np.stack(decided).tobytes()

    @property
    def explores(self) -> bool:
        """Whether a training replays a part of the earlier data, or restarts."""
        return bool(np.isfinite(self.column("window")).any() or self.column("restart").any())

    @property
    def inexpressible(self) -> str | None:
        """Why no action of ``Wait-v0`` expresses a decision of the run; None if actions express all of them."""
        if self.explores:
            return "replays a part of the earlier data, or restarts"
        steps = self.decisions[:, 2].max()
        return f"grows by {steps} steps before one training" if steps > 1 else None

    def require_expressible(self) -> None:
        """Raise ValueError if no action of ``Wait-v0`` expresses a decision of the run."""
        if self.inexpressible is not None:
            raise ValueError(
                f"a run of {self.learner!r} with {self.schedule!r} {self.inexpressible}, which no action of Wait-v0 "
                "can express; leave this run out"
            )

    def errors_on(self, reward_on: str) -> tuple[NDArray[np.float64], float]:
        """Return the error after each training, float64 (trainings,), and the error of the untrained predictor.

        Args:
            reward_on: ``test``: on the test set; ``validation``: on the validation parts of the whole stream, where the
                untrained predictor has the error of a guess, because only trainings record the error.

        Raises:
            ValueError: another word, or no validation error was recorded.
        """
        if reward_on == "test":
            return self.column("error"), self.error
        if reward_on != "validation":
            raise ValueError(f"reward_on={reward_on!r}: must be 'test' or 'validation'; use reward_on='test'")
        errors = self.column("held_out_error")
        if np.isnan(errors).any():
            raise ValueError(
                f"reward_on='validation': a run of {self.learner!r} with {self.schedule!r} has no validation error; "
                "run it again with `alma run --record --fresh`, or use reward_on='test'"
            )
        return errors, 1 - 1 / self.classes

    @property
    def cer(self) -> float:
        """Cumulative error rate, ticks 0..B."""
        return float(self.errors.sum())
