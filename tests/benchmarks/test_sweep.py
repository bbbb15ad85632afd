"""What a sweep costs beside its runs: skipping those that are finished, and handing out those that are not."""

from __future__ import annotations

import io
import json
import shutil
import time
from dataclasses import replace

import pytest
from rich.console import Console

from agents import RunSpec
from agents.experiments import folders
from agents.experiments.sweep import sweep

pytestmark = pytest.mark.benchmark

RUN = RunSpec("Digits-ALMA-v0", width=4, wait=1, settings={"epochs": 1, "ticks": 100}, engine="plain")


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_a_thousand_finished_runs_are_skipped(benchmark, tmp_path):
    """Copies of one run of 100 ticks under 1,000 seeds; in a process that has imported the package."""
    made = sweep([RUN], tmp_path, workers=1, console=quiet()).finished[RUN.digest()]
    config = json.loads((made / "config.json").read_text())
    specs = [replace(RUN, seed=seed) for seed in range(1000)]
    for spec in specs[1:]:
        of_seed = config | {"seed": spec.seed, "agent": config["agent"] | {"seed": spec.seed}}
        folder = folders.folder_of(tmp_path, of_seed)
        shutil.copytree(made, folder)
        (folder / "config.json").write_text(json.dumps(of_seed, indent=2, sort_keys=True) + "\n")
        folders.remember(folder, spec)
    report = benchmark.pedantic(lambda: sweep(specs, tmp_path, console=quiet()), rounds=5)
    assert report.skipped == 1000
    print(f"\n1,000 finished runs skipped in {benchmark.stats.stats.median:.2f} s")


def test_overhead_beside_the_runs_own_time(benchmark, tmp_path):
    """Two processes; their start, imports and last moments count, and that one may end before the other."""
    specs = [replace(RUN, seed=seed, settings={"epochs": 60, "ticks": 100}) for seed in range(32)]
    begun = time.time()
    report = sweep(specs, tmp_path, workers=2, console=quiet())
    wall = time.time() - begun
    assert not report.failed
    start = min(file.stat().st_mtime for file in tmp_path.rglob("config.json")) - begun
    own = sum(row.seconds for run in report.runs() for row in run.ledger)
    overhead, without_start = 2 * wall / own - 1, 2 * (wall - start) / own - 1
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(wall=wall, own=own, start=start, overhead=overhead)
    print(
        f"\n{len(specs)} runs in {wall:.1f} s by two processes, {own:.1f} s of their own: overhead {overhead:.1%}; "
        f"{without_start:.1%} after the {start:.1f} s until the first began"
    )
