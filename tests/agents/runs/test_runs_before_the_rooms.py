"""Runs that were recorded before the modules moved into rooms can be read, shown, continued and fitted.

``before_the_rooms.tar.xz`` was written by commit 17d100f, the last one with the old tree:

    before/        a sweep of GRID that was killed: 6 runs are finished, 3 were stopped at tick 7, 1 is missing
    whole/         the same sweep, finished
    named-before/  a run whose policy is the function ``agents.bidder.wait``, stopped at tick 7
    named-whole/   the same run, finished
    whole.jsonl.xz the finished sweep, packed by ``alma pack``
    recordings.npz six recorded runs, written by ``alma surrogate fit``
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import platform
import shutil
import tarfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from rich.console import Console

import agents
import alma_env
from agents.cli import main
from alma_env import Ledger, Row

DIGITS = "Digits-ALMA-v0"
SHORT = {"epochs": 2, "ticks": 10}
GRID = {
    "env": DIGITS,
    "threads": 1,
    "grid": [
        {"agent": ["sm", "ens"], "width": 4, "wait": [5, 10], "seeds": [0, 1], "set": SHORT},
        {
            "agent": "gens",
            "width": 4,
            "policy": ["doubling", "random:probability=0.3,seed=1"],
            "seeds": [0],
            "set": SHORT,
        },
    ],
}
VERSIONS = {
    "alma-env": alma_env.__version__,
    "numpy": np.__version__,
    "python": platform.python_version(),
    "torch": str(torch.__version__),
}
MACHINE = {"processor": platform.machine(), "simd": torch.backends.cpu.get_cpu_capability()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files as the old commit wrote them."""
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(Path(__file__).with_name("before_the_rooms.tar.xz")) as archive:
        # Python 3.11.2, that of Debian 12, has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)
    return folder


@pytest.fixture
def adopted(recorded: Path, tmp_path: Path) -> Path:
    """The same files, as the old commit would have written them on this machine."""
    for name in ("before", "named-before"):
        shutil.copytree(recorded / name, tmp_path / name)
    for folder in (tmp_path / "before" / DIGITS).iterdir():
        adopt(folder, threads=1)
    adopt(tmp_path / "named-before", threads=torch.get_num_threads())
    return tmp_path


def adopt(folder: Path, *, threads: int) -> None:
    """Write this machine into a run's record, and rename the folder accordingly.

    A checkpoint is continued here with other last bits, if the machine is another one: rows that the old commit
    wrote after the checkpoint are dropped.
    """
    config = json.loads((folder / "config.json").read_text())
    here = config | {"versions": VERSIONS, "machine": MACHINE, "threads": threads}
    if here == config:
        return
    (folder / "config.json").write_text(json.dumps(here, indent=2, sort_keys=True) + "\n")
    if (folder / "checkpoint.pt").exists():
        state = torch.load(folder / "checkpoint.pt", weights_only=True)
        rows = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
        (folder / "ledger.jsonl").write_text("".join(rows[: state["agent"]["tick"] + 1]))
    if (folder / "spec.json").exists():
        spec = json.loads((folder / "spec.json").read_text())
        spec["digest"] = digest_of_spec(spec, VERSIONS)
        (folder / "spec.json").write_text(json.dumps(spec, indent=2, sort_keys=True) + "\n")
        folder.rename(folder.with_name(f"{folder.name[:-8]}{digest_of(here)[:8]}"))


