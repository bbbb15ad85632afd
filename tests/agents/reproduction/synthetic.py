"""Finished runs that nobody ran: their errors, sizes and FLOPs are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.experiments.spec import RunSpec
from agents.finished import FinishedRun
from agents.reproduction.expected import expected
from alma_env import Ledger, Row


def run_of(
    spec: RunSpec, errors: Sequence[float], *, parameters: int = 100, flops: int = 1_000, **config: Any
) -> FinishedRun:
    """A run of a spec with these errors, tick 0 first."""
    known = expected(spec)
    stage = {name: getattr(known.stage, name) for name in known.stage.__dataclass_fields__}
    rows = [
        Row(tick, error, parameters, 0, 1.0, {"training": flops}, flops, (), "", False, 0.1)
        for tick, error in enumerate(errors)
    ]
    written = {
        "env": spec.env,
        "protocol": {**known.protocol, "data": known.data} | ({"vocabulary": 1_000} if known.data == "Text" else {}),
        "agent": {**known.agent, "stage": stage, "backbone": known.backbone, "engine": "plain", "seed": spec.seed},
        "seed": spec.seed,
        "versions": {"torch": "1"},
    }
    return FinishedRun.of(Path(f"run-{spec.digest()}"), written | config, Ledger(rows))


def constant(spec: RunSpec, error: float, **numbers: Any) -> FinishedRun:
    """A run with the same error at each tick."""
    ticks = 1 + expected(spec).ticks
    return run_of(spec, [error] * ticks, **numbers)
