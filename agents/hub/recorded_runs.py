"""Recorded runs as a repository for a data set: a packed file, which alma reads, and the same numbers as Parquet.

``runs.parquet`` has a row for each run, ``ticks.parquet`` a row for each tick of each run; ``run`` joins them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agents.analysis.dataframe import standard_columns
from agents.hub import repository
from agents.runs import archive, load
from agents.runs.ledger_columns import NAMES
from agents.runs.load import FinishedRun
from alma_env.errors import MissingPackageError, how_to_install

PACKED = f"runs{archive.SUFFIX}"
_INT64 = 2**63
_LISTS = ("declared", "registered")  # columns of ticks that hold lists of texts


def push(runs: Sequence[FinishedRun], place: str, *, private: bool = False, replace: bool = False) -> str:
    """Put finished runs into a repository or folder; return where they can be seen.

    Raises:
        ValueError: there is no run, or as `agents.hub.repository.push`.
        MissingPackageError: `pyarrow` is not installed.
    """
    if not runs:
        raise ValueError(f"{place}: no finished run to push; finish one first")
    return repository.push(place, "dataset", partial(_write, runs, place), private=private, replace=replace)


def pull(place: str, file: Path, *, revision: str | None = None) -> None:
    """Copy the packed file of a repository or folder. A damaged file replaces no other file.

    Raises:
        ValueError: the name of the file is not that of a packed file, no run can be read, a run of a file that would
            replace another one cannot be read, or as `agents.hub.repository.pull`.
    """
    archive.require_name(file)
    check = partial(load.find, strict=file.exists())
    repository.pull(place, "dataset", PACKED, file, revision=revision, check=check)


def is_replaced_by_push(place: str, paths: Iterable[Path]) -> bool:
    """Return whether runs are pushed into the folder that they come from, so that its packed file is replaced."""
    folder = repository.folder_of(place)
    return folder is not None and any((folder / PACKED).resolve().is_relative_to(path.resolve()) for path in paths)


def _write(runs: Sequence[FinishedRun], place: str, folder: Path) -> None:
    load.pack(runs, folder / PACKED)
    # The packed file is sorted, so `run` counts its lines.
    packed, _ = load.find(folder / PACKED)
    _write_parquet([_row(number, run) for number, run in enumerate(packed)], folder / "runs.parquet")
    ticks = (row for number, run in enumerate(packed) for row in _ticks(number, run))
    _write_parquet(ticks, folder / "ticks.parquet")
    streams = ", ".join(sorted({run.run_config.env for run in packed}))
    card = _CARD.format(count=len(packed), streams=streams, place=place, packed=PACKED)
    (folder / repository.CARD).write_text(card, encoding="utf-8")


def _row(number: int, run: FinishedRun) -> dict[str, Any]:
    columns = {name: value for name, value in standard_columns(run).items() if name != "folder"}
    columns["replay"] = {False: "none", True: "all"}.get(columns["replay"], columns["replay"])  # one type: text
    return {"run": number, **columns, "config": json.dumps(run.config, sort_keys=True)}


def _ticks(number: int, run: FinishedRun) -> Iterable[dict[str, Any]]:
    columns = [getattr(run.columns, name) for name in NAMES]
    for values in zip(*columns, strict=True):
        row = dict(zip(NAMES, values, strict=True))
        row |= {name: list(row[name]) for name in _LISTS}
        flops = {f"flops_{phase}": count for phase, count in row.pop("flops").items()}
        yield {"run": number, **row, "comp": sum(flops.values()), **flops}


def _write_parquet(rows: Iterable[dict[str, Any]], file: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingPackageError(f"{file.name}: the package pyarrow is missing; {how_to_install('hub')}") from error
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)  # phases differ between runs
    columns = {}
    for name in names:
        values = [row.get(name) for row in listed]
        if any(isinstance(value, list) for value in values):  # if all are empty, they do not show their type
            columns[name] = pyarrow.array(values, pyarrow.list_(pyarrow.string()))
        else:
            columns[name] = pyarrow.array(_that_fit(values))
    parquet.write_table(pyarrow.table(columns), file)


def _that_fit(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column; as floats if one is an integer that Parquet cannot hold, as FLOPs may be."""
    if all(not isinstance(value, int) or -_INT64 <= value < _INT64 for value in values):
        return values
    return [None if value is None else float(value) for value in values]


_CARD = """---
pretty_name: Recorded runs of alma-env
tags:
  - alma-env
  - anytime-learning
configs:
  - config_name: ticks
    data_files: ticks.parquet
    default: true
  - config_name: runs
    data_files: runs.parquet
---

# Recorded runs

{count} finished runs of alma-env, a benchmark for anytime learning at macroscale (arXiv 2106.09563), on {streams}.

* `ticks.parquet` has a row for each tick of each run: the error of the deployed predictor on the test set, its
  parameters, and the FLOPs that the learner spent since the tick before, by phase.
* `runs.parquet` has a row for each run: the cumulative error rate (`cer`), the sums of parameters and FLOPs, and the
  whole configuration as JSON. `run` joins both tables.
* `{packed}` holds the same runs for alma-env:

```sh
alma runs pull {place} --out {packed}
alma show {packed}
```
"""