def digest_of(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def digest_of_spec(spec: dict[str, Any], versions: dict[str, str]) -> str:
    return digest_of({key: value for key, value in spec.items() if key != "digest"} | {"versions": versions})


def ledgers_below(folder: Path) -> dict[str, Ledger]:
    """Complete ledgers by the readable part of the folders' names."""
    read = {path: Ledger.from_json(path.read_text()) for path in sorted(folder.glob("*/ledger.jsonl"))}
    return {path.parent.name[:-8]: ledger for path, ledger in read.items() if len(ledger) == 11}


def require_equal(ledger: Ledger, expected: Ledger, config: dict[str, Any]) -> None:
    """Compare rows: all but the seconds on the machine of the record, all but the last bits on another one."""
    same_machine = (config["versions"], config["machine"]) == (VERSIONS, MACHINE)
    assert len(ledger) == len(expected)
    for row, old in zip(ledger, expected, strict=True):
        if same_machine:
            assert exact(row) == exact(old)
        else:
            assert row.error == pytest.approx(old.error, abs=0.03)
            assert (row.tick, row.flops, row.paper_flops, row.parameters, row.buffers, row.inference_flops) == (
                old.tick,
                old.flops,
                old.paper_flops,
                old.parameters,
                old.buffers,
                old.inference_flops,
            )


def exact(row: Row) -> dict[str, Any]:
    return {name: value for name, value in vars(row).items() if name != "seconds"}


def test_the_names_of_folders_and_specs_hold_the_recorded_digests(recorded: Path) -> None:
    folders = list((recorded / "whole" / DIGITS).iterdir())
    assert len(folders) == 10
    for folder in folders:
        config, spec = (json.loads((folder / name).read_text()) for name in ("config.json", "spec.json"))
        assert folder.name[-8:] == digest_of(config)[:8]
        assert spec["digest"] == digest_of_spec(spec, config["versions"])


@pytest.mark.usefixtures("computed_here")
def test_a_sweep_that_was_stopped_before_is_finished_to_rounding(adopted: Path, recorded: Path) -> None:
    out = adopted / "before"
    folders = set((out / DIGITS).iterdir())
    finished = [file for file in out.rglob("ledger.jsonl") if file.read_text().count("\n") == 11]
    times = {file: file.stat().st_mtime_ns for file in finished}
    assert len(finished) == 6
    report = agents.sweep(GRID, out, workers=1, console=Console(file=io.StringIO()))
    assert not report.failed
    assert report.skipped == 6
    assert {file: file.stat().st_mtime_ns for file in finished} == times
    # The engine `auto` is another one now, so the last bits differ: stopped runs start again in other folders.
    assert len(set((out / DIGITS).iterdir()) - folders) == 4
    config = json.loads(next((recorded / "whole" / DIGITS).glob("*/config.json")).read_text())
    ledgers, expected = ledgers_below(out / DIGITS), ledgers_below(recorded / "whole" / DIGITS)
    assert ledgers.keys() == expected.keys()
    for name in expected:
        require_equal(ledgers[name], expected[name], config | {"machine": "another engine"})


def test_a_run_whose_policy_has_its_old_name_is_continued(adopted: Path, recorded: Path) -> None:
    bidder = importlib.import_module("agents.bidder")
    env = alma_env.make(DIGITS, ticks=10)
    agent = agents.make("sm", env, width=4, epochs=2, policy=bidder.wait, engine="plain")
    ticks: list[int] = []
    agents.run(env, agent, 0, adopted / "named-before", on_tick=lambda row: ticks.append(row.tick))
    assert ticks == list(range(11))
    config = json.loads((recorded / "named-whole" / "config.json").read_text())
    assert config["agent"]["policy"] == "agents.bidder.wait"
    ledger, expected = (
        Ledger.from_json((folder / "ledger.jsonl").read_text())
        for folder in (adopted / "named-before", recorded / "named-whole")
    )
    require_equal(ledger, expected, config)


def test_finished_runs_are_read_from_folders_and_from_a_packed_file(recorded: Path) -> None:
    columns = ["env", "agent", "width", "when", "seed", "cer", "mem", "comp", "trainings"]
    frames = [agents.load_runs(recorded / name)[columns] for name in ("whole", "whole.jsonl.xz")]
    order = ["agent", "when", "seed"]
    folders, packed = (frame.sort_values(order).reset_index(drop=True) for frame in frames)
    assert len(folders) == 10
    assert folders.to_dict() == packed.to_dict()
    expected = ledgers_below(recorded / "whole" / DIGITS).values()
    assert sorted(folders["cer"]) == sorted(ledger.score().cer for ledger in expected)


def test_finished_runs_are_shown(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copytree(recorded / "whole", tmp_path / "whole")
    assert main(["show", str(tmp_path / "whole")]) == 0
    shown = capsys.readouterr().out
    assert all(label in shown for label in ("sm 4, wait 5", "ens 4, wait 10", "gens 4, doubling"))


def test_a_surrogate_is_fitted_to_old_recordings(recorded: Path) -> None:
    env = gymnasium.make("alma_env:Digits-ALMA-Wait-Surrogate-v0", recorded=str(recorded / "recordings.npz"), width=4)
    env.reset(seed=3)
    rewards = [env.step(int(tick % 3 == 2))[1] for tick in range(10)]
    assert rewards == pytest.approx(
        [-0.8929471032745592] * 2 + [-0.8929957244712994] * 3 + [-0.8928777431312105] * 3 + [-0.8929255809329895] * 2,
        rel=1e-9,
    )


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("alma_env.meter", "Meter"),
        ("alma_env.flops", "register_cost register_free unregister"),
        ("alma_env.arena", "env parallel_env"),
        ("agents.bidder", "wait"),
        ("agents.finished", "FinishedRun find"),
        ("agents.figures", "draw save"),
        ("agents.experiments", ""),
        ("agents.experiments.grid", "expand read"),
        ("agents.experiments.sweep", "sweep SweepReport"),
        ("agents.waiting", ""),
        ("agents.waiting.environment", "WaitEnv"),
        ("agents.waiting.sb3", "SurrogateVecEnv"),
        ("agents.waiting.shipped", "curves_for"),
        ("agents.waiting.surrogate", "SurrogateEnv SurrogateVectorEnv"),
        ("leaderboard.client", "Client"),
        ("leaderboard.details", ""),
        ("leaderboard.review", "decide"),
        ("leaderboard.sandbox", "Limits"),
        ("leaderboard.standings", "standings"),
        ("leaderboard.verification", "Verify"),
    ],
)
def test_modules_that_documents_named_can_be_imported_by_their_old_names(module: str, names: str) -> None:
    found = importlib.import_module(module)
    assert all(hasattr(found, name) for name in names.split())
