"""A sweep makes what is missing, tells what failed, and goes on after it was stopped."""

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
from agents import RunSpec, run_folder
from agents.cli import main
from agents.experiments import folders, local, work
from agents.experiments.plan import plan
from agents.experiments.sweep import SweepReport, sweep
from agents.experiments.work import Environments, Failed, Job, perform
from alma_env import Ledger

from .holder import holder_of

DIGITS = "Digits-ALMA-v0"
GOOD = RunSpec(DIGITS, width=4, wait=2, settings={"epochs": 1, "ticks": 4})
ENDLESS = RunSpec(DIGITS, width=4, wait=1, settings={"epochs": 10**7, "ticks": 4}, engine="plain")
TAKEN = replace(GOOD, wait=4)  # whose folder another run has


@dataclass(frozen=True)
class Swept:
    """A sweep of which one run is good, one fails, and one has its process killed."""

    out: Path
    report: SweepReport
    told: str


def told_to() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Swept:
    out, console = tmp_path_factory.mktemp("runs"), told_to()
    specs = [GOOD, replace(GOOD, seed=1), TAKEN, ENDLESS]
    places = {digest: pending.folder for digest, pending in plan(specs, out).pending.items()}
    places[TAKEN.digest()].mkdir(parents=True)
    (places[TAKEN.digest()] / "config.json").write_text('{"env": "another"}')

    def kill() -> None:
        os.kill(holder_of(places[ENDLESS.digest()], 1), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    report = sweep([*specs, GOOD], out, workers=2, console=console)
    killer.join()
    return Swept(out, report, console.file.getvalue())


def test_good_runs_are_made_though_others_fail(swept):
    assert swept.report.finished.keys() == {GOOD.digest(), replace(GOOD, seed=1).digest()}
    assert [run.config["seed"] for run in swept.report.runs()] == [0, 1]
    env = GOOD.make_env()
    alone = agents.run(env, GOOD.make_agent(env), 0)
    (run,) = [run for run in swept.report.runs() if run.config["seed"] == 0]
    assert [row.error for row in run.ledger] == [row.error for row in alone]


def test_a_failure_is_told_with_its_run_and_traceback(swept):
    (failure,) = [failure for failure in swept.report.failed if failure.spec == TAKEN]
    assert "Traceback" in failure.traceback
    assert "RunMismatchError" in failure.traceback
    assert f"{TAKEN}: failed" in swept.told
    assert failure.traceback.strip() in swept.told
    assert "2 of 4 runs failed" in swept.told


def test_a_process_that_is_killed_is_a_failure_of_its_run_alone(swept):
    (failure,) = [failure for failure in swept.report.failed if failure.spec == ENDLESS]
    assert failure.traceback.startswith("the worker process was ended by SIGKILL (as the system does")


def test_a_process_that_cannot_start_is_told_of_and_leaves_its_jobs_to_the_others(tmp_path, monkeypatch):
    broken, console = {"=": "no such variable can be set"}, told_to()
    with monkeypatch.context() as patched:
        patched.setattr(local, "places", lambda *_: [{}, broken])
        report = sweep([replace(GOOD, seed=seed) for seed in range(8)], tmp_path, console=console)
    assert (len(report.finished), report.failed) == (8, [])
    why = "a worker process could not start: the worker process ended with status 1"
    assert report.lost == [why]
    told = console.file.getvalue()
    assert f"{why}; the others go on without it" in told
    assert f"1 worker processes were lost, so that the rest took longer: {why}" in told
    jobs = [Job((replace(GOOD, seed=seed),), 1, tmp_path) for seed in range(2)]
    with pytest.raises(local.WorkerError, match="could not start: the worker process ended with status 1"):
        list(local.carry_out(jobs, [broken, broken]))


def test_finished_runs_are_skipped_without_making_their_agents(swept, monkeypatch):
    monkeypatch.setattr(RunSpec, "make_agent", lambda *_: pytest.fail("made again"))
    again = sweep([GOOD], swept.out, console=told_to())
    assert (again.skipped, again.failed) == (1, [])
    assert again.finished.items() <= swept.report.finished.items()


def test_a_run_in_other_words_is_known_by_its_configuration(swept):
    other = replace(GOOD, settings={"ticks": 4, "epochs": 1, "learning_rate": 1.0}, engine="plain")
    assert other.digest() != GOOD.digest()
    planned = plan([other, replace(other, engine="auto")], swept.out)
    assert planned.finished[other.digest()] == swept.report.finished[GOOD.digest()]
    assert not planned.pending


def test_another_version_or_an_unfinished_ledger_is_not_done(swept, tmp_path, monkeypatch):
    folder = swept.report.finished[GOOD.digest()]
    copy = tmp_path / DIGITS / folder.name
    copy.mkdir(parents=True)
    for file in ("config.json", "ledger.jsonl"):
        (copy / file).write_bytes((folder / file).read_bytes())
    folders.remember(copy, GOOD)
    assert folders.finished_below(tmp_path, [DIGITS]) == {GOOD.digest(): copy}
    with monkeypatch.context() as patched:
        patched.setattr(agents.runs, "versions", lambda: {"torch": "another"})
        assert GOOD.digest() not in folders.finished_below(tmp_path, [DIGITS])
    (copy / "ledger.jsonl").write_bytes((folder / "ledger.jsonl").read_bytes()[:-5])
    assert folders.rows_in(copy) == 4
    assert folders.finished_below(tmp_path, [DIGITS]) == {}


def test_alma_run_and_alma_sweep_know_each_others_runs(swept, capsys):
    options = ["--width", "4", "--wait", "2", "--set", "epochs=1", "ticks=4", "--out", str(swept.out)]
    ledgers = {file: file.read_text() for file in swept.out.rglob("ledger.jsonl")}
    assert main(["run", DIGITS, "--seeds", "0", "2", *options]) == 0
    assert {file: file.read_text() for file in ledgers} == ledgers
    assert main(["sweep", "--env", DIGITS, "--seeds", "0", "1", "2", "--dry-run", *options]) == 0
    out = capsys.readouterr().out
    assert "3 runs: 3 done, 0 begun, 0 to make" in out
    assert main(["sweep", "--env", DIGITS, "--seeds", "0", "1", "2", *options]) == 0
    assert "3 runs are finished, 3 of them from before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ended_by", "status", "told"),
    [(signal.SIGINT, 130, "stopped; the same command goes on from here\n"), (signal.SIGKILL, -signal.SIGKILL, "")],
)
def test_a_sweep_that_is_ended_leaves_no_process_and_the_same_runs_go_on(tmp_path, capsys, ended_by, status, told):
    grid = ["--width", "4", "--wait", "1", "--set", "epochs=200", "ticks=20", "--engine", "plain"]
    (spec,) = agents.experiments.grid.expand(
        {"env": DIGITS, "width": 4, "wait": 1, "set": {"epochs": 200, "ticks": 20}, "engine": "plain"}
    )
    folder = plan([spec], tmp_path).pending[spec.digest()].folder
    command = [sys.executable, "-m", "agents", "sweep", "--env", DIGITS, *grid, "--out", str(tmp_path)]
    # What a shell starts in the background ignores interrupts, and so would all that these tests start there.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=heard
    ) as process:
        holder_of(folder, 2)
        # A terminal interrupts the workers, too; what kills a process does not.
        (os.killpg if ended_by == signal.SIGINT else os.kill)(process.pid, ended_by)
        _, err = process.communicate()
    assert process.returncode == status
    assert err.decode() == told
    deadline = time.monotonic() + 10
    while _is_alive(process.pid):
        assert time.monotonic() < deadline, "a process of the sweep is still there"
        time.sleep(0.05)
    before = (folder / "ledger.jsonl").read_text()
    assert 2 <= len(Ledger.from_json(before[: before.rfind("\n") + 1])) < 21
    assert main(["sweep", "--env", DIGITS, *grid, "--out", str(tmp_path), "--dry-run"]) == 0
    assert "0 done, 1 begun, 0 to make" in capsys.readouterr().out
    assert main(["run", DIGITS, *grid, "--out", str(tmp_path)]) == 0
    assert (folder / "ledger.jsonl").read_text().startswith(before[: before.rfind("\n") + 1])
    assert folders.is_finished(folder)


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
        (["--agent", "sm"], "no grid: give a TOML file, or options"),
        ([str(file), "--wait", "2"], "--wait beside"),
        (["--env", DIGITS, "--wait", "2", "2"], "--wait 2 2: 2 stands there twice"),
        (["--env", DIGITS, "--wait", "5", "21"], "sm 32, wait 21, seed 0: wait=21: the stream has only 20"),
        (["--env", DIGITS, "--seeds", "3", "-1"], "seed=-1"),
        ([str(file), "--workers", "0"], "--workers 0: at least 1"),
        ([str(file), "--per-gpu", "2"], "--per-gpu 2"),
        ([str(file), "--threads", "0"], "threads=0: at least 1"),
        ([str(file), "--ray", "local:x"], "--ray local:x"),
        ([str(file), "--track", "neptune"], "no such tracker"),
    ):
        assert main(["sweep", *arguments, *out]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*/*"))


def test_what_failed_before_a_sweep_was_stopped_is_told(tmp_path, monkeypatch):
    def stopped(jobs, places):
        yield Failed(0, "Traceback of the first\nValueError: why")
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "carry_out", stopped)
    console = told_to()
    with pytest.raises(KeyboardInterrupt):
        sweep([GOOD, replace(GOOD, seed=1)], tmp_path, console=console)
    assert "Traceback of the first" in console.file.getvalue()


def test_a_missing_ray_is_named_with_the_command_that_installs_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = ["--env", DIGITS, "--wait", "4", "--set", "ticks=4", "--ray", "auto", "--out", str(tmp_path)]
    assert main(["sweep", *arguments]) == 2
    assert "pip install 'alma-env[cluster]'" in capsys.readouterr().err


def test_gpus_are_shared_out_one_after_another(monkeypatch):
    monkeypatch.setattr(local.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [place["CUDA_VISIBLE_DEVICES"] for place in local.places(None, 2, 1)] == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [place["CUDA_VISIBLE_DEVICES"] for place in local.places(None, 1, 1)] == ["5", "7"]


def test_a_failed_run_is_exit_status_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(local, "carry_out", lambda jobs, places: (Failed(number, "why") for number in range(len(jobs))))
    assert main(["sweep", "--env", DIGITS, "--wait", "4", "20", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"{DIGITS}: sm 32, wait 20, seed 0: failed\nwhy\n" in out
    assert "0 runs are finished" in out


def test_the_longest_runs_begin_first(tmp_path, monkeypatch):
    begun = []

    def none(jobs, places):
        begun.extend(job.specs[0] for job in jobs)
        yield from ()

    monkeypatch.setattr(local, "carry_out", none)
    wide, often = replace(GOOD, width=64), replace(GOOD, width=64, wait=1)
    several = replace(GOOD, agent="ens", width=64)
    replayed = replace(GOOD, width=64, replay=True)
    growing = replace(often, agent="gmoe")
    sweep([GOOD, wide, often, several, replayed, growing], tmp_path, console=told_to())
    assert begun == [several, replayed, growing, often, wide, GOOD]


def test_seeds_that_are_batched_are_one_job_and_each_has_its_folder(tmp_path, monkeypatch):
    environments = Environments()
    told = []

    def here(jobs, places):
        assert [len(job.specs) for job in jobs] == [2, 1]
        yield from (perform(number, job, environments, told.append) for number, job in enumerate(jobs))

    monkeypatch.setattr(local, "carry_out", here)
    monkeypatch.setattr(work, "_TOLD_EVERY", 0)
    specs = [GOOD, replace(GOOD, seed=1), TAKEN]
    report = sweep(specs, tmp_path, batch_seeds=True, console=told_to())
    assert report.finished.keys() == {spec.digest() for spec in specs}
    assert sweep(specs, tmp_path, console=told_to()).skipped == 3
    parts = [event.part for event in told if event.job == 0]
    assert parts == sorted(parts)
    assert parts[-1] == 1


def test_what_a_batch_has_finished_is_read_and_what_it_has_begun_begins_anew(swept, tmp_path):
    folder = tmp_path / DIGITS / swept.report.finished[GOOD.digest()].name
    shutil.copytree(swept.report.finished[GOOD.digest()], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"batched": 8}))
    before = (folder / "ledger.jsonl").read_text()
    job, environments = Job((GOOD,), 1, tmp_path), Environments()
    assert perform(0, job, environments, print).folders == (folder,)
    assert (folder / "ledger.jsonl").read_text() == before
    (folder / "ledger.jsonl").write_text(before[: before.index("\n") + 1])
    assert perform(0, job, environments, print).folders == (folder,)
    assert folders.is_finished(folder)
    assert json.loads((folder / "config.json").read_text()) == config


def test_fresh_deletes_all_of_the_runs_or_none(tmp_path):
    specs = [GOOD, replace(GOOD, seed=1), replace(GOOD, seed=2)]
    made = sweep(specs, tmp_path, workers=1, console=told_to())
    last = made.finished[specs[2].digest()]
    with run_folder.locked(last), pytest.raises(run_folder.FolderInUseError):
        sweep(specs, tmp_path, workers=1, fresh=True, console=told_to())
    assert [folders.is_finished(folder) for folder in made.finished.values()] == [True] * 3


def test_fresh_deletes_what_another_machine_has_made_of_the_same_run(tmp_path):
    made = sweep([GOOD], tmp_path, workers=1, console=told_to())
    (folder,) = made.finished.values()
    other = folder.rename(folder.with_name("made-elsewhere"))
    assert sweep([GOOD], tmp_path, console=told_to()).finished == {GOOD.digest(): other}
    again = sweep([GOOD], tmp_path, workers=1, fresh=True, console=told_to())
    assert again.finished == {GOOD.digest(): folder}
    assert not folders.is_finished(other)


def test_fresh_leaves_what_a_file_of_the_same_name_has_made(tmp_path):
    asked = replace(GOOD, policy="random.zip", wait=None)
    folders.remember(tmp_path / DIGITS / "of-the-file-before", asked)
    folders.remember(tmp_path / DIGITS / "plain", GOOD)
    assert folders.asked_for(tmp_path, [asked, GOOD]) == [tmp_path / DIGITS / "plain"]


def test_all_runs_are_deleted_before_the_first_begins_anew(tmp_path):
    command = [
        "run",
        DIGITS,
        "--width",
        "4",
        "--set",
        "ticks=2",
        "epochs=1",
        "--seeds",
        "0",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert main(command) == 0
    ledgers = sorted(tmp_path.rglob("ledger.jsonl"))
    assert len(ledgers) == 2

    def stop(*_, **__):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agents.experiments.cli.execute", stop)
        assert main([*command, "--fresh"]) == 130
    assert not any(ledger.exists() for ledger in ledgers)


def test_a_run_that_was_made_without_record_is_not_taken_for_a_recorded_one(tmp_path):
    made = sweep([GOOD], tmp_path, workers=1, console=told_to())
    recorded = replace(GOOD, record=True)
    for known in (True, False):  # found by what was asked for, and by its configuration
        if not known:
            (next(iter(made.finished.values())) / "spec.json").unlink()
        with pytest.raises(ValueError, match="record=True, seed 0: .* was begun without record.* with --fresh"):
            sweep([recorded], tmp_path, console=told_to())
    again = sweep([recorded], tmp_path, workers=1, fresh=True, console=told_to())
    (run,) = again.runs()
    assert [training.held_out_error for training in run.stages].count(None) == 0
    assert sweep([recorded], tmp_path, console=told_to()).skipped == 1


def test_a_mixture_that_grows_in_uneven_steps_can_be_planned(tmp_path):
    uneven = replace(GOOD, agent="gmoe", wait=1, settings={**GOOD.settings, "grow_by": (1, 2)})
    (pending,) = plan([uneven], tmp_path).pending.values()
    (even,) = plan([replace(uneven, settings={**GOOD.settings, "grow_by": 1})], tmp_path).pending.values()
    assert pending.work > even.work
