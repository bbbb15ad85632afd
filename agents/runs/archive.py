"""Finished runs in one small file, without their checkpoints.

A packed file is JSON Lines, compressed by LZMA: a run is a line ``{"config", "rows", "stages"}``, whose ledger and
trainings stand by columns, since what repeats from tick to tick then costs next to nothing. The wall-clock seconds are
kept to the millisecond; every other number to the last bit.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.anytime import StageRecord
from agents.columns import NAMES, Columns

if TYPE_CHECKING:
    from agents.finished import FinishedRun

SUFFIX = ".jsonl.xz"
_STAGE = tuple(field.name for field in dataclasses.fields(StageRecord))


def write(runs: Iterable[FinishedRun], file: Path) -> None:
    """Write runs into a packed file, in the order of their configurations; a file that is there is replaced.

    Raises:
        ValueError: the file's name does not say what it is.
    """
    require_name(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".partial")
    with lzma.open(partial, "wb") as packed:
        for run in sorted(runs, key=lambda run: json.dumps(run.config, sort_keys=True)):
            packed.write(json.dumps(_packed(run), separators=(",", ":"), sort_keys=True).encode() + b"\n")
    os.replace(partial, file)


def require_name(file: Path) -> None:
    """Raise ValueError unless a file is named as a packed one, by which it is known."""
    if not file.name.endswith(SUFFIX):
        raise ValueError(f"--out {file}: a packed file is known by its name; let it end in {SUFFIX}")


def read(file: Path) -> Iterator[tuple[dict[str, Any], Columns, tuple[StageRecord, ...]]]:
    """Configuration, ledger and trainings of each run, in the order of the file.

    Raises:
        ValueError: the file is missing, or not what `write` wrote.
    """
    number = 0
    try:
        with lzma.open(file, "rb") as lines:
            for line in lines:
                number += 1
                yield _unpacked(json.loads(line))
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file; make it with `alma pack RUNS --out {file}`") from None
    except (lzma.LZMAError, EOFError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(
            f"{file}, after {number} runs: not packed runs ({error}); make it anew with `alma pack RUNS --out {file}`"
        ) from error
    if not number:
        raise ValueError(f"{file}: no run in it; make it anew with `alma pack RUNS --out {file}`")


def _packed(run: FinishedRun) -> dict[str, Any]:
    rows: dict[str, Any] = {name: list(getattr(run.columns, name)) for name in NAMES if name != "tick"}
    phases = sorted({phase for flops in run.columns.flops for phase in flops})
    rows["flops"] = {phase: [flops.get(phase) for flops in run.columns.flops] for phase in phases}
    rows["seconds"] = [round(seconds, 3) for seconds in run.columns.seconds]
    stages = {name: [getattr(stage, name) for stage in run.stages] for name in _STAGE}
    return {"config": run.config, "rows": rows, "stages": stages}


def _unpacked(line: dict[str, Any]) -> tuple[dict[str, Any], Columns, tuple[StageRecord, ...]]:
    rows, stages = line["rows"], line["stages"]
    by_phase = rows.pop("flops")
    ticks = range(len(rows["error"]))
    flops = [{phase: values[tick] for phase, values in by_phase.items() if values[tick] is not None} for tick in ticks]
    trainings = zip(*(stages[name] for name in _STAGE), strict=True)
    return (
        line["config"],
        Columns(tick=ticks, flops=flops, **rows),
        tuple(StageRecord(*training) for training in trainings),
    )
