"""Experiment trackers that show runs while they go on: TensorBoard, Weights & Biases, MLflow.

A tracker receives the configuration, error, parameters and FLOPs of every tick, and the score at the end. TensorBoard
shows configuration and score as hyper-parameters. Weights & Biases and MLflow also get the files of a finished run as
an artefact; the run folder remains the record of the run. They read environment variables to find where to write
(``WANDB_PROJECT``, ``WANDB_MODE``, ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME``, …). The package of a tracker is
imported only if the tracker is requested.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agents.catalogue.run_config import RunConfig, leaves
from agents.runs.run import OnTick
from alma_env import Ledger, Row
from alma_env.errors import did_you_mean, how_to_install

PROJECT = "alma-env"  # the default; the environment variables of a tracker can name another
OF_A_TICK = ("error", "parameters", "comp", "paper_flops")
OF_A_RUN = ("cer", "final_error", "mem", "comp", "paper_flops")
ARTEFACT = ("config.json", "ledger.jsonl", "stages.jsonl", "spec.json", "checkpoint.pt")  # files of the run folder
_FLUSH_SECONDS = 5.0  # a small network answers hundreds of ticks per second


class _Tracker(Protocol):
    def log(self, tick: int, values: Mapping[str, float]) -> None: ...

    def end(self, score: Mapping[str, float] | None) -> None:
        """End the run with its score; None if the run did not finish."""


def require(names: Sequence[str]) -> None:
    """Import the packages of trackers; ValueError if a tracker is unknown, or if its package is missing."""
    for name in names:
        if name not in _MODULES:
            raise ValueError(
                f"--track {name}: unknown tracker; choose from {', '.join(_MODULES)}{did_you_mean(name, _MODULES)}"
            )
        try:
            importlib.import_module(_MODULES[name])
        except ImportError as error:
            raise ValueError(f"--track {name}: the package {name} is missing; {how_to_install(name)}") from error
    if "wandb" in names:
        _require_login()


def _require_login() -> None:
    """Raise ValueError if Weights & Biases would send the run to its server, and nobody is logged in."""
    import wandb

    if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False, verify=False):
        raise ValueError(f"--track wandb: nobody is logged in; {_REMEDIES['wandb']}")


def _artefact(folder: Path) -> list[Path]:
    """Return the files of a finished run that a tracker stores."""
    return [folder / name for name in ARTEFACT if (folder / name).exists()]


@contextmanager
def following(names: Sequence[str], folder: Path, config: RunConfig) -> Iterator[OnTick]:
    """Open trackers for a run; call the returned function with the row of every tick, earlier ticks included.

    A run that continues in its folder after it was stopped is the same run in the tracker.

    Raises:
        ValueError: a tracker is unknown, its package is missing, or it does not open, for example without a login.
    """
    require(names)
    ledger = Ledger()
    with ExitStack() as open_trackers:
        logs = [open_trackers.enter_context(_logging(name, _opened(name, folder, config), ledger)) for name in names]

        def on_tick(row: Row) -> None:
            ledger.append(row)
            values = {name: float(getattr(row, name)) for name in OF_A_TICK}
            for log in logs:
                log(row.tick, values)

        yield on_tick


def _opened(name: str, folder: Path, config: RunConfig) -> _Tracker:
    try:
        return _TRACKERS[name](folder, config)
    except OSError:
        raise
    except Exception as error:  # the package's own, such as a login that is missing
        raise ValueError(f"--track {name}: {_reason(error)}; {_REMEDIES[name]}") from error


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def _logging(name: str, tracker: _Tracker, ledger: Ledger) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Yield a function that logs a tick; then end the tracker's run. A tracker that fails is left out of the rest."""
    failed = False

    def attempt(act: Callable[..., None], *values: Any) -> None:
        nonlocal failed
        if failed:
            return
        try:
            act(*values)
        except Exception as error:  # a server that is away is no reason to end the run
            failed = True
            text = f"--track {name}: {_reason(error)}; the run goes on in its folder without this tracker"
            warnings.warn(f"{text}; for the next run, {_REMEDIES[name]}", stacklevel=2)

    try:
        yield partial(attempt, tracker.log)
    except BaseException:
        attempt(tracker.end, None)
        raise
    score = ledger.score() if len(ledger) else None
    attempt(tracker.end, {name: float(getattr(score, name)) for name in OF_A_RUN} if score else {})


class _TensorBoard:
    """Event files below the run folder."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Rows that an earlier process wrote for this run are written again.
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=0)
        # TensorBoard draws and filters numbers on an axis. "true" and "false" stay texts: PyTorch would write 1 and 0.
        numbers = {path: value for path, value in leaves(config.to_dict()) if type(value) in (int, float)}
        self._config = {path: numbers.get(path, text) for path, text in config.values.items()} | {"seed": config.seed}

    def log(self, tick: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, tick)
        self._writer.flush()

    def end(self, score: Mapping[str, float] | None) -> None:
        scores = {f"score/{name}": value for name, value in (score or {}).items()}
        self._writer.add_hparams(self._config, scores, run_name=".")  # in this folder, not in a run of its own
        self._writer.close()


class _WeightsAndBiases:
    """A run of the project `WANDB_PROJECT`; its id is the folder's name, which holds the configuration's digest."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        import wandb

        self._folder = folder
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=folder.name,
            name=folder.name,
            group=config.label,
            config=config.to_dict(),
            dir=folder,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        self._first = self._run.step  # first tick that was not logged before

    def log(self, tick: int, values: Mapping[str, float]) -> None:
        if tick >= self._first:
            self._run.log(dict(values), step=tick)

    def end(self, score: Mapping[str, float] | None) -> None:
        self._run.summary.update(dict(score or {}))
        if score is not None:
            import wandb

            artefact = wandb.Artifact(self._folder.name, type="run-folder")
            for file in _artefact(self._folder):
                artefact.add_file(str(file))
            self._run.log_artifact(artefact)
        self._run.finish(exit_code=1 if score is None else 0)


class _MLflow:
    """A run of the experiment `MLFLOW_EXPERIMENT_NAME`; a tag holds the name of its folder."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric = Metric
        self._folder = folder
        self._client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if known is None else known.experiment_id
        same = self._client.search_runs([experiment], f"tags.folder = '{folder.name}'", max_results=1)
        if same:
            self._run_id = same[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            logged = self._client.get_metric_history(self._run_id, "error")
            self._first = max((metric.step for metric in logged), default=-1) + 1
        else:
            tags = {"folder": folder.name, "group": config.label}
            self._run_id = self._client.create_run(experiment, run_name=folder.name, tags=tags).info.run_id
            self._first = 0
        # Also of a run that is known: a process can end between the two calls. A value may be logged again.
        parameters = [Param(path, value) for path, value in config.values.items()]
        parameters.append(Param("seed", str(config.seed)))
        for start in range(0, len(parameters), 100):  # the server's limit per call
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
        if score is not None:
            for file in _artefact(self._folder):
                self._client.log_artifact(self._run_id, str(file))
        self._client.set_terminated(self._run_id, "FAILED" if score is None else "FINISHED")


_MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
_REMEDIES = {
    "tensorboard": "leave --track out",
    "wandb": "run `wandb login`, or set WANDB_API_KEY, or WANDB_MODE=offline to write the run to its folder",
    "mlflow": "set MLFLOW_TRACKING_URI to a server that answers, or to sqlite:///FILE.db",
}
NAMES = tuple(_MODULES)
_TRACKERS: dict[str, Callable[[Path, RunConfig], _Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _WeightsAndBiases,
    "mlflow": _MLflow,
}
