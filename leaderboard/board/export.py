"""The standings as CSV, JSON or Parquet files, with one line per submission or one line per verified run."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from agents.analysis.statistics import Interval
from leaderboard.board.standings import Standing, ids_by_cer, parts_of, whole_board
from leaderboard.database.damage import each_readable
from leaderboard.database.engine import reading
from leaderboard.database.tables import METRICS, Result, ResultRun, Submission
from leaderboard.errors import NotFoundError
from leaderboard.rules import RULES_VERSION

FORMATS = ("csv", "json", "parquet")


def submissions(engine: Engine, env_id: str, rules_version: str = RULES_VERSION) -> list[dict[str, Any]]:
    """Return all lines of the standings, sorted by CER, as flat records: ``cer_mean``, ``cer_half`` and so on.

    Damaged submissions are left out; `leaderboard.board.standings` names them.
    """
    return [_record(line) for line in whole_board(engine, env_id, rules_version)]


def _record(line: Standing) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, value in asdict(line).items():
        if name in METRICS:
            interval: Interval = getattr(line, name)
            record |= {f"{name}_mean": interval.mean, f"{name}_half": interval.half}
        elif name == "authors":
            record[name] = "; ".join(value)
        elif name == "verified_at":
            record[name] = value.isoformat()
        else:
            record[name] = value
    return record


def runs(engine: Engine, env_id: str, rules_version: str = RULES_VERSION) -> list[dict[str, Any]]:
    """Return the verified runs of all submissions of the standings as records, without those of damaged submissions."""
    columns: dict[str, Any] = {
        "submission_id": Result.submission_id,
        "name": Submission.name,
        **{
            name: getattr(Result, name)
            for name in ("env_id", "rules_version", "method", "waiting_time", "budget_class")
        },
        "seed": ResultRun.seed,
        **{metric: getattr(ResultRun, metric) for metric in METRICS},
    }
    with reading(engine) as session:

        def read(ids: Sequence[int]) -> list[dict[str, Any]]:
            rows = session.execute(
                select(*columns.values())
                .select_from(Result)
                .join(Submission, Submission.id == Result.submission_id)
                .join(ResultRun, ResultRun.result_id == Result.id)
                .where(Result.submission_id.in_(ids))
                .order_by(Result.cer_mean, Result.submission_id, ResultRun.seed)
            )
            found = [dict(zip(columns, row, strict=True)) for row in rows]
            return [_checked(record) for record in found]

        parts = parts_of(ids_by_cer(session, env_id, rules_version))
        return [record for part in parts for record in each_readable(part, read)[0]]


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a run, or raise ValueError if it has what this program never writes."""
    whole = all(isinstance(record[name], str) for name in ("name", "env_id", "rules_version", "method"))
    whole &= all(isinstance(record[name], int) for name in ("submission_id", "budget_class", "seed"))
    whole &= record["waiting_time"] is None or isinstance(record["waiting_time"], int)
    whole &= all(isinstance(record[metric], int | float) and math.isfinite(record[metric]) for metric in METRICS)
    if not whole:
        raise ValueError(f"submission {record['submission_id']}: damaged")
    return record


def format_of(file: Path, format: str | None = None) -> str:
    """Return a format, by default that of the file's suffix.

    Raises:
        ValueError: the format is unknown.
    """
    format = format or file.suffix.removeprefix(".")
    if format not in FORMATS:
        raise ValueError(f"format={format!r} of {file}: must be one of {', '.join(FORMATS)}; use a .csv file")
    return format


def write(records: Sequence[dict[str, Any]], file: Path, format: str | None = None) -> None:
    """Write records with equal keys into a file, in the format csv, json or parquet (default: the file's suffix).

    Raises:
        ValueError: the format is unknown.
        NotFoundError: there are no records.
    """
    format = format_of(file, format)
    if not records:
        raise NotFoundError(f"{file}: this board has no published result; choose another board")
    if format == "json":
        file.write_text(json.dumps(records, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    elif format == "csv":
        with open(file, "w", encoding="utf-8", newline="") as opened:
            writer = csv.DictWriter(opened, list(records[0]))
            writer.writeheader()
            writer.writerows({name: _safe(value) for name, value in record.items()} for record in records)
    else:
        _write_parquet(records, file)


def _safe(value: Any) -> Any:
    """Return a value that no spreadsheet evaluates as a formula: an apostrophe marks a text as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _write_parquet(records: Sequence[dict[str, Any]], file: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    types = {"waiting_time": pyarrow.int64(), **{f"{metric}_half": pyarrow.float64() for metric in METRICS}}
    columns = {}
    for name in records[0]:
        values = [record[name] for record in records]
        # Parquet's integers have 64 bits. A column with a larger one, such as the FLOPs of a long run, becomes floats.
        if any(isinstance(value, int) and value >= 2**63 for value in values):
            values = list(map(float, values))
        columns[name] = pyarrow.array(values, types.get(name))
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
