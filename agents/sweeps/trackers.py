"""Following runs in an experiment tracker while they go on: TensorBoard, Weights & Biases, MLflow.

A tracker is told every tick's error, parameters and FLOPs, and at the end the score. It shows what the run's folder
holds; the folder stays the record. Where a tracker writes is its own affair: Weights & Biases and MLflow read their
environment variables (``WANDB_PROJECT``, ``WANDB_MODE``, ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``, …).
Nothing of them is imported before one is asked for.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from agents.report import by_path, label
from agents.runs import OnTick
from alma_env import Ledger, Row

PROJECT = "alma-env"  # where the tracker's own settings name none
OF_A_TICK = ("error", "parameters", "comp", "paper_flops")
OF_A_RUN = ("cer", "final_error", "mem", "comp", "paper_flops")
_FLUSH_SECONDS = 5.0  # a small network answers hundreds of ticks per second


class _Tracker(Protocol):
    def log(self, tick: int, values: Mapping[str, float]) -> None: ...

    def end(self, score: Mapping[str, float] | None) -> None:
        """The score of a run that came to its end; None where it did not."""


def require(names: Sequence[str]) -> None:
    """Import what these trackers need, so that a missing package is told before anything runs.

    Raises:
        ValueError: there is no such tracker, or its package is missing.
    """
    for name in names:
        if name not in _MODULES:
            raise ValueError(f"--track {name}: no such tracker; choose from {', '.join(_MODULES)}")
        try:
            importlib.import_module(_MODULES[name])
        except ImportError as error:
            raise ValueError(
                f"--track {name}: the package {name} is missing; pip install 'alma-env[{name}]'"
            ) from error


@contextmanager
def following(names: Sequence[str], folder: Path, config: Mapping[str, Any]) -> Iterator[OnTick]:
    """Tell trackers of a run: what this gives is told every tick's row, also of the ticks that were answered before.

    Args:
        names: ``tensorboard``, ``wandb``, ``mlflow``; none of them is fine.
        folder: of the run. A run that goes on after it was stopped is the same run in the tracker.
        config: the run's configuration.

    Raises:
        ValueError: as ``require``.
    """
    require(names)
    ledger = Ledger()
    with ExitStack() as open_trackers:
        trackers = [open_trackers.enter_context(_ended(_TRACKERS[name](folder, config), ledger)) for name in names]

        def on_tick(row: Row) -> None:
            ledger.append(row)
            values = {name: float(getattr(row, name)) for name in OF_A_TICK}
            for tracker in trackers:
                tracker.log(row.tick, values)

        yield on_tick


@contextmanager
def _ended(tracker: _Tracker, ledger: Ledger) -> Iterator[_Tracker]:
    try:
        yield tracker
    except BaseException:
        tracker.end(None)
        raise
    score = ledger.score() if len(ledger) else None
    tracker.end({name: float(getattr(score, name)) for name in OF_A_RUN} if score else {})


class _TensorBoard:
    """Event files below the run's folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What an earlier process wrote of this run is written again.
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=0)

    def log(self, tick: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, tick)
        self._writer.flush()

    def end(self, score: Mapping[str, float] | None) -> None:
        self._writer.close()


class _WeightsAndBiases:
    """A run of the project `WANDB_PROJECT`, known again by its folder's name, which has its configuration's digest."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=folder.name,
            name=folder.name,
            group=label(config),
            config=dict(config),
            dir=folder,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._first = self._run.step  # of the ticks that were not told before

    def log(self, tick: int, values: Mapping[str, float]) -> None:
        if tick >= self._first:
            self._run.log(dict(values), step=tick)

    def end(self, score: Mapping[str, float] | None) -> None:
        self._run.summary.update(dict(score or {}))
        self._run.finish(exit_code=1 if score is None else 0)


class _MLflow:
    """A run of the experiment `MLFLOW_EXPERIMENT_NAME`, known again by a tag with the name of its folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric = Metric
        self._client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if known is None else known.experiment_id
        same = self._client.search_runs([experiment], f"tags.folder = '{folder.name}'", max_results=1)
        if same:
            self._run_id = same[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            told = self._client.get_metric_history(self._run_id, "error")
            self._first = max((metric.step for metric in told), default=-1) + 1
        else:
            tags = {"folder": folder.name, "group": label(config)}
            self._run_id = self._client.create_run(experiment, run_name=folder.name, tags=tags).info.run_id
            self._first = 0
            parameters = [Param(path, value) for path, value in by_path(config)]
            parameters.append(Param("seed", str(config["seed"])))
            for start in range(0, len(parameters), 100):  # as many as the server takes at once
                self._client.log_batch(self._run_id, params=parameters[start : start + 100])
        self._waiting: list[Any] = []
        self._flushed = time.monotonic()

    def log(self, tick: int, values: Mapping[str, float]) -> None:
        if tick < self._first:
            return
        now = int(time.time() * 1000)
        self._waiting += [self._metric(name, value, now, tick) for name, value in values.items()]
        if len(self._waiting) >= 900 or time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._client.log_batch(self._run_id, metrics=self._waiting)
        self._waiting, self._flushed = [], time.monotonic()

    def end(self, score: Mapping[str, float] | None) -> None:
        now = int(time.time() * 1000)
        self._waiting += [self._metric(f"score/{name}", value, now, 0) for name, value in (score or {}).items()]
        self._flush()
        self._client.set_terminated(self._run_id, "FAILED" if score is None else "FINISHED")


_MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
_TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], _Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _WeightsAndBiases,
    "mlflow": _MLflow,
}
