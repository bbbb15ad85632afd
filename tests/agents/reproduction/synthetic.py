"""Synthetic finished runs with given errors, sizes and FLOPs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from agents.catalogue.spec import RunSpec, resolve
from agents.reproduction import plans
from agents.runs.load import FinishedRun
from alma_env import Ledger, Row

from ..fake_runs import finished_run


def run_of(
    spec: RunSpec, errors: Sequence[float], *, parameters: int | Sequence[int] = 100, flops: int = 1_000
) -> FinishedRun:
    """Return a run of a spec with these errors, starting with tick 0, and one number of parameters or one per tick."""
    facts = spec.known_facts()
    config = resolve(spec, facts)
    sizes = [parameters] * len(errors) if isinstance(parameters, int) else parameters
    rows = [
        Row(tick, error, sizes[tick], 0, 1.0, {"training": flops}, flops, (), "", False, 0.1)
        for tick, error in enumerate(errors)
    ]
    protocol = {"data": facts.data, **config.protocol}
    written = {**config.to_dict(), "protocol": protocol, "versions": {"torch": "1"}}
    written["agent"]["engine"] = "plain"
    return finished_run(Path(f"run-{spec.digest()}"), written, Ledger(rows))


def constant(spec: RunSpec, error: float, **numbers: Any) -> FinishedRun:
    """Return a run with the same error at each tick."""
    ticks = 1 + spec.known_facts().ticks
    return run_of(spec, [error] * ticks, **numbers)


def grid(
    name: str, error: Callable[[RunSpec], float], scale: str = "smoke", seeds: Iterable[int] = range(3)
) -> list[FinishedRun]:
    """Return the runs of a plan, each with a constant error plus a small number that depends on its seed."""
    specs = plans.read(name).specs(scale, seeds)
    return [constant(spec, error(spec) + 0.001 * (spec.seed + len(spec.agent)) ** 2) for spec in specs]
