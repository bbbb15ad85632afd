"""A run's folder: what is written when, and how a run that was killed finds it again.

A run's folder holds

    config.json     everything that the numbers depend on: environment, recipe, seed, versions, digest of the data
    ledger.jsonl    one row per tick, appended and flushed as the tick is answered; the last one after the last
                    checkpoint, so that a run with all of its rows has all of its files
    stages.jsonl    one row per training: what was decided, and its validation; written with each checkpoint
    checkpoint.pt   environment and agent between two ticks, replaced atomically every few seconds
    lock            held by the process that writes here; the system releases it when the process ends, however it ends

A checkpoint whose rows are not all in the ledger, because the file was deleted or edited, is not used: the run is
repeated from tick 0, so that every row of a ledger was computed or verified by a run that began at its beginning. The
last row alone is taken from the checkpoint where a kill came between the two.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from agents import parallel
from agents.anytime import AnytimeAgent, StageRecord
from alma_env import AlmaEnv, AlmaError, Ledger, Row
from alma_env.ledger import row_to_json

if sys.platform != "win32":
    import fcntl

CHECKPOINT_SECONDS = 5.0  # at most this much work, or one tick, is repeated after a kill


class RunMismatchError(ValueError):
    """A folder holds a run of another configuration, or a repeated tick came out differently."""


class FolderInUseError(AlmaError):
    """Another process writes to a run's folder."""


def clear(*folders: Path) -> None:
    """Delete what runs wrote, so that they begin anew; their lock files stay.

    Raises:
        FolderInUseError: another process writes to one of the folders; then nothing is deleted.
    """
    there = [folder for folder in folders if folder.exists()]
    for folder in there:  # one after another: a process may not hold as many locks as a sweep has runs
        with locked(folder):
            pass
    for folder in there:
        with locked(folder):
            for file in folder.iterdir():
                if file.is_dir() and not file.is_symlink():
                    shutil.rmtree(file)
                elif file.name != "lock":
                    file.unlink()


def read_config(folder: Path) -> dict[str, Any]:
    """A run's configuration.

    Raises:
        ValueError: there is none, or it cannot be read.
    """
    file = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ValueError(
            f"{file}: missing beside ledger.jsonl, so nobody knows what was run; restore it, or delete the folder"
        ) from None
    except ValueError as error:
        raise ValueError(f"{file}: not a run's configuration ({error}); restore it, or delete the folder") from error
    return config


def read_ledger(folder: Path) -> Ledger:
    """The rows that a run has written so far; a last line that a kill cut short is passed over, the file stays.

    Raises:
        ValueError: a whole line is not a row.
    """
    file = folder / "ledger.jsonl"
    try:
        return Ledger.from_json(whole_lines(file).decode())
    except ValueError as error:
        raise ValueError(f"{file}: {error}; restore the file, or delete the folder") from error


