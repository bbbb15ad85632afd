"""The finished runs below folders and in packed files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agents import packed, run_folder
from agents.anytime import StageRecord
from agents.columns import Columns
from alma_env import Ledger, Score


@dataclass(frozen=True)
class FinishedRun:
    """A run that came to the end of its stream.

    Attributes:
        folder: where it lies; of a packed run the file and its line.
        config: everything that its numbers depend on.
        columns: its ledger, by columns.
        trainings: its trainings; None: they are read from the folder when they are asked for.
    """

    folder: Path
    config: dict[str, Any]
    columns: Columns
    trainings: tuple[StageRecord, ...] | None = None

    @classmethod
    def of(
        cls, folder: Path, config: dict[str, Any], ledger: Ledger, stages: Sequence[StageRecord] = ()
    ) -> FinishedRun:
        """Of a ledger's rows."""
        return cls(folder, config, Columns.of(ledger), tuple(stages))

    @cached_property
    def ledger(self) -> Ledger:
        """One row per tick."""
        return self.columns.ledger()

    @cached_property
    def score(self) -> Score:
        """CER, Mem, Comp and the rest."""
        return self.columns.score()

    @cached_property
    def stages(self) -> tuple[StageRecord, ...]:
        """Its trainings; () of runs whose version did not write them."""
        if self.trainings is not None:
            return self.trainings
        return tuple(run_folder.read_stages(self.folder)) if (self.folder / "stages.jsonl").exists() else ()

    @property
    def seed(self) -> int:
        """Of stream and agent."""
        seed: int = self.config["seed"]
        return seed


def read(folder: Path) -> FinishedRun:
    """The run in a folder, whether it has ended or not.

    Raises:
        ValueError: it cannot be read.
    """
    config, file = run_folder.read_config(folder), folder / "ledger.jsonl"
    try:
        return FinishedRun(folder, config, Columns.from_json(run_folder.whole_lines(file)))
    except ValueError as error:
        raise ValueError(f"{file}: {error}; restore the file, or delete the folder") from error


def find(*paths: str | Path) -> tuple[list[FinishedRun], list[str]]:
    """The finished runs in or below folders, and in packed files, each configuration once; and what was left out.

    Raises:
        ValueError: there is no run at all in one of them, or one cannot be read.
    """
    found: dict[str, FinishedRun] = {}  # by their whole configuration
    left_out = []
    for path in paths:
        for run in _runs_of(Path(path)):
            key = json.dumps(run.config, sort_keys=True)
            missing = _protocol(run)["ticks"] + 1 - len(run.columns)
            if missing:
                left_out.append(f"{run.folder}: unfinished, {missing} ticks to go; left out")
            elif key in found:
                left_out.append(f"{run.folder}: the same run as {found[key].folder}; counted once")
            else:
                found[key] = run
    return list(found.values()), left_out


def _runs_of(path: Path) -> Iterator[FinishedRun]:
    if path.name.endswith(packed.SUFFIX):
        for number, (config, columns, stages) in enumerate(packed.read(path), start=1):
            yield FinishedRun(Path(f"{path}:{number}"), config, columns, stages)
        return
    files = sorted(path.rglob("ledger.jsonl"))
    if not files:
        raise ValueError(
            f"{path}: no ledger.jsonl in or below it; give a folder that `alma run` wrote, or a file *{packed.SUFFIX} "
            "that `alma pack` wrote"
        )
    for file in files:
        yield read(file.parent)


def _protocol(run: FinishedRun) -> Mapping[str, Any]:
    try:
        protocol: Mapping[str, Any] = run.config["protocol"]
        return protocol
    except (KeyError, TypeError):
        raise ValueError(
            f"{run.folder}: its configuration has no protocol, so nobody knows how long its stream is; restore "
            "config.json, or delete the folder"
        ) from None
