"""The costs of schedules in recorded runs, paired by seed."""

from __future__ import annotations

import dataclasses
import json

import pytest

from agents.analysis.schedules.costs import RunPrices, ScheduleCosts
from agents.analysis.schedules.names import RECOMMENDED, plain_wait, schedule_name
from agents.cli import main
from agents.rl.recorded import recordings, selection
from agents.rl.recorded.schedules import recorded_schedules

from ..synthetic import waits


def test_costs_are_paired_by_the_seeds_that_both_have():
    one = ScheduleCosts("one", {0: 5.0, 1: 7.0, 2: 9.0}, {0: 1.0, 1: 1.0, 2: 1.0}, {0: 20.0, 1: 20.0, 2: 20.0})
    other = ScheduleCosts("other", {1: 6.0, 2: 7.0, 3: 0.0}, {1: 2.0, 2: 2.0, 3: 2.0}, {1: 60.0, 2: 60.0, 3: 60.0})
    assert one.costs(RunPrices(10)) == {0: 15.0, 1: 17.0, 2: 19.0}
    assert one.costs(RunPrices(10, 0.5)) == {0: 25.0, 1: 27.0, 2: 29.0}
    assert one.minus(other, RunPrices(0)).mean == pytest.approx(1.5)
    assert one.minus(other, RunPrices(10)).mean == pytest.approx(1.5 - 10)
    assert one.minus(other, RunPrices(10, 0.5)).mean == pytest.approx(1.5 - 10 - 20)
    assert one.minus(other, RunPrices(0)).n == 2


def test_a_full_pass_is_a_training_on_each_mega_batch_once():
    runs = waits(noise=0.1, seeds=(0, 1))
    found = {one.schedule: one for one in recorded_schedules(runs)}
    assert set(found) == {schedule_name(run.schedule) for run in runs}
    for run in runs:
        one = found[schedule_name(run.schedule)]
        assert one.cer[run.seed] == pytest.approx(run.cer)
        # A training on n mega-batches costs 2 + n, see `synthetic.recorded`, and there are 20 mega-batches.
        assert one.passes[run.seed] == pytest.approx(sum(2 + run.sizes) / (20 * (2 + 1)))


def test_a_learner_that_starts_without_parameters_has_no_size():
    runs = [dataclasses.replace(run, parameters=0) for run in waits(noise=0.1, seeds=(0, 1))]
    found = recorded_schedules(runs)
    assert found
    assert all(set(one.size.values()) == {0.0} for one in found)


def test_the_recorded_runs_of_the_package_have_the_recommended_schedule():
    for stream, usual, others, prices in (
        ("Digits-ALMA-v0", 20, {4: 40, 16: 40}, (0, 10)),
        ("MNIST-ALMA-v0", 20, {8: 8, 16: 8, 32: 8}, (0, 10)),
        ("FashionMNIST-ALMA-v0", 20, {8: 8, 16: 8, 32: 8, 64: 8}, (0, 10)),
        ("CIFAR10-ALMA-v0", 8, {}, (10,)),  # level with the best fixed wait where FLOPs are free
    ):
        recorded = recordings.load(selection.shipped_file(stream, decisions=True))
        for width in {run.width for run in recorded if "exploring" not in run.schedule}:
            found = recorded_schedules([run for run in recorded if (run.learner, run.width) == ("sm", width)])
            (rule,) = [one for one in found if one.schedule == RECOMMENDED]
            assert len(rule.cer) == others.get(width, usual)
            waits = [one for one in found if plain_wait(one.schedule)]
            assert all(rule.minus(one, RunPrices(price)).mean < 0 for one in waits for price in prices)


def test_the_command_prints_the_table_and_draws_the_picture(capsys, tmp_path):
    picture = tmp_path / "rules.png"
    command = ["surrogate", "schedules", "Digits-ALMA-v0", "MNIST-ALMA-v0", "--pass-price", "0", "40"]
    assert main([*command, "--picture", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "the rule" in printed
    assert "MNIST, sm 4" in printed
    assert picture.stat().st_size > 10_000
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    by_price = {price: [row for row in rows if row["pass_price"] == price] for price in (0, 40)}
    assert all(len(rows) >= 9 for rows in by_price.values())
    assert {row["schedule"] for row in by_price[40]} >= {RECOMMENDED, "geometric:factor=2"}


def test_runs_of_one_seed_are_refused(capsys, tmp_path):
    recordings.save(waits(noise=0.1), tmp_path / "one.npz")
    assert main(["surrogate", "schedules", str(tmp_path / "one.npz")]) == 2
    assert "no schedule has runs of two seeds" in capsys.readouterr().err


def test_runs_without_a_training_are_refused(capsys, tmp_path):
    idle = [dataclasses.replace(run, trainings=run.trainings[:0]) for run in waits(seeds=(0, 1))]
    recordings.save(idle, tmp_path / "idle.npz")
    assert main(["surrogate", "schedules", str(tmp_path / "idle.npz")]) == 2
    assert "no training in 24 runs; record runs that train" in capsys.readouterr().err


def test_two_runs_of_one_schedule_and_seed_are_refused_by_name(capsys, tmp_path):
    runs = waits(noise=0.1, seeds=(0, 1))
    recordings.save([*runs, runs[3]], tmp_path / "twice.npz")  # as of runs with two engines
    assert main(["surrogate", "schedules", str(tmp_path / "twice.npz")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "schedule='wait 4', seed=0: two runs of 'sm' on Digits-ALMA-v0" in said
    assert "write the file again with `alma surrogate fit`" in said


def test_schedules_are_compared_over_the_seeds_that_all_of_them_have(capsys, tmp_path):
    runs = waits(noise=0.1, seeds=(0, 1, 2))
    lucky = [run for run in runs if run.schedule != "wait 4" or run.seed < 2]
    for name, kept in (("whole", [run for run in runs if run.seed < 2]), ("unequal", lucky)):
        recordings.save(kept, tmp_path / f"{name}.npz")
    rows = {}
    for name in ("whole", "unequal"):
        assert main(["surrogate", "schedules", str(tmp_path / f"{name}.npz"), "--json"]) == 0
        rows[name] = json.loads(capsys.readouterr().out)
    assert rows["unequal"] == rows["whole"]
    assert {row["seeds"] for row in rows["whole"]} == {2}


def test_learners_with_exploring_runs_only_are_left_out(capsys, tmp_path):
    once = [dataclasses.replace(run, width=64) for run in waits(noise=0.1)]
    recordings.save([*waits(noise=0.1, seeds=(0, 1)), *once], tmp_path / "both.npz")
    assert main(["surrogate", "schedules", str(tmp_path / "both.npz"), "--json"]) == 0
    (learner,) = {row["runs"] for row in json.loads(capsys.readouterr().out)}
    assert "64" not in learner


def test_two_files_of_one_learner_are_refused(capsys, tmp_path):
    files = [tmp_path / name for name in ("a.npz", "b.npz")]
    for file in files:
        recordings.save(waits(noise=0.1, seeds=(0, 1)), file)
    assert main(["surrogate", "schedules", *map(str, files)]) == 2
    assert "have its runs; give one file for each learner" in " ".join(capsys.readouterr().err.split())
