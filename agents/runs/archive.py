"""Packed files: finished runs in one small file, without checkpoints.

A packed file is JSON Lines, compressed with LZMA. A line is a run, ``{"config", "rows", "stages"}``. Ledger and stages
are stored by columns, because repeated values then compress to almost nothing. What does not compress is shortened:
wall-clock seconds to milliseconds, the floats of stages to nine significant digits, which tell all float32 apart, and
digests of predictors to eight digits, which still tell whether a run repeats another. All else is exact. A column
``registered`` without content is left out.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agents.learners.anytime import StageRecord
from agents.runs.ledger_columns import NAMES, LedgerColumns
from alma_env.files import replacing

SUFFIX = ".jsonl.xz"
DIGEST_DIGITS = 8
_STAGE = {
    field.name: None if field.default is dataclasses.MISSING else field.default
    for field in dataclasses.fields(StageRecord)
}  # the defaults, for files of earlier versions

Run = tuple[dict[str, Any], LedgerColumns, Sequence[StageRecord]]  # configuration, ledger, stages


def write(runs: Iterable[Run], file: Path) -> None:
    """Write runs into a packed file, sorted by configuration; an existing file is replaced."""
    require_name(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as partial, lzma.open(partial, "wb") as packed:
        for run in sorted(runs, key=lambda run: json.dumps(run[0], sort_keys=True)):
            packed.write(json.dumps(_to_record(*run), separators=(",", ":"), sort_keys=True).encode() + b"\n")


def require_name(file: Path) -> None:
    """Raise ValueError unless the name of a file has the suffix of packed files."""
    if not file.name.endswith(SUFFIX):
        raise ValueError(f"--out {file}: the name of a packed file must end in {SUFFIX}")


def read(file: Path) -> Iterator[Run | ValueError]:
    """Read the runs of a packed file, in the order of the file; a line that holds no run gives its error instead.

    The rest of a file that is cut or damaged gives one error, and so does a file without lines.

    Raises:
        ValueError: the file is missing.
    """
    number = 0
    remedy = f"create it again with `alma pack RUNS --out {file}`"
    try:
        with lzma.open(file, "rb") as lines:
            for line in lines:
                number += 1
                try:
                    yield _from_record(json.loads(line))
                except (ValueError, TypeError, LookupError, AttributeError) as error:
                    yield ValueError(f"{file}, line {number}: not a packed run ({error}); {remedy}")
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file; create it with `alma pack RUNS --out {file}`") from None
    except (lzma.LZMAError, EOFError) as error:
        yield ValueError(f"{file}, after line {number}: the file is cut or damaged ({error}); {remedy}")
        return
    if not number:
        yield ValueError(f"{file}: it holds no run; {remedy}")


def _to_record(config: dict[str, Any], columns: LedgerColumns, stages: Sequence[StageRecord]) -> dict[str, Any]:
    rows: dict[str, Any] = {name: list(getattr(columns, name)) for name in NAMES if name != "tick"}
    if not any(columns.registered):
        del rows["registered"]
    phases = sorted({phase for flops in columns.flops for phase in flops})
    rows["flops"] = {phase: [flops.get(phase) for flops in columns.flops] for phase in phases}
    rows["seconds"] = [round(seconds, 3) for seconds in columns.seconds]
    rows["digest"] = [digest[:DIGEST_DIGITS] for digest in columns.digest]
    by_name = {name: [_shortened(getattr(one, name)) for one in stages] for name in _STAGE}
    return {"config": config, "rows": rows, "stages": by_name}


def _shortened(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _flops_by_tick(by_phase: dict[str, list[Any]], ticks: int) -> list[dict[str, Any]]:
    """Return the FLOPs of each phase at each tick; ticks with the same FLOPs share one dictionary, for speed."""
    by_tick = list(zip(*by_phase.values(), strict=True)) or [()] * ticks
    shared = {
        charges: {phase: flops for phase, flops in zip(by_phase, charges, strict=True) if flops is not None}
        for charges in set(by_tick)
    }
    return [shared[charges] for charges in by_tick]


def _from_record(record: dict[str, Any]) -> Run:
    rows, stages = record["rows"], record["stages"]
    if not isinstance(record["config"], dict):
        raise ValueError(f"config={reprlib.repr(record['config'])}: must be an object")
    ticks = range(len(rows["error"]))
    flops = _flops_by_tick(rows.pop("flops"), len(ticks))
    count = len(stages["tick"])
    stage_rows = zip(*(stages.get(name, [default] * count) for name, default in _STAGE.items()), strict=True)
    # The garbage collector visits each list again and again, which took a fifth of the time, but no tuple of numbers.
    rows = {name: tuple(column) for name, column in rows.items()}
    rows["declared"] = tuple(() if declared == [] else declared for declared in rows["declared"])
    columns = LedgerColumns(tick=ticks, flops=flops, **{"registered": ((),) * len(ticks), **rows})
    by_stage = (dict(zip(_STAGE, values, strict=True)) for values in stage_rows)
    return record["config"], columns, [StageRecord.read(values) for values in by_stage]
