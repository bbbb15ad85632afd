"""A run folder: the files of a run, and how a killed run continues from them.

    config.json     the configuration: everything that the results depend on, and the computation
    ledger.jsonl    one row per tick, written after the tick. The last row is written after the last checkpoint, so
                    that a run with all rows has all files
    stages.jsonl    one row per stage: the decision, and the validation; written with each checkpoint
    checkpoint.pt   environment and agent between two ticks, replaced atomically every few seconds, or more rarely if
                    writing it is slow
    lock            locked by the process that writes; the system releases the lock when the process ends

A checkpoint is used only if the ledger holds all of its rows. Otherwise, because the ledger was deleted or edited, the
run starts again from tick 0, so that every row was computed or verified by one run from tick 0 on. Only the last row is
taken from the checkpoint, if the process was killed between writing the two.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agents.catalogue.run_config import BUDGETS, RunConfig, leaves
from agents.learners.anytime import AnytimeAgent, StageRecord
from agents.runs import checkpoint
from agents.training import distributed
from alma_env import AlmaEnv, AlmaError, Ledger, Row, files
from alma_env.errors import FileLockedError
from alma_env.ledger import row_to_json

# In configurations of earlier versions: the size of a batch of seeds, and whether members were trained side by side.
_BATCHED, _TOGETHER = "batched", "agent.together"
_LONGEST = 60  # characters of a value in a message
CHECKPOINT_SECONDS = 5.0  # the shortest pause between checkpoints; a killed run repeats at most a pause, or one tick
_CHECKPOINT_SHARE = 0.03  # of the time of a run; the pause after a slow checkpoint is longer


class RunMismatchError(ValueError):
    """A folder holds a run with another configuration, or a repeated tick differs from its row."""


class FolderInUseError(AlmaError):
    """Another process writes to a run folder."""


def clear(*folders: Path) -> None:
    """Delete the files of runs except for their lock files.

    Raises:
        FolderInUseError: another process writes to one of the folders; then nothing is deleted.
    """
    existing = [folder for folder in folders if folder.exists()]
    for folder in existing:  # one after another: a sweep can have more runs than a process can hold locks
        with locked(folder):
            pass
    for folder in existing:
        with locked(folder):
            for file in folder.iterdir():
                if file.is_dir() and not file.is_symlink():
                    shutil.rmtree(file)
                elif file.name != "lock":
                    file.unlink()


def read_config(folder: Path) -> RunConfig:
    """Read the configuration of a run; ValueError if the file is missing or cannot be read."""
    file = folder / "config.json"
    try:
        return RunConfig.from_dict(json.loads(file.read_bytes()))
    except FileNotFoundError:
        raise ValueError(f"{file}: missing, but the run folder needs it; restore it, or delete the folder") from None
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{file}: not a run configuration ({error}); restore it, or delete the folder") from error


def read_ledger(folder: Path) -> Ledger:
    """Read the rows of a run so far, without an incomplete last line; ValueError if a complete line is not a row."""
    file = folder / "ledger.jsonl"
    try:
        return Ledger.from_json(complete_lines(file).decode())
    except ValueError as error:
        raise ValueError(f"{file}: {error}; restore the file, or delete the folder") from error


def read_stages(folder: Path) -> list[StageRecord]:
    """Read the stages of a run up to its last checkpoint; ValueError for a missing file or a wrong line."""
    file = folder / "stages.jsonl"
    try:
        return [StageRecord.read(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise ValueError(f"{file}: missing; an earlier version did not write it; run again with --fresh") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: not the stages of a run ({error}); delete the folder and run again") from error


def require_recorded(folder: Path) -> None:
    """Raise ValueError if a folder has a stage without the errors that a run with ``record`` has."""
    if (folder / "stages.jsonl").exists() and any(stage.held_out_error is None for stage in read_stages(folder)):
        raise ValueError(
            f"{folder} was started without record, so it lacks the errors on the validation parts of the stream; run "
            "it again in another folder, or with --fresh"
        )


def complete_lines(file: Path) -> bytes:
    """Read a file up to its last line end; a killed process can leave an incomplete line after it."""
    text = file.read_bytes()
    return text[: text.rfind(b"\n") + 1]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder against other processes in this block, if the file system has locks."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked(folder / "lock", wait=False))
        except FileLockedError:
            raise FolderInUseError(
                f"{folder}: another process is writing this run; wait until it ends, end it, or use another folder"
            ) from None
        yield


def finished_rows(folder: Path, config: RunConfig) -> list[Row] | None:
    """Return the rows of a finished run without writing to its folder; None if the run is not finished.

    Raises:
        RunMismatchError: the folder holds a run with another configuration.
        ValueError: a file of the folder cannot be read.
    """
    if not (folder / "config.json").exists() or not (folder / "ledger.jsonl").exists():
        return None
    _require_config(folder / "config.json", config)
    rows = read_ledger(folder).rows
    if len(rows) > config.ticks + 1:
        raise too_many_rows(folder, len(rows), config.ticks)
    return rows if len(rows) == config.ticks + 1 else None


def too_many_rows(folder: Path, rows: int, ticks: int) -> ValueError:
    """Return the error of a ledger with more rows than its stream has ticks."""
    return ValueError(
        f"{folder}: the ledger has {rows} rows, and a stream of {ticks} mega-batches has {ticks + 1}; restore the "
        "file, or delete the folder"
    )


class RunFolder:
    """The files of one run. Only the first rank reads and writes them; it sends their content to the other ranks.

    Args:
        path: the folder; it is created if it does not exist.
        config: the configuration of the run; it must equal the one in the folder, if there is one.

    Raises:
        RunMismatchError: the folder holds a run with another configuration, or an unfinished run of a batch of seeds.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self._checkpointed, self._checkpoint_took = time.monotonic(), 0.0
        self._writes = distributed.rank() == 0
        self.rows = distributed.from_first(lambda: self._open(config))

    def _open(self, config: RunConfig) -> list[Row]:
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / "config.json"
        if file.exists():
            _require_config(file, config)
        else:
            if left := [name for name in ("ledger.jsonl", "checkpoint.pt") if (self.path / name).exists()]:
                raise ValueError(
                    f"{file}: missing, and {' and '.join(left)} may be of another run; restore the file, or delete the "
                    "folder"
                )
            files.replace_file(file, json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n")
        rows = self._restore_last_rows(self._read_rows(), config)
        if len(rows) > config.ticks + 1:
            raise too_many_rows(self.path, len(rows), config.ticks)
        if len(rows) <= config.ticks:
            self._require_no_batch()
        return rows

    def _require_no_batch(self) -> None:
        if _BATCHED in read_config(self.path).computation:
            raise RunMismatchError(
                f"{self.path}: an earlier version started this run in a batch of seeds (--batch-seeds) and did not "
                "finish it; a single run would not repeat its last bits; delete the folder, and run it again"
            )

    def _read_rows(self) -> list[Row]:
        """Read the rows on disk, and remove an incomplete last line."""
        file = self.path / "ledger.jsonl"
        if not file.exists():
            return []
        size = len(complete_lines(file))
        if size != file.stat().st_size:
            os.truncate(file, size)
        return read_ledger(self.path).rows

    def write(self, row: Row) -> None:
        """Append a row; if the ledger holds this tick already, check that the rows are equal."""
        file = self.path / "ledger.jsonl"
        if not self._writes:
            if row.tick == len(self.rows):
                self.rows.append(row)
            return
        if row.tick < len(self.rows):
            if difference := _difference(self.rows[row.tick], row):
                raise RunMismatchError(
                    f"tick {row.tick} in {file} does not repeat: {difference}. Another version, machine or number of "
                    "threads may have written it; use another folder"
                )
            return
        if row.tick != len(self.rows):
            raise RunMismatchError(
                f"tick {row.tick} after {len(self.rows)} rows in {file}: rows are written in order; use another folder"
            )
        self._append(row)
        self.rows.append(row)

    def _append(self, row: Row) -> None:
        path = self.path / "ledger.jsonl"
        with files.naming(path), open(path, "a", encoding="utf-8") as file:
            file.write(row_to_json(row) + "\n")

    def end(self, env: AlmaEnv) -> None:
        """Write the rows of the last tick, after the last checkpoint; compare the earlier rows."""
        for row in env.ledger.rows:
            self.write(row)

    def checkpoint(self, env: AlmaEnv, agent: AnytimeAgent, *, record: bool = False, force: bool = False) -> None:
        """Save environment and agent if the pause after the last checkpoint is over."""
        started = time.monotonic()
        pause = max(CHECKPOINT_SECONDS, self._checkpoint_took / _CHECKPOINT_SHARE)
        if not self._writes or (not force and started - self._checkpointed < pause):
            return
        stages = "".join(json.dumps(dataclasses.asdict(stage)) + "\n" for stage in agent.history)
        files.replace_file(self.path / "stages.jsonl", stages)
        state = {"env": env.state_dict(), "agent": agent.state_dict(), "record": record}
        checkpoint.write(state, self.path / "checkpoint.pt")
        self._checkpointed = time.monotonic()
        self._checkpoint_took = self._checkpointed - started

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the state in the last checkpoint; None if there is none, or if the ledger lacks one of its rows."""
        return distributed.from_first(self._load_checkpoint)

    def _load_checkpoint(self) -> dict[str, Any] | None:
        state = checkpoint.read(self.path / "checkpoint.pt")
        rows = [] if state is None else checkpoint.rows_of(state)
        return state if _without_seconds(rows) == _without_seconds(self.rows[: len(rows)]) else None

    def _restore_last_rows(self, rows: list[Row], config: RunConfig) -> list[Row]:
        """Append the rows of the last step if the process was killed between the last checkpoint and these rows.

        This is one row; of a run that exceeded its budget, it is all rows from there on.
        """
        has_budget = any(config.protocol.get(name) is not None for name in BUDGETS)
        if not 0 < len(rows) <= config.ticks or (len(rows) < config.ticks and not has_budget):
            return rows  # usually; the checkpoint is not read
        state = checkpoint.read(self.path / "checkpoint.pt")
        saved = [] if state is None else checkpoint.rows_of(state)
        missing = saved[len(rows) :]
        one_step = len(missing) == 1 or all(row.refused for row in missing)
        equal = _without_seconds(saved[: len(rows)]) == _without_seconds(rows)
        if len(saved) != config.ticks + 1 or not one_step or not equal:
            return rows
        for row in missing:
            self._append(row)
        return saved


def _require_config(file: Path, config: RunConfig) -> None:
    """Raise RunMismatchError if a file of a run folder has another configuration."""
    saved, now = (dict(leaves(one.to_dict())) for one in (read_config(file.parent), config))
    names = sorted((saved.keys() | now.keys()) - {_BATCHED}, key=lambda name: (name != _TOGETHER, name))
    names = [name for name in names if (name in saved, saved.get(name)) != (name in now, now.get(name))]
    if not names:
        return
    name = names[0]
    before, after = _differing_parts(*(repr(values[name]) if name in values else "absent" for values in (saved, now)))
    difference = f"{name}={before} in {file}, {after} now"
    if name == _TOGETHER or before == "'compiled'":
        raise RunMismatchError(
            f"{difference}: an earlier version started this run, and this version cannot continue it; use "
            "another folder, or delete this one"
        )
    others = f" (and {', '.join(names[1:])})" if len(names) > 1 else ""
    option = f" (--engine {saved[name]})" if name == "agent.engine" and name in saved else ""
    raise RunMismatchError(
        f"{difference}{others}: a run continues only with the configuration that it started with; give the same "
        f"value{option}, use another folder, or delete this one"
    )


def _differing_parts(before: str, after: str) -> tuple[str, str]:
    """Return two texts; of long ones, such as the fields of a policy, a part around the first difference."""
    if max(len(before), len(after)) <= _LONGEST:
        return before, after
    different = (at for at, pair in enumerate(zip(before, after, strict=False)) if len(set(pair)) > 1)
    start = max(next(different, min(len(before), len(after))) - _LONGEST // 4, 0)
    return _part(before, start), _part(after, start)


def _part(text: str, start: int) -> str:
    stop = start + _LONGEST
    return "…" * (start > 0) + text[start:stop] + "…" * (stop < len(text))


def _without_seconds(rows: list[Row]) -> list[Row]:
    return [dataclasses.replace(row, seconds=0.0) for row in rows]


def _difference(saved: Row, row: Row) -> str:
    pairs = [(name, getattr(saved, name), getattr(row, name)) for name in vars(row) if name != "seconds"]
    return "; ".join(f"{name} was {old!r}, is {new!r}" for name, old, new in pairs if old != new)
