"""Finished runs, read from folders and packed files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agents.catalogue.run_config import RunConfig
from agents.learners.anytime import StageRecord
from agents.runs import archive, run_folder
from agents.runs.ledger_columns import LedgerColumns
from alma_env import Ledger, Score


@dataclass(frozen=True)
class FinishedRun:
    """A run that reached the end of its stream.

    Attributes:
        folder: the run folder; of a packed run, the packed file and the number of its line.
        config: the configuration as plain data, see `run_config`.
        columns: the ledger, by columns.
        packed_stages: the stages of a packed run; None: `stages` reads them from the folder.
    """

    folder: Path
    config: dict[str, Any]
    columns: LedgerColumns
    packed_stages: Sequence[StageRecord] | None = None

    @cached_property
    def ledger(self) -> Ledger:
        """One row per tick."""
        return self.columns.to_ledger()

    @cached_property
    def score(self) -> Score:
        """CER, Mem, Comp and the other totals."""
        return self.columns.score()

    @cached_property
    def stages(self) -> tuple[StageRecord, ...]:
        """The stages; empty if the run was recorded by a version that did not write them."""
        if self.packed_stages is not None:
            return tuple(self.packed_stages)
        return tuple(run_folder.read_stages(self.folder)) if (self.folder / "stages.jsonl").exists() else ()

    @cached_property
    def run_config(self) -> RunConfig:
        """The configuration as a typed value; ValueError if it lacks an environment, protocol, agent or seed."""
        try:
            return RunConfig.from_dict(self.config)
        except ValueError as error:
            raise ValueError(f"{self.folder}: {error}; restore config.json, or delete the folder") from None

    @property
    def seed(self) -> int:
        """The seed of the stream and the agent."""
        return self.run_config.seed


def pack(runs: Iterable[FinishedRun], file: Path) -> None:
    """Write runs into a packed file, see `agents.runs.archive`."""
    archive.write(((run.config, run.columns, run.stages) for run in runs), file)


def read(folder: Path) -> FinishedRun:
    """Read the run in a folder, finished or not; ValueError if a file cannot be read."""
    config, file = run_folder.read_config(folder), folder / "ledger.jsonl"
    try:
        return FinishedRun(folder, config.to_dict(), LedgerColumns.from_json(run_folder.complete_lines(file)))
    except ValueError as error:
        raise ValueError(f"{file}: {error}; restore the file, or delete the folder") from error


def divergence(folder: Path) -> str | None:
    """Return a sentence on the stages of a run whose training diverged; None if no training did, or none is known."""
    if not (folder / "stages.jsonl").exists():
        return None
    ticks = [stage.tick for stage in run_folder.read_stages(folder) if not math.isfinite(stage.validation_loss)]
    if not ticks:
        return None
    shown = ", ".join(map(str, ticks[:5])) + ", …" * (len(ticks) > 5)
    return (
        f"the training diverged at {len(ticks)} tick{'s' * (len(ticks) > 1)} ({shown}): the validation loss is not "
        f"finite; {run_folder.read_config(folder).agent.divergence_remedy}"
    )


def find(*paths: str | Path, strict: bool = False) -> tuple[list[FinishedRun], list[str]]:
    """Read the finished runs in or below folders and in packed files, one for each configuration.

    Args:
        paths: folders of runs, or packed files.
        strict: raise the error of a run that cannot be read, instead of leaving the run out.

    Returns:
        The runs, and a message for each run that was left out: unfinished, read before, or impossible to read.

    Raises:
        ValueError: a path holds no run, or no run can be read.
    """
    found: dict[str, FinishedRun] = {}  # by the whole configuration
    left_out = []
    errors = []
    for path in paths:
        for run in _runs_of(Path(path)):
            if isinstance(run, ValueError):
                errors.append(run)
                continue
            key = json.dumps(run.config, sort_keys=True)
            missing = run.run_config.ticks + 1 - len(run.columns)
            if missing < 0:
                errors.append(run_folder.too_many_rows(run.folder, len(run.columns), run.run_config.ticks))
            elif missing:
                left_out.append(f"{run.folder}: unfinished, {missing} ticks to go; left out")
            elif key in found:
                left_out.append(f"{run.folder}: the same run as {found[key].folder}; counted once")
            else:
                found[key] = run
    if errors and (strict or not (found or left_out)):
        raise errors[0]
    return list(found.values()), left_out + [f"{error}; left out" for error in errors]


def _runs_of(path: Path) -> Iterator[FinishedRun | ValueError]:
    """Yield the runs of a folder or packed file, and the error in the place of a run that cannot be read."""
    if path.name.endswith(archive.SUFFIX):
        for number, run in enumerate(archive.read(path), start=1):
            yield run if isinstance(run, ValueError) else _checked(FinishedRun(Path(f"{path}:{number}"), *run))
        return
    files, packed = sorted(path.rglob("ledger.jsonl")), sorted(path.rglob(f"*{archive.SUFFIX}"))
    if not files and not packed:
        what = "no ledger.jsonl in or below it" if path.exists() else "not found"
        raise ValueError(
            f"{path}: {what}; give a folder written by `alma run`, or a file *{archive.SUFFIX} written by `alma pack`"
        )
    yield from (_read_or_error(file.parent) for file in files)
    for file in packed:
        yield from _runs_of(file)


def _read_or_error(folder: Path) -> FinishedRun | ValueError:
    try:
        return _checked(read(folder))
    except ValueError as error:
        return error
    except OSError as error:
        return ValueError(f"{folder}: cannot be read ({error}); give a folder whose files you may read")


def _checked(run: FinishedRun) -> FinishedRun | ValueError:
    """Return the run, or the error that its configuration or its stages would raise when a command uses them."""
    try:
        _ = run.run_config, run.stages
    except ValueError as error:
        return error
    return run
