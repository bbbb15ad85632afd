"""Finished runs with invented results, for tests of code that reads, draws and compares finished runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agents.learners.anytime import StageRecord
from agents.runs.ledger_columns import LedgerColumns
from agents.runs.load import FinishedRun
from alma_env import Ledger, Row
from alma_env.ledger import row_to_json


def finished_run(
    folder: Path, config: dict[str, Any], ledger: Ledger, stages: Sequence[StageRecord] = ()
) -> FinishedRun:
    """Return the finished run with this ledger and these stages."""
    return FinishedRun(folder, config, LedgerColumns.from_ledger(ledger), tuple(stages))


def fake_run(
    agent: str = "sm",
    width: int = 4,
    wait: int | None = 5,
    seed: int = 0,
    *,
    ticks: int = 20,
    replay: bool = False,
    policy: dict[str, Any] | None = None,
    env: str = "Digits-ALMA-v0",
    text: bool = False,
    folder: str = "made",
    **settings: Any,
) -> FinishedRun:
    """Return a run whose error depends on its stages, width and seed in a known way."""
    growth = "every" if agent in ("gens", "gmoe") else "never"
    schedule = policy or {"wait": wait, "replay": replay, "growth": growth}
    protocol: dict[str, Any] = {"data": "Text" if text else "Digits", "ticks": ticks}
    protocol["vocabulary" if text else "classes"] = 300 if text else 10
    config = {
        "env": env,
        "protocol": protocol,
        "agent": {"id": agent, "width": width, "policy": schedule, "seed": seed, "engine": "plain", **settings},
        "seed": seed,
        "threads": 1,
        "versions": {"torch": "2.13.0"},
    }
    every = wait or 3
    rows, stages = [], []
    error, parameters = (300.0 if text else 0.9), 100 * width * settings.get("members", 1)
    for tick in range(ticks + 1):
        trains = tick > 0 and tick % every == 0
        if trains:
            floor = 12.0 if text else 0.1
            error = floor + (error - floor) / (1.2 + 0.1 * every) + 0.01 * ((7 * seed + 3 * width + tick) % 5) / width
            parameters += 50 * width * (growth == "every" and len(stages) > 0)
            seen = tick if replay else every
            stages.append(StageRecord(tick, every, 80 * seen, replay, 0, round(error, 9), round(error, 9)))
        flops = {"training": 600 * parameters * stages[-1].examples, "validation": parameters} if trains else {}
        digest = f"{agent}{width}{seed}{len(stages)}"
        rows.append(
            Row(tick, error, parameters, 2, 2.0 * parameters, flops, sum(flops.values()), (), digest, False, 0.01)
        )
    return finished_run(Path(folder) / f"{agent}-{width}-{wait}-{seed}", config, Ledger(rows), stages)


def measured_run(
    agent: str,
    width: int,
    wait: int,
    seed: int,
    error: float,
    *,
    training: int = 0,
    validation: int = 0,
    growth: int = 0,
    replay: bool = False,
) -> FinishedRun:
    """Return a run on 20 ticks with this error at every tick and these FLOPs at its first training.

    A third of the paper's count of training is not executed.
    """
    made = fake_run(agent, width, wait, seed, replay=replay)
    flops = {"training": training * 2 // 3, "validation": validation, "growth": growth}
    rows = [
        replace(row, error=error, flops=flops, paper_flops=training + growth)
        if row.tick == wait
        else replace(row, error=error, flops={}, paper_flops=0)
        for row in made.ledger
    ]
    return finished_run(made.folder, made.config, Ledger(rows), made.stages)


def write(run: FinishedRun, folder: Path) -> Path:
    """Write a run folder without a checkpoint."""
    path = folder / run.folder.name
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(run.config))
    (path / "ledger.jsonl").write_text("".join(row_to_json(row) + "\n" for row in run.ledger))
    (path / "stages.jsonl").write_text("".join(json.dumps(asdict(stage)) + "\n" for stage in run.stages))
    return path
