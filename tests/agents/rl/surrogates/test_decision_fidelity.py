"""Fidelity of the second surrogate: held-out runs, and the numbers that compare them with simulations."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from agents.cli import main
from agents.rl.recorded.recordings import load, save
from agents.rl.recorded.selection import shipped_file
from agents.rl.surrogates.decision_fidelity import HeldOut, fidelity, held_out, simulate
from agents.rl.surrogates.fidelity import spearman

from ..known_model import record


def test_held_out_runs_of_the_same_law_are_simulated_faithfully(episodes):
    found = fidelity(held_out(episodes, episodes=100))
    assert found.schedules == 6  # the waits
    assert found.ranks > 0.9
    assert 0.97 < found.level < 1.03
    assert 0.8 < found.spread < 1.25
    assert 0.82 < found.coverage < 0.97


def test_fidelity_counts_what_it_says():
    """Three schedules, simulated without error, and one whose simulations are too low and too narrow."""
    seeds, luck = np.arange(3), np.array([0.0, 1.0, 1.0])
    exact = [
        HeldOut(f"wait {wait}", seeds, wait + luck, np.array([[wait - 1.0, wait, wait + 2]] * 3))
        for wait in (10, 11, 30)
    ]
    wrong = HeldOut("doubling", seeds, 20 + 2 * luck, np.full((3, 3), 5.0))
    found = fidelity([*exact, wrong])
    assert (found.schedules, found.near) == (4, 2)
    assert math.isnan(found.near_ranks)  # two schedules have no rank correlation
    assert found.ranks == pytest.approx(0.4)
    assert found.coverage == pytest.approx(9 / 12)
    assert found.luck == pytest.approx(1)
    assert found.real_ranks == pytest.approx(1)  # each seed has the same order of schedules


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_the_ranks_of_other_real_runs_are_estimated(noise):
    """The estimate agrees with the correlation that two sets of runs of ten seeds do have, on average."""
    rng = np.random.default_rng(5)
    schedules, seeds = rng.normal(size=(100, 20)), np.arange(10)
    real = schedules[:, :, None] + noise * rng.normal(size=(2, 100, 20, 10))
    between = [spearman(*means) for means in real.mean(-1).swapaxes(0, 1)]
    estimates = [
        fidelity([HeldOut(str(name), seeds, cer, cer[:, None]) for name, cer in enumerate(runs)]).real_ranks
        for runs in real[0, :10]
    ]
    assert np.mean(estimates) == pytest.approx(np.mean(between), abs=0.05)
    assert np.mean(between) < 0.99


def test_seeds_that_disagree_say_nothing_of_the_ranks():
    cer = np.array([[1.0, 5], [2, 4], [3, 3], [4, 2], [5, 1]])
    found = fidelity([HeldOut(str(number), np.arange(2), one, one[:, None]) for number, one in enumerate(cer)])
    assert found.real_ranks == 0


def test_runs_that_agree_over_their_seeds_have_no_spread_to_compare():
    same = [HeldOut(str(cer), np.arange(3), np.full(3, cer), np.array([[cer, cer + 1]] * 3)) for cer in (1.0, 2.0)]
    found = fidelity(same)
    assert math.isnan(found.spread)
    assert math.isnan(found.luck)


def test_exploring_runs_are_ranked_run_by_run():
    exploring = [
        HeldOut(f"exploring {run}", np.array([run]), np.array([float(run)]), np.array([[5.0, 15.0 - run]]))
        for run in range(4)
    ]
    found = fidelity(exploring)
    assert found.schedules == 0
    assert math.isnan(found.ranks)
    assert found.run_ranks == pytest.approx(-1)


def test_a_simulation_repeats_the_decisions_of_a_run(truth):
    """Without residuals and quality, the simulated CER is that of the run."""
    still = dataclasses.replace(
        truth,
        quality=0.0,
        first_errors=np.full(64, 0.9),
        warm_residuals=np.zeros_like(truth.warm_residuals),
        cold_residuals=np.zeros_like(truth.cold_residuals),
    )
    for schedule in ("random", "wait 3"):
        run = record(still, schedule, 3)
        assert (run.column("restart").any() and np.isfinite(run.column("window")).any()) == (schedule == "random")
        assert np.allclose(simulate(still, run, episodes=2, seed=0), run.cer)


def test_the_shipped_runs_make_a_faithful_surrogate_of_the_digits():
    runs = [
        one for one in load(shipped_file("Digits-ALMA-v0", decisions=True)) if (one.learner, one.width) == ("sm", 4)
    ]
    found = fidelity(held_out(runs))
    assert len(runs) == 960
    assert found.schedules == 20
    assert found.ranks > 0.95
    assert found.near_ranks > 0.8
    assert found.level == pytest.approx(1, abs=0.03)
    assert 0.75 < found.spread < 1.25
    assert 0.85 < found.coverage < 0.95
    assert found.luck > 0.5


def test_a_command_validates_runs_with_all_decisions(few, tmp_path, capsys):
    save(few, tmp_path / "own.npz")
    words = ["--episodes", "2", "--decisions"]
    assert main(["surrogate", "validate", str(tmp_path / "own.npz"), *words]) == 0
    out = capsys.readouterr().out
    assert "sm 4, v1" in out
    assert "rank correlation of 6 schedules" in out
    assert "fixed:wait=13" in out
    exploring = [dataclasses.replace(one, schedule=f"exploring {number}") for number, one in enumerate(few)]
    save(exploring, tmp_path / "exploring.npz")
    assert main(["surrogate", "validate", str(tmp_path / "exploring.npz"), *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"no schedule has two runs; rank correlation of {len(few)} runs: 0." in out
    assert "nan" not in out


def test_the_surrogate_of_the_first_version_is_judged_unless_the_second_is_asked_for(few, tmp_path, capsys):
    save(few, tmp_path / "own.npz")
    assert main(["surrogate", "validate", str(tmp_path / "own.npz"), "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert "sm 4, v0" in out
    assert f"{sum(one.explores for one in few)} of {len(few)} runs are left out" in out


def test_a_command_validates_only_the_named_widths(few, tmp_path, capsys):
    file = tmp_path / "own.npz"
    save([*few, *(dataclasses.replace(one, width=9) for one in few)], file)
    assert main(["surrogate", "validate", str(file), "--width", "9", "--episodes", "2", "--decisions"]) == 0
    assert capsys.readouterr().out.count("rank correlation of 6 schedules") == 1
    assert main(["surrogate", "validate", str(file), "--width", "5"]) == 2
    assert f"--width 5: {file} has the widths 4, 9; name some" in " ".join(capsys.readouterr().err.split())


def test_one_seed_cannot_be_held_out(episodes):
    with pytest.raises(ValueError, match=r"seeds \[0\]: must be at least two"):
        held_out([one for one in episodes if one.seed == 0])


def test_one_schedule_cannot_be_held_out(episodes):
    with pytest.raises(
        ValueError, match="schedule='wait 4', seed=0: no run of another schedule.*at least two schedules"
    ):
        held_out([one for one in episodes if one.schedule == "wait 4"])


def test_a_schedule_that_another_one_repeats_is_held_out_with_it(few):
    runs = [one for one in few if one.schedule.startswith(("random", "wait 4"))]
    twins = [dataclasses.replace(one, schedule="twin") for one in runs if one.schedule == "wait 4"]
    once, twice = held_out(runs, episodes=8), held_out([*runs, *twins], episodes=8)
    assert [one.schedule for one in twice] == [one.schedule for one in once]
    assert all(np.array_equal(one.simulated, other.simulated) for one, other in zip(once, twice, strict=True))