def read_stages(folder: Path) -> list[StageRecord]:
    """The trainings of a run, up to its last checkpoint.

    Raises:
        ValueError: there is no such file, or a line is not a training.
    """
    file = folder / "stages.jsonl"
    try:
        return [StageRecord(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise ValueError(
            f"{file}: missing; it is written beside the ledger by runs of this version: run again with --fresh"
        ) from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: not a run's trainings ({error}); delete the folder and run again") from error


def whole_lines(file: Path) -> bytes:
    """A file up to its last line end: what follows was cut short by a kill."""
    text = file.read_bytes()
    return text[: text.rfind(b"\n") + 1]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to the folder, where the system has such locks."""
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    with open(folder / "lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(
                f"{folder}: another process is writing this run; wait until it ends, end it, or choose another folder"
            ) from None
        except OSError as error:
            # Some network file systems have no locks; a run there is better than none.
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
        yield


def is_whole(folder: Path) -> bool:
    """Whether the folder holds a whole run; rows that a kill has left in its last checkpoint alone are written.

    Raises:
        FolderInUseError: another process writes to the folder.
        ValueError: its files cannot be read.
    """
    config = read_config(folder)
    rows = 1 + int(config["protocol"]["ticks"])
    if len(read_ledger(folder)) == rows:
        return True  # and nothing need be written
    with locked(folder):
        return len(RunFolder(folder, config).rows) == rows


class RunFolder:
    """The files of one run. Of several ranks the first alone has them, and tells the others what is in them.

    Args:
        path: the folder; made where it does not exist.
        config: the run's configuration; it must equal the one that stands in the folder.
    """

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path = path
        self._checkpointed = time.monotonic()
        self._writes = parallel.rank() == 0
        self.rows = parallel.from_first(lambda: self._open(json.loads(json.dumps(config))))

    def _open(self, config: dict[str, Any]) -> list[Row]:
        self.path.mkdir(parents=True, exist_ok=True)
        self._check_config(config)
        rows = self._read_rows()
        return self._with_the_last(rows, config)

    def _check_config(self, config: dict[str, Any]) -> None:
        file = self.path / "config.json"
        if not file.exists():
            _replace(file, json.dumps(config, indent=2, sort_keys=True).encode() + b"\n")
            return
        saved = read_config(self.path)
        for name in sorted(set(saved) | set(config)):
            if saved.get(name) != config.get(name):
                raise RunMismatchError(
                    f"{name}={saved.get(name)!r} in {file}, {config.get(name)!r} now: a run is continued only with the "
                    "configuration that began it; choose another folder, or delete this one"
                )

    def _read_rows(self) -> list[Row]:
        """The rows on disk; a last line that a kill cut short is taken off."""
        file = self.path / "ledger.jsonl"
        if not file.exists():
            return []
        whole = len(whole_lines(file))
        if whole != file.stat().st_size:
            os.truncate(file, whole)
        return read_ledger(self.path).rows

    def write(self, row: Row) -> None:
        """Append a row, flushed as the file is closed; where it stands already, check that it is the same."""
        if not self._writes:
            if row.tick == len(self.rows):
                self.rows.append(row)
            return
        if row.tick < len(self.rows):
            there = self.rows[row.tick]
            if _without_seconds([there]) != _without_seconds([row]):
                raise RunMismatchError(
                    f"tick {row.tick} in {self.path / 'ledger.jsonl'} does not repeat: {_difference(there, row)}. "
                    "Was the folder begun with another version, machine or number of threads? Begin a new folder"
                )
            return
        if row.tick != len(self.rows):
            raise RunMismatchError(
                f"tick {row.tick} after {len(self.rows)} rows in {self.path / 'ledger.jsonl'}: rows are written in "
                "order; begin a new folder"
            )
        self._append(row)
        self.rows.append(row)

    def _append(self, row: Row) -> None:
        with open(self.path / "ledger.jsonl", "a", encoding="utf-8") as file:
            file.write(row_to_json(row) + "\n")

    def end(self, env: AlmaEnv) -> None:
        """Write what `step` has left, once the last checkpoint is in its place; what stands there is compared."""
        for row in env.ledger.rows:
            self.write(row)

    def checkpoint(self, env: AlmaEnv, agent: AnytimeAgent, *, force: bool = False) -> None:
        """Save environment and agent if some seconds have passed since the last time."""
        if not self._writes or (not force and time.monotonic() - self._checkpointed < CHECKPOINT_SECONDS):
            return
        self.prepare_checkpoint(env, agent)()
        self._checkpointed = time.monotonic()

    def prepare_checkpoint(self, env: AlmaEnv, agent: AnytimeAgent) -> Callable[[], None]:
        """Save environment and agent; the result puts them, at once, in the place of the last checkpoint."""
        stages = "".join(json.dumps(dataclasses.asdict(record)) + "\n" for record in agent.history)
        temporary = self.path / "checkpoint.pt.partial"
        torch.save({"env": env.state_dict(), "agent": agent.state_dict()}, temporary)

        def put() -> None:
            _replace(self.path / "stages.jsonl", stages.encode())
            os.replace(temporary, self.path / "checkpoint.pt")

        return put

    def load_checkpoint(self) -> dict[str, Any] | None:
        """What ``checkpoint`` saved last; None if nothing, or if the ledger does not hold the rows that led there."""
        return parallel.from_first(self._load_checkpoint)

    def _load_checkpoint(self) -> dict[str, Any] | None:
        state = self._saved()
        rows = [] if state is None else _rows_of(state)
        return state if _without_seconds(rows) == _without_seconds(self.rows[: len(rows)]) else None

    def _saved(self) -> dict[str, Any] | None:
        file = self.path / "checkpoint.pt"
        if not file.exists():
            return None
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return state

    def _with_the_last(self, rows: list[Row], config: dict[str, Any]) -> list[Row]:
        """The rows, and those of the last step where a kill came between the last checkpoint and them.

        That is one row, or, of a run that broke its budget, all from there on.
        """
        protocol = config.get("protocol", {})
        ticks = protocol.get("ticks", 0)
        budget = any(protocol.get(name) is not None for name in ("flops_budget", "parameter_budget"))
        if not 0 < len(rows) <= ticks or (len(rows) < ticks and not budget):
            return rows  # the usual cases, in which no checkpoint need be read
        state = self._saved()
        known = [] if state is None else _rows_of(state)
        missing = known[len(rows) :]
        of_one_step = len(missing) == 1 or all(row.refused for row in missing)
        if len(known) != ticks + 1 or not of_one_step or _without_seconds(known[: len(rows)]) != _without_seconds(rows):
            return rows
        for row in missing:
            self._append(row)
        return known


def _rows_of(state: dict[str, Any]) -> list[Row]:
    return Ledger.from_json(state["env"]["ledger"]).rows


def _without_seconds(rows: list[Row]) -> list[Row]:
    return [dataclasses.replace(row, seconds=0.0) for row in rows]


def _difference(there: Row, row: Row) -> str:
    pairs = [
        f"{field.name} was {getattr(there, field.name)!r}, is {getattr(row, field.name)!r}"
        for field in dataclasses.fields(Row)
        if field.name != "seconds" and getattr(there, field.name) != getattr(row, field.name)
    ]
    return "; ".join(pairs)


def _replace(file: Path, content: bytes) -> None:
    temporary = file.with_name(file.name + ".partial")
    temporary.write_bytes(content)
    os.replace(temporary, file)
