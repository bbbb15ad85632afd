"""The overhead of a sweep: to skip finished runs, and to distribute the others."""

from __future__ import annotations

import io
import json
import shutil
import time
from dataclasses import replace

import pytest
from rich.console import Console

from agents import RunSpec
from agents.catalogue.run_config import RunConfig
from agents.sweeps import run_index
from agents.sweeps.sweep import sweep

pytestmark = pytest.mark.benchmark

RUN = RunSpec("Digits-ALMA-v0", width=4, wait=1, settings={"epochs": 1, "ticks": 100}, engine="plain")


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_a_thousand_finished_runs_are_skipped(benchmark, tmp_path):
    """Measure a sweep of 1,000 copies of one run of 100 ticks, with different seeds, without the imports."""
    made = sweep([RUN], tmp_path, workers=1, console=quiet()).finished[RUN.digest()]
    config = json.loads((made / "config.json").read_text())
    specs = [replace(RUN, seed=seed) for seed in range(1000)]
    for spec in specs[1:]:
        of_seed = config | {"seed": spec.seed, "agent": config["agent"] | {"seed": spec.seed}}
        folder = run_index.folder_of(tmp_path, RunConfig.from_dict(of_seed))
        shutil.copytree(made, folder)
        (folder / "config.json").write_text(json.dumps(of_seed, indent=2, sort_keys=True) + "\n")
        run_index.write_spec(folder, spec)
    report = benchmark.pedantic(lambda: sweep(specs, tmp_path, console=quiet()), rounds=5)
    assert report.skipped == 1000
    print(f"\n1,000 finished runs skipped in {benchmark.stats.stats.median:.2f} s")


def test_the_overhead_of_two_worker_processes(benchmark, tmp_path):
    """Count the start, the imports and the end of the processes, and the time after the first one has ended."""
    specs = [replace(RUN, seed=seed, settings={"epochs": 60, "ticks": 100}) for seed in range(32)]
    started = time.time()
    report = sweep(specs, tmp_path, workers=2, console=quiet())
    wall = time.time() - started
    assert not report.failed
    start = min(file.stat().st_mtime for file in tmp_path.rglob("config.json")) - started
    own = sum(row.seconds for run in report.runs() for row in run.ledger)
    overhead, without_start = 2 * wall / own - 1, 2 * (wall - start) / own - 1
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(wall=wall, own=own, start=start, overhead=overhead)
    print(
        f"\n{len(specs)} runs in {wall:.1f} s by two processes, {own:.1f} s of the runs: overhead {overhead:.1%}; "
        f"{without_start:.1%} after the {start:.1f} s until the first run started"
    )
