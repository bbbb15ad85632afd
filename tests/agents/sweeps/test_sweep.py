"""A sweep computes the missing runs, reports failed runs, and continues after it was stopped."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

import agents
import agents.catalogue.spec
import agents.sweeps
import agents.sweeps.grid
from agents import RunSpec
from agents.cli import main
from agents.runs import run_folder
from agents.sweeps import jobs, local, run_index
from agents.sweeps.jobs import Environments, Failed, Finished, Job, run_job
from agents.sweeps.pending import plan
from agents.sweeps.sweep import SweepReport, sweep
from alma_env.errors import how_to_install

from .holder import holder_of

DIGITS = "Digits-ALMA-v0"
GOOD = RunSpec(DIGITS, width=4, wait=2, settings={"epochs": 1, "ticks": 4})
ENDLESS = RunSpec(DIGITS, width=4, wait=1, settings={"epochs": 10**7, "ticks": 4}, engine="plain")
TAKEN = replace(GOOD, wait=4)  # another run is in its folder


@dataclass(frozen=True)
class Swept:
    """A sweep with two good runs, a run that fails, and a run whose process is killed."""

    out: Path
    report: SweepReport
    printed: str


def new_console() -> Console:
    return Console(file=io.StringIO(), width=200)


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


def test_a_process_that_cannot_start_is_reported_and_the_others_run_its_jobs(tmp_path, monkeypatch):
    broken, console = {"=": "no such variable can be set"}, new_console()
    for count in (8, 32, 128):  # the jobs can end before the broken process does
        with monkeypatch.context() as patched:
            patched.setattr(local, "worker_variables", lambda *_: [{}, broken])
            specs = [replace(GOOD, seed=seed) for seed in range(count)]
            report = sweep(specs, tmp_path / str(count), console=console)
        assert (len(report.finished), report.failed) == (count, [])
        if report.lost:
            break
    reason = "a worker process could not start: the worker process ended with status 1"
    assert report.lost == [reason]
    printed = console.file.getvalue()
    assert f"{reason}; the other workers run its jobs" in printed
    assert f"lost 1 worker processes and took longer: {reason}" in printed
    batch = [Job(replace(GOOD, seed=seed), 1, tmp_path) for seed in range(2)]
    with pytest.raises(local.WorkerError, match="could not start: the worker process ended with status 1"):
        list(local.run_jobs(batch, [broken, broken]))


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
    (folder / "stages.jsonl").write_text("garbage")
    (failure,) = sweep([GOOD], tmp_path, console=new_console()).failed
    assert "stages.jsonl: not the stages of a run" in failure.traceback


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


@pytest.mark.parametrize(
    ("ended_by", "status", "printed"),
    [(signal.SIGINT, 130, "stopped; the same command goes on from here\n"), (signal.SIGKILL, -signal.SIGKILL, "")],
)
def test_a_stopped_sweep_leaves_no_process_and_its_runs_continue(tmp_path, capsys, ended_by, status, printed):
    for epochs in (100, 400, 1600):  # on a busy machine, a run can end before this process sees its rows
        out = tmp_path / str(epochs)
        grid = ["--width", "4", "--wait", "1", "--set", f"epochs={epochs}", "ticks=8", "--engine", "plain"]
        spec = replace(ENDLESS, settings={"epochs": epochs, "ticks": 8})
        folder = plan([spec], out).pending[spec.digest()].folder
        process, err = _stopped_sweep(grid, out, folder, ended_by)
        if (rows := run_index.rows_in(folder)) < 9:
            break
    assert (process.returncode, err) == (status, printed)
    deadline = time.monotonic() + 60
    while _is_alive(process.pid):
        assert time.monotonic() < deadline, "a process of the sweep is still alive"
        time.sleep(0.05)
    assert 2 <= rows < 9, "the sweep must be stopped in the middle of the run"
    before = (folder / "ledger.jsonl").read_text()
    assert main(["sweep", "--env", DIGITS, *grid, "--out", str(out), "--dry-run"]) == 0
    assert "0 done, 1 started, 0 to run" in capsys.readouterr().out
    assert main(["run", DIGITS, *grid, "--out", str(out)]) == 0
    assert (folder / "ledger.jsonl").read_text().startswith(before[: before.rfind("\n") + 1])
    assert run_index.is_finished(folder)


def _stopped_sweep(grid, out, folder, ended_by) -> tuple[subprocess.Popen, str]:
    """Start a sweep, and stop it when its run has two rows; return the ended process and its messages."""
    command = [sys.executable, "-m", "agents", "sweep", "--env", DIGITS, *grid, "--out", str(out)]
    # A background process of a shell ignores interrupts, and so do the processes that it starts.
    receive_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=receive_interrupts
    ) as process:
        if holder_of(folder, 2, complete=9) is not None:
            # A terminal interrupts the workers, too; a kill does not.
            (os.killpg if ended_by == signal.SIGINT else os.kill)(process.pid, ended_by)
        _, err = process.communicate()
    return process, err.decode()


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_exit_status_and_errors_of_the_command(tmp_path, capsys):
    out = ["--out", str(tmp_path)]
    file = tmp_path / "grid.toml"
    file.write_text(f'env = "{DIGITS}"\nwait = 4\nset = {{ ticks = 4, epochs = 1 }}')
    for arguments, message in (
        ([], "no grid: give a TOML file, or options"),
        (["--wait", "2", "--seeds", "1"], "--wait --seeds without --env: a grid needs an environment"),
        (["--env", DIGITS, "--per-gpu", "0", "--dry-run"], "--per-gpu 0: must be at least 1; leave it out to assign"),
        (["--env", DIGITS, "--agent", "mine.py:make", "--seeds", "-1", "--dry-run"], "seed=-1: must be 0 or more"),
        ([str(file), "--wait", "2"], "--wait with"),
        ([str(file), "--data", "own.npz"], 'write env = "Arrays-ALMA-v0", and data = "own.npz" in [set]'),
        (["--env", DIGITS, "--wait", "2", "2"], "--wait 2 2: 2 occurs twice"),
        (["--env", DIGITS, "--wait", "5", "21"], "sm 32, wait 21, seed 0: wait=21: the stream has only 20"),
        (["--env", DIGITS, "--seeds", "3", "-1"], "seed=-1"),
        ([str(file), "--workers", "0"], "--workers 0: must be at least 1"),
        ([str(file), "--per-gpu", "2"], "--per-gpu 2"),
        ([str(file), "--threads", "0"], "threads=0: must be at least 1"),
        ([str(file), "--ray", "local:x"], "--ray local:x"),
        ([str(file), "--track", "neptune"], "unknown tracker"),
    ):
        assert main(["sweep", *arguments, *out]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*/*"))


def test_failures_are_printed_also_when_a_sweep_is_stopped(tmp_path, monkeypatch):
    def stopped(jobs, variables):
        yield Failed(0, "Traceback of the first\nValueError: reason")
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "run_jobs", stopped)
    console = new_console()
    with pytest.raises(KeyboardInterrupt):
        sweep([GOOD, replace(GOOD, seed=1)], tmp_path, console=console)
    assert "Traceback of the first" in console.file.getvalue()


def test_a_missing_ray_is_named_with_the_command_that_installs_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = ["--env", DIGITS, "--wait", "4", "--set", "ticks=4", "--ray", "auto", "--out", str(tmp_path)]
    assert main(["sweep", *arguments]) == 2
    assert how_to_install("cluster") in capsys.readouterr().err


def test_processes_are_assigned_to_gpus_in_turn(monkeypatch):
    def gpus(per_gpu):
        return [variables["CUDA_VISIBLE_DEVICES"] for variables in local.worker_variables(None, per_gpu, 1)]

    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus(2) == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpus(1) == ["5", "7"]


def test_a_failed_run_is_exit_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        local, "run_jobs", lambda jobs, variables: (Failed(number, "reason") for number in range(len(jobs)))
    )
    assert main(["sweep", "--env", DIGITS, "--wait", "4", "20", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"{DIGITS}: sm 32, wait 20, seed 0: failed\nreason\n" in out
    assert "0 runs are finished" in out


def test_the_longest_runs_start_first_unless_an_order_is_given(tmp_path, monkeypatch):
    started = []

    def none(jobs, variables):
        started.extend(job.spec for job in jobs)
        yield from ()

    monkeypatch.setattr(local, "run_jobs", none)
    wide, often = replace(GOOD, width=64), replace(GOOD, width=64, wait=1)
    several = replace(GOOD, agent="ens", width=64)
    replayed = replace(GOOD, width=64, replay=True)
    growing = replace(often, agent="gmoe")
    sweep([GOOD, wide, often, several, replayed, growing], tmp_path, console=new_console())
    assert started == [several, replayed, growing, often, wide, GOOD]
    started.clear()
    in_order = [
        GOOD,
        replace(wide, seed=1),
        often,
        wide,
        several,
        GOOD,
    ]  # two seeds of a setting, not one after the other
    sweep(in_order, tmp_path, in_order=True, console=new_console())
    assert started == in_order[:-1]


def test_a_job_reports_its_progress_up_to_the_end(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(jobs, "_REPORT_SECONDS", 0)
    assert isinstance(run_job(0, Job(GOOD, 1, tmp_path), Environments(), events.append), Finished)
    parts = [event.part for event in events]
    assert parts == sorted(parts)
    assert parts[-1] == 1


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


def test_fresh_deletes_all_runs_or_none(tmp_path, computed_here):
    specs = [GOOD, replace(GOOD, seed=1), replace(GOOD, seed=2)]
    report = sweep(specs, tmp_path, workers=1, console=new_console())
    last = report.finished[specs[2].digest()]
    with run_folder.locked(last), pytest.raises(run_folder.FolderInUseError):
        sweep(specs, tmp_path, workers=1, fresh=True, console=new_console())
    assert [run_index.is_finished(folder) for folder in report.finished.values()] == [True] * 3


def test_fresh_deletes_the_folder_of_another_machine_for_the_same_run(tmp_path, computed_here):
    report = sweep([GOOD], tmp_path, workers=1, console=new_console())
    (folder,) = report.finished.values()
    other = folder.rename(folder.with_name("of-another-machine"))
    assert sweep([GOOD], tmp_path, console=new_console()).finished == {GOOD.digest(): other}
    again = sweep([GOOD], tmp_path, workers=1, fresh=True, console=new_console())
    assert again.finished == {GOOD.digest(): folder}
    assert not run_index.is_finished(other)


def test_fresh_keeps_folders_of_runs_that_name_files(tmp_path):
    with_file = replace(GOOD, policy="random.zip", wait=None)
    run_index.write_spec(tmp_path / DIGITS / "with-file", with_file)
    run_index.write_spec(tmp_path / DIGITS / "plain", GOOD)
    assert run_index.folders_with(tmp_path, [with_file, GOOD]) == [tmp_path / DIGITS / "plain"]


def test_all_runs_are_deleted_before_the_first_one_starts(tmp_path):
    options = ["--width", "4", "--set", "ticks=2", "epochs=1", "--seeds", "0", "1", "--out"]
    command = ["run", DIGITS, *options, str(tmp_path)]
    assert main(command) == 0
    ledgers = sorted(tmp_path.rglob("ledger.jsonl"))
    assert len(ledgers) == 2

    def stop(*_, **__):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agents.cli.run_sweep.execute", stop)
        assert main([*command, "--fresh"]) == 130
    assert not any(ledger.exists() for ledger in ledgers)


def test_a_run_without_record_does_not_count_as_a_run_with_record(tmp_path, computed_here):
    report = sweep([GOOD], tmp_path, workers=1, console=new_console())
    recorded = replace(GOOD, record=True)
    for known in (True, False):  # found by its specification, and by its configuration
        if not known:
            (next(iter(report.finished.values())) / "spec.json").unlink()
        with pytest.raises(ValueError, match="record=True, seed 0: .* without record.* with --fresh"):
            sweep([recorded], tmp_path, console=new_console())
    again = sweep([recorded], tmp_path, workers=1, fresh=True, console=new_console())
    (run,) = again.runs()
    assert [stage.held_out_error for stage in run.stages].count(None) == 0
    assert sweep([recorded], tmp_path, console=new_console()).skipped == 1


def test_a_mixture_with_uneven_growth_steps_can_be_planned(tmp_path):
    uneven = replace(GOOD, agent="gmoe", wait=1, settings={**GOOD.settings, "grow_by": (1, 2)})
    (pending,) = plan([uneven], tmp_path).pending.values()
    (even,) = plan([replace(uneven, settings={**GOOD.settings, "grow_by": 1})], tmp_path).pending.values()
    assert pending.work > even.work
