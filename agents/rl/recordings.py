"""Recorded runs, as a table of their trainings: what a surrogate is fitted to, small enough to be shipped.

Between two trainings the predictor stays the same, and so does its error: the trainings tell the whole curve.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents import report, run_folder

COLUMNS = (
    "tick",
    "pending",
    "examples",
    "replay",
    "grow",
    "validation_loss",
    "validation_error",
    "held_out_error",
    "error",
    "flops",
    "parameters",
)
FIELDS = COLUMNS[:8]  # those of a StageRecord; the others stand in the ledger


@dataclass(frozen=True)
class Recording:
    """One run.

    Attributes:
        env: id of its environment.
        learner: id of its learner.
        width: of its network.
        settings: everything else that its curve depends on, but seed and schedule, as JSON.
        schedule: when it trained, in words.
        seed: of stream and agent.
        ticks: length of the stream, B.
        classes: number of classes.
        error: of the untrained predictor, at tick 0.
        parameters: of the untrained predictor.
        trainings: float64 (trainings, 11), the columns as in `COLUMNS`; NaN where a held-out error was not recorded.
    """

    env: str
    learner: str
    width: int
    settings: str
    schedule: str
    seed: int
    ticks: int
    classes: int
    error: float
    parameters: int
    trainings: NDArray[np.float64]

    def column(self, name: str) -> NDArray[np.float64]:
        """One column of the trainings."""
        values: NDArray[np.float64] = self.trainings[:, COLUMNS.index(name)]
        return values

    @property
    def errors(self) -> NDArray[np.float64]:
        """The error at each tick 0..B, float64 (B + 1,)."""
        errors = np.full(self.ticks + 1, self.error)
        for tick, error in zip(self.column("tick").astype(int), self.column("error"), strict=True):
            errors[tick:] = error
        return errors

    @property
    def cer(self) -> float:
        """Cumulative error rate, ticks 0..B."""
        return float(self.errors.sum())


def read_run(folder: Path) -> Recording:
    """The recording of a finished run's folder.

    Raises:
        ValueError: the run is not finished, ended over a budget, is of text, or its files cannot be read.
    """
    config, ledger = run_folder.read_config(folder), run_folder.read_ledger(folder)
    protocol, agent = config["protocol"], config["agent"]
    if len(ledger) != protocol["ticks"] + 1:
        raise ValueError(
            f"{folder}: {len(ledger) - 1} of {protocol['ticks']} ticks are answered; let the run end first"
        )
    if any(row.refused for row in ledger):
        raise ValueError(f"{folder}: the run went over its budget, which ended its curve; record runs without a budget")
    stages = run_folder.read_stages(folder)
    rows = [
        [*(getattr(stage, name) for name in FIELDS), row.error, row.comp, row.parameters]
        for stage in stages
        for row in [ledger[stage.tick]]
    ]
    made = Recording(
        env=config["env"],
        learner=agent["id"],
        width=agent["width"],
        settings=settings_of(config),
        schedule=report.label(config).partition(", ")[2],
        seed=config["seed"],
        ticks=protocol["ticks"],
        classes=protocol["classes"],
        error=ledger[0].error,
        parameters=ledger[0].parameters,
        trainings=np.array(rows, np.float64).reshape(-1, len(COLUMNS)),
    )
    if not np.array_equal(made.errors, [row.error for row in ledger]):
        raise ValueError(f"{folder}: its errors change where it did not train; it is not a run of an agent's trainings")
    return made


def settings_of(config: Mapping[str, Any]) -> str:
    """What a run's learning curve depends on, but learner, width, schedule and seed, as JSON."""
    known = {"id", "width", "policy", "seed", "device", "engine"}  # device and engine change rounding alone
    agent = {key: value for key, value in config["agent"].items() if key not in known}
    return json.dumps({"protocol": config["protocol"], "agent": agent}, sort_keys=True)


def read_runs(folder: Path) -> list[Recording]:
    """The recordings of all run folders at or below a folder, by name.

    Raises:
        ValueError: there is none, or one cannot be read.
    """
    found = sorted(file.parent for file in folder.rglob("ledger.jsonl"))
    if not found:
        raise ValueError(f"{folder}: no run in it; make some with `alma run … --out {folder}`")
    return [read_run(path) for path in found]


def save(recordings: Sequence[Recording], file: Path) -> None:
    """Write recordings into one .npz file."""
    heads = [{key: value for key, value in asdict(made).items() if key != "trainings"} for made in recordings]
    np.savez_compressed(
        file,
        heads=np.array(json.dumps(heads)),
        lengths=np.array([len(made.trainings) for made in recordings]),
        trainings=np.concatenate([made.trainings for made in recordings]),
    )


def load(file: Path) -> list[Recording]:
    """Read what `save` wrote.

    Raises:
        ValueError: the file is missing or holds something else.
    """
    try:
        with np.load(file, allow_pickle=False) as saved:
            heads: list[dict[str, Any]] = json.loads(str(saved["heads"]))
            tables = np.split(saved["trainings"], np.cumsum(saved["lengths"])[:-1])
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"recorded={str(file)!r}: no recorded runs can be read there ({error}); make the file with "
            "`alma surrogate fit RUNS --out FILE.npz`"
        ) from error
    return [Recording(**head, trainings=table) for head, table in zip(heads, tables, strict=True)]


def groups(recordings: Iterable[Recording]) -> dict[tuple[str, str, int, str], list[Recording]]:
    """Recordings of one curve each: those that differ in nothing but schedule and seed."""
    grouped: dict[tuple[str, str, int, str], list[Recording]] = {}
    for made in recordings:
        grouped.setdefault((made.env, made.learner, made.width, made.settings), []).append(made)
    return grouped
