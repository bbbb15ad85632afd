"""Recorded runs, read from run folders, grouped, and kept in files that are small enough to be shipped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.analysis.measures import ERROR_RATE, measure_of
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.methods import METHODS
from agents.catalogue.run_config import RunConfig
from agents.policies.learned.file_checks import DAMAGED, damage
from agents.policies.validation import check_types
from agents.rl.recorded.recording import COLUMNS, FIELDS, Recording
from agents.runs import run_folder
from alma_env.files import replacing

_RECORDED = ("error", "parameters", "trainings")  # of a `Recording`; the other fields identify it
_EARLIER = 11  # columns of files of earlier versions, which have no windows and restarts
NO_TEXT = (
    "a surrogate models error rates, and text has perplexities; record runs on another stream, such as Digits-ALMA-v0"
)
_TYPES = {"env": str, "learner": str, "width": int | None, "settings": str, "schedule": str, "error": float}
_TYPES |= dict.fromkeys(("seed", "ticks", "classes", "parameters"), int)


def read_run(folder: Path) -> Recording:
    """Return the recording of a finished run.

    Raises:
        ValueError: the run is not finished, exceeded a budget, is a run on text, or its files cannot be read.
    """
    config, ledger = run_folder.read_config(folder), run_folder.read_ledger(folder)
    if measure_of(config.protocol) is not ERROR_RATE:
        raise ValueError(f"{folder}: a run on {config.env}; {NO_TEXT}")
    if len(ledger) != config.ticks + 1:
        raise ValueError(f"{folder}: {len(ledger) - 1} of {config.ticks} ticks are answered; finish the run first")
    if any(row.refused for row in ledger):
        raise ValueError(
            f"{folder}: the run exceeded its budget, so its curve is incomplete; record runs without a budget"
        )
    trainings = []
    for stage in run_folder.read_stages(folder):
        row = ledger[stage.tick]
        known = (getattr(stage, name) for name in FIELDS)
        trainings.append([*known, row.error, row.comp, row.parameters, stage.window, stage.restart])
    recording = Recording(
        env=config.env,
        learner=config.agent.id,
        width=config.get("width"),
        settings=settings_of(config),
        schedule=_schedule_of(config.agent),
        seed=config.seed,
        ticks=config.ticks,
        classes=config.get("protocol.classes"),
        error=ledger[0].error,
        parameters=ledger[0].parameters,
        trainings=np.array(trainings, np.float64).reshape(-1, len(COLUMNS)),
    )
    if not np.array_equal(recording.errors, [row.error for row in ledger]):
        raise ValueError(
            f"{folder}: its errors change at ticks without a training; record a run of an agent of `agents.make`"
        )
    _require_finite(recording)
    return recording


def _schedule_of(agent: AgentConfig) -> str:
    """Return the policy of a run as text, with the growth if it is not the usual one: it changes the curve, too."""
    method = METHODS.get(agent.id)
    usual = "every" if method is not None and method.grows else "never"
    growth = agent.growth or usual
    return agent.policy_text + f", growth {growth}" * (growth != usual)


def settings_of(config: RunConfig) -> str:
    """Return the settings that determine a run's learning curve, without seeds and schedule, as JSON."""
    known = {"id", "width", "policy", "seed", "device", "engine"}
    agent = {key: value for key, value in config.agent.record.items() if key not in known}
    return json.dumps({"protocol": config.protocol, "agent": agent}, sort_keys=True)


