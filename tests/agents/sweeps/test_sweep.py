"""A sweep computes the missing runs, reports failed runs, and finds the runs that are finished."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import agents
import agents.catalogue.spec
from agents import RunSpec
from agents.cli import main
from agents.learners.sm import SingleModel
from agents.runs import load, run_folder
from agents.sweeps import run_index
from agents.sweeps.jobs import Environments, Finished, Job, run_job
from agents.sweeps.pending import plan
from agents.sweeps.sweep import SweepReport, sweep

from .holder import holder_of
from .small_runs import DIGITS, ENDLESS, GOOD, new_console

TAKEN = replace(GOOD, wait=4)  # another run is in its folder


@dataclass(frozen=True)
class Swept:
    """A sweep with two good runs, a run that fails, and a run whose process is killed."""

    out: Path
    report: SweepReport
    printed: str


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Swept:
    out, console = tmp_path_factory.mktemp("runs"), new_console()
    specs = [GOOD, replace(GOOD, seed=1), TAKEN, ENDLESS]
    folders = {digest: pending.folder for digest, pending in plan(specs, out).pending.items()}
    folders[TAKEN.digest()].mkdir(parents=True)
    (folders[TAKEN.digest()] / "config.json").write_text(
        json.dumps({"env": "another", "protocol": {"ticks": 4}, "agent": {"id": "sm"}, "seed": 0})
    )

    def kill() -> None:
        os.kill(holder_of(folders[ENDLESS.digest()], 1), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    report = sweep([*specs, GOOD], out, workers=2, console=console)
    killer.join()
    return Swept(out, report, console.file.getvalue())


def test_good_runs_are_computed_although_others_fail(swept):
    assert swept.report.finished.keys() == {GOOD.digest(), replace(GOOD, seed=1).digest()}
    assert [run.config["seed"] for run in swept.report.runs()] == [0, 1]
    env = GOOD.make_env()
    expected = agents.run(env, GOOD.make_agent(env), 0)
    (run,) = [run for run in swept.report.runs() if run.config["seed"] == 0]
    assert [row.error for row in run.ledger] == [row.error for row in expected]


def test_a_failure_is_printed_with_its_run_and_traceback(swept):
    (failure,) = [failure for failure in swept.report.failed if failure.spec == TAKEN]
    assert "Traceback" in failure.traceback
    assert "RunMismatchError" in failure.traceback
    assert f"{TAKEN}: failed" in swept.printed
    assert failure.traceback.strip() in swept.printed
    assert "2 of 4 runs failed" in swept.printed


def test_a_killed_process_is_a_failure_of_its_run_only(swept):
    (failure,) = [failure for failure in swept.report.failed if failure.spec == ENDLESS]
    assert failure.traceback.startswith("the worker process was ended by SIGKILL")


def test_finished_runs_are_skipped_without_creating_their_agents(swept, monkeypatch):
    monkeypatch.setattr(RunSpec, "make_agent", lambda *_: pytest.fail("created again"))
    again = sweep([GOOD], swept.out, console=new_console())
    assert (again.skipped, again.failed) == (1, [])
    assert again.finished.items() <= swept.report.finished.items()


def test_another_specification_of_the_same_run_is_found_by_its_configuration(swept):
    chosen = swept.report.runs()[0].config["agent"]["engine"]  # for engine="auto"
    other = replace(GOOD, settings={"ticks": 4, "epochs": 1, "learning_rate": 1.0}, engine=chosen)
    assert other.digest() != GOOD.digest()
    planned = plan([other, replace(other, engine="auto")], swept.out)
    assert planned.finished[other.digest()] == swept.report.finished[GOOD.digest()]
    assert not planned.pending


def test_a_run_of_another_version_or_with_an_incomplete_ledger_is_not_finished(swept, tmp_path, monkeypatch):
    folder = swept.report.finished[GOOD.digest()]
    copy = tmp_path / DIGITS / folder.name
    copy.mkdir(parents=True)
    for file in ("config.json", "ledger.jsonl"):
        (copy / file).write_bytes((folder / file).read_bytes())
    run_index.write_spec(copy, GOOD)
    assert run_index.finished_folders(tmp_path, [DIGITS]) == {GOOD.digest(): copy}
    with monkeypatch.context() as patched:
        patched.setattr(agents.catalogue.spec, "versions", lambda: {"torch": "another"})
        assert GOOD.digest() not in run_index.finished_folders(tmp_path, [DIGITS])
    (copy / "ledger.jsonl").write_bytes((folder / "ledger.jsonl").read_bytes()[:-5])
    assert run_index.rows_in(copy) == 4
    assert run_index.finished_folders(tmp_path, [DIGITS]) == {}


def test_a_run_with_damaged_stages_is_not_skipped_but_fails_with_the_file(tmp_path, computed_here):
    (folder,) = sweep([GOOD], tmp_path, console=new_console()).finished.values()
    assert sweep([GOOD], tmp_path, console=new_console()).skipped == 1
    stage = json.loads((folder / "stages.jsonl").read_text().splitlines()[0])
    (folder / "stages.jsonl").write_text(json.dumps(stage | {"tick": "x"}) + "\n")
    with pytest.raises(ValueError, match="stages.jsonl: not the stages .*tick='x' of a stage: must be of type int"):
        run_folder.read_stages(folder)
    (folder / "stages.jsonl").write_text("garbage")
    (failure,) = sweep([GOOD], tmp_path, console=new_console()).failed
    assert "stages.jsonl: not the stages of a run" in failure.traceback


def test_short_memory_ends_only_the_run(tmp_path, monkeypatch, capsys):
    train = SingleModel.train

    def short(self, stage, valid, **keywords):
        if len(stage) > 200:
            raise MemoryError("engine='native': the memory is short for a mini-batch")
        return train(self, stage, valid, **keywords)

    monkeypatch.setattr(SingleModel, "train", short)
    words = ["run", DIGITS, "--width", "4", "--wait", "4", "1", "--set", "epochs=1", "ticks=12", "--out", str(tmp_path)]
    assert main(words) != 0
    assert "the run failed at tick 4: engine='native': the memory is short" in " ".join(capsys.readouterr().out.split())
    assert len(load.find(tmp_path)[0]) == 1


def test_alma_run_and_alma_sweep_find_each_others_runs(swept, capsys, computed_here):
    options = ["--width", "4", "--wait", "2", "--set", "epochs=1", "ticks=4", "--out", str(swept.out)]
    ledgers = {file: file.read_text() for file in swept.out.rglob("ledger.jsonl")}
    assert main(["run", DIGITS, "--seeds", "0", "2", *options]) == 0
    assert {file: file.read_text() for file in ledgers} == ledgers
    assert main(["sweep", "--env", DIGITS, "--seeds", "0", "1", "2", "--dry-run", *options]) == 0
    out = capsys.readouterr().out
    assert "3 runs: 3 done, 0 started, 0 to run" in out
    assert main(["sweep", "--env", DIGITS, "--seeds", "0", "1", "2", *options]) == 0
    assert "3 runs are finished, 3 of them from before" in capsys.readouterr().out


def test_a_finished_run_of_a_batch_is_read_and_an_unfinished_one_is_refused(swept, tmp_path):
    """An earlier version trained runs that differ only in the seed in one batch, and recorded its size."""
    folder = tmp_path / DIGITS / swept.report.finished[GOOD.digest()].name
    shutil.copytree(swept.report.finished[GOOD.digest()], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"batched": 8}))
    file, environments = folder / "ledger.jsonl", Environments()
    rows = file.read_text().splitlines(keepends=True)
    assert sweep([GOOD], tmp_path, console=new_console()).skipped == 1
    for remaining in (rows, rows[:-1]):  # the last row is also in the checkpoint
        file.write_text("".join(remaining))
        assert isinstance(run_job(0, Job(GOOD, 1, tmp_path), environments, print), Finished)
        assert file.read_text() == "".join(rows)
    for remaining in (rows[:1], []):  # the batch was killed after tick 0, or before it
        file.write_text("".join(remaining))
        failed = run_job(0, Job(GOOD, 1, tmp_path), environments, print)
        assert f"{folder}: an earlier version started this run in a batch" in failed.traceback
        assert "delete the folder" in failed.traceback
        assert file.read_text() == "".join(remaining)
