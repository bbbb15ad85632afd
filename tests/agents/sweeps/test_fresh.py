"""The option --fresh deletes the runs of a sweep, all or none, before the first one starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.cli import main
from agents.runs import run_folder
from agents.sweeps import run_index
from agents.sweeps.sweep import sweep

from .small_runs import DIGITS, GOOD, new_console


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
        patched.setattr("agents.cli.runs.run_sweep.execute", stop)
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