def read_runs(*folders: Path) -> list[Recording]:
    """Return the recordings of all run folders at or below folders, in the order of their names.

    A run folder that lies below several of the folders counts once.

    Raises:
        ValueError: a folder holds no run, or a run cannot be read.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        below = sorted(file.parent for file in folder.rglob("ledger.jsonl"))
        if not below:
            raise ValueError(f"{folder}: it holds no run; run some with `alma run … --out {folder}`")
        for path in below:
            found.setdefault(path.resolve(), path)
    return [read_run(path) for path in found.values()]


def gathered(*places: Path) -> list[Recording]:
    """Return the recordings of folders of runs and of files that `save` wrote, in this order.

    A run that an earlier place has, with the same settings, schedule and seed, is left out of a later one.

    Raises:
        ValueError: a folder holds no run, or a run or a file cannot be read.
    """
    kept: list[Recording] = []
    known: set[str] = set()
    for place in places:
        recordings = load(place) if place.suffix == ".npz" else read_runs(place)
        kept += [one for one in recordings if _identity(one) not in known]
        known.update(map(_identity, recordings))
    return kept


def _identity(recording: Recording) -> str:
    return json.dumps({key: value for key, value in vars(recording).items() if key not in _RECORDED})


def distinct(recordings: Iterable[Recording]) -> list[Recording]:
    """Return the recordings of one learning curve, each run once: without the later names of the same trainings."""
    found: dict[tuple[int, bytes], Recording] = {}
    for one in recordings:
        found.setdefault(one.identity, one)
    return list(found.values())


def save(recordings: Sequence[Recording], file: Path) -> None:
    """Write recordings into one .npz file, in one step."""
    heads = [{key: value for key, value in asdict(one).items() if key != "trainings"} for one in recordings]
    with replacing(file) as partial, open(partial, "wb") as raw:  # NumPy would add .npz to the partial's name
        np.savez_compressed(
            raw,
            heads=np.array(json.dumps(heads)),
            lengths=np.array([len(one.trainings) for one in recordings]),
            trainings=np.concatenate([one.trainings for one in recordings]),
        )


def load(file: Path) -> list[Recording]:
    """Read recordings that `save` wrote.

    Raises:
        ValueError: the file is missing or holds no recordings.
    """
    try:
        with open(file, "rb") as raw, np.load(raw, allow_pickle=False) as saved:
            heads: list[dict[str, Any]] = json.loads(str(saved["heads"]))
            tables = np.split(_with_all_columns(saved["trainings"]), np.cumsum(saved["lengths"])[:-1])
        return [_checked(Recording(**head, trainings=table)) for head, table in zip(heads, tables, strict=True)]
    except DAMAGED as error:
        raise ValueError(
            f"recorded={str(file)!r}: cannot be read as recorded runs ({damage(error)}); write the "
            "file with `alma surrogate fit RUNS --out FILE.npz`"
        ) from error


def _checked(one: Recording) -> Recording:
    """Return a recording that was read; ValueError if a value has the wrong type or does not fit the others."""
    check_types(vars(one), _TYPES)
    if not isinstance(json.loads(one.settings), dict):
        raise ValueError(f"settings={one.settings!r}: must be a JSON object")
    if one.classes < 2:
        raise ValueError(f"classes={one.classes}: must be at least 2")
    _require_finite(one)
    tick = one.column("tick")
    if not (np.diff(np.concatenate([[0], tick, [one.ticks + 1]])) > 0).all():
        raise ValueError(f"trainings at the ticks {tick.tolist()}: must ascend from 1 on to ticks={one.ticks} at most")
    return one


def _require_finite(one: Recording) -> None:
    for name in COLUMNS:
        if name in ("held_out_error", "window"):
            continue
        if not np.isfinite(values := one.column(name)).all():
            first = int((~np.isfinite(values)).argmax())
            raise ValueError(
                f"{name}={values[first]} at tick {one.column('tick')[first]:g} of a run of {one.learner!r} with "
                f"{one.schedule!r}, seed {one.seed}: must be finite, as a fit takes all trainings; leave the run out"
            )


def _with_all_columns(trainings: NDArray[np.float64]) -> NDArray[np.float64]:
    if trainings.shape[1] == len(COLUMNS):
        return trainings
    if trainings.shape[1] != _EARLIER:
        raise ValueError(f"{trainings.shape[1]} columns; a file has {len(COLUMNS)}, or {_EARLIER} of earlier versions")
    none = np.full((len(trainings), 1), np.nan), np.zeros((len(trainings), 1))
    return np.concatenate([trainings, *none], 1)


def groups(recordings: Iterable[Recording]) -> dict[tuple[str, str, int | None, str], list[Recording]]:
    """Group recordings by learning curve; recordings of one group differ only in schedule, seed and computation."""
    grouped: dict[tuple[str, str, int | None, str], list[Recording]] = {}
    settings: dict[str, str] = {}  # by the settings without the computation
    for recording in recordings:
        learner = json.dumps(recording.run_config.learner, sort_keys=True)
        key = recording.env, recording.learner, recording.width, settings.setdefault(learner, recording.settings)
        grouped.setdefault(key, []).append(recording)
    return grouped
