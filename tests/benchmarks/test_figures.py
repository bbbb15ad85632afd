"""The time of a figure of 1,000 runs, including reading them from run folders or from one packed file.

OMP_NUM_THREADS=1 pytest -m benchmark -s tests/benchmarks/test_figures.py
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from pathlib import Path

import numpy as np
import pytest

from agents.cli import main
from agents.learners.anytime import StageRecord
from agents.runs.ledger_columns import LedgerColumns
from agents.runs.load import FinishedRun, find, pack
from alma_env import Ledger, Row
from alma_env.ledger import row_to_json

pytestmark = pytest.mark.benchmark

TICKS = 500  # the length of MNIST-ALMA-v0
GRID = (("sm", "ens", "umix", "gens", "gmoe"), (4, 8, 16, 32, 64), (1, 10, 25, 50, 500), range(8))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 1,000 runs as run folders and as one packed file."""
    out = tmp_path_factory.mktemp("runs")
    for number, (agent, width, wait, seed) in enumerate(itertools.product(*GRID)):
        made = run(agent, width, wait, seed)
        path = out / "folders" / str(number)
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(made.config))
        (path / "ledger.jsonl").write_text("".join(row_to_json(row) + "\n" for row in made.ledger))
        lines = [json.dumps(dataclasses.asdict(stage)) + "\n" for stage in made.stages]
        (path / "stages.jsonl").write_text("".join(lines))
    pack(find(out / "folders")[0], out / "runs.jsonl.xz")
    return out


def run(agent: str, width: int, wait: int, seed: int) -> FinishedRun:
    generator = np.random.default_rng([seed, width, wait])
    policy = {"wait": wait, "replay": False, "growth": "never"}
    config = {
        "env": "MNIST-ALMA-v0",
        "protocol": {"data": "MNIST", "ticks": TICKS, "classes": 10},
        "agent": {"id": agent, "width": width, "policy": policy, "seed": seed, "engine": "plain"},
        "seed": seed,
    }
    rows, stages, error, digest = [], [], 0.9, generator.bytes(16).hex()
    for tick in range(TICKS + 1):
        flops: dict[str, int] = {}
        if tick and tick % wait == 0:
            error = round(0.9 / (1 + tick) ** 0.5 + float(generator.uniform(0, 0.01)), 4)
            digest = generator.bytes(16).hex()
            flops = {"training": 69_552_000 * width * wait, "validation": 3_830_400 * width * wait}
            stages.append(StageRecord(tick, wait, 108 * wait, False, 0, float(generator.uniform()), error))
        seconds = float(generator.exponential(0.01))
        rows.append(
            Row(tick, error, 800 * width, 2, 1600.0 * width, flops, sum(flops.values()), (), digest, False, seconds)
        )
    return FinishedRun(Path(), config, LedgerColumns.from_ledger(Ledger(rows)), stages)


@pytest.mark.parametrize("kind", ["tradeoff", "errors"])
@pytest.mark.parametrize("where", ["folders", "runs.jsonl.xz"])
def test_a_figure_of_1000_runs(benchmark, runs, tmp_path, kind, where):
    words = ["plot", kind, str(runs / where), "--out", str(tmp_path), "--format", "png", "csv"]
    start, busy = time.perf_counter(), time.process_time()
    assert benchmark.pedantic(main, args=(words,), rounds=1) == 0
    print(f"\n{kind} of {where}: {time.perf_counter() - start:.1f} s, processor {time.process_time() - busy:.1f} s")


def test_a_packed_file_of_1000_runs(benchmark, runs, tmp_path):
    folders = sum(file.stat().st_size for file in (runs / "folders").rglob("*.json*"))
    size = (runs / "runs.jsonl.xz").stat().st_size
    words = ["pack", str(runs / "folders"), "--out", str(tmp_path / "again.jsonl.xz")]
    assert benchmark.pedantic(main, args=(words,), rounds=1) == 0
    print(f"\n{folders / 2**20:.0f} MiB of files packed into {size / 2**20:.1f} MiB in {benchmark.stats['mean']:.0f} s")
