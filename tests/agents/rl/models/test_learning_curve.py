"""A curve fitted to synthetic recordings equals their law; held-out schedules are ranked."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

import agents
import alma_env
from agents.cli import main
from agents.policies.specs import policy_from
from agents.rl.models.learning_curve import fit, terms
from agents.rl.models.regression import pooled
from agents.rl.recorded import recordings
from agents.rl.recorded.recording import COLUMNS
from agents.rl.recorded.recordings import load, save
from agents.rl.recorded.selection import recorded_groups, recorded_widths, shipped_file
from agents.rl.surrogates.fidelity import held_out, rank_correlation, simulate

from ..synthetic import recorded, waits, with_replay_and_growth


@pytest.mark.parametrize("recordings_of", [waits, with_replay_and_growth])
def test_fit_recovers_a_curve_of_its_family(recordings_of):
    runs = recordings_of()
    curve = fit(runs)
    assert np.abs(curve.residuals[..., :2]).max() < 0.02  # the validation error is only nearly of the family
    for run in runs[:6]:
        assert simulate(curve, run, 3, seed=0) == pytest.approx(run.cer, rel=0.01)


def test_the_flops_of_a_training_are_linear_in_its_size_for_each_number_of_growth_steps():
    curve = fit(with_replay_and_growth())
    steps = np.arange(len(curve.parameters))
    assert curve.parameters == pytest.approx(100 * (1 + steps))
    known = curve.flops[1:6]
    assert known[:, 1] == pytest.approx(1e6 * (1 + steps[1:6]), rel=1e-6)
    assert known[:, 0] == pytest.approx(2e6 * (1 + steps[1:6]), rel=1e-5)


def test_a_pool_without_residuals_has_those_of_the_nearest_one():
    table = pooled(np.array([[1.0], [2.0], [3.0]]), np.array([1, 1, 4]), 6, np.random.default_rng(0))
    assert [sorted(set(values.ravel().tolist())) for values in table] == [[1, 2]] * 3 + [[3]] * 3


def test_simulated_runs_have_the_noise_of_recorded_runs():
    made = waits(noise=0.3, seeds=range(12))
    every_tick = [run for run in made if run.schedule == "wait 1"]
    simulated = simulate(fit(made), every_tick[0], 256, seed=0)
    real = np.array([run.cer for run in every_tick])
    assert simulated.mean() == pytest.approx(real.mean(), abs=3 * real.std() / np.sqrt(len(real)))
    assert real.std() / 2 < simulated.std() < 2 * real.std()


def test_held_out_schedules_are_ranked():
    compared = held_out(waits(noise=0.05, seeds=(0, 1)), episodes=8)
    assert len(compared) == 12
    assert all(one.runs == 2 for one in compared)
    assert rank_correlation(compared) > 0.9


def test_a_run_that_grows_by_several_steps_before_one_training_is_left_out_by_name(tmp_path, capsys):
    runs = with_replay_and_growth()
    twice = recorded("twice", lambda tick: (tick % 5 == 0, 0, 2 * (tick == 10)))
    with pytest.raises(
        ValueError, match="'sm' with 'twice' grows by 2 steps before one training, .*leave this run out"
    ):
        simulate(fit(runs), twice, 3, seed=0)
    save([*waits(noise=0.1), twice], file := tmp_path / "runs.npz")
    assert main(["surrogate", "validate", str(file), "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    assert "1 of 13 runs are left out:\ntwice, seed 0: grows by 2 steps before one training" in printed
    assert "rank correlation of 12 schedules" in printed


def test_a_curve_on_validation_uses_the_validation_error_and_requires_it():
    made = waits()
    curve = fit(made, "validation")
    for run in made[:6]:
        halved = (run.errors[1:] / 2 * (run.errors[1:] < 0.9)).sum() + 0.9 * (run.errors == 0.9).sum()
        assert simulate(curve, run, 3, seed=0) == pytest.approx(halved, rel=0.03)
    unrecorded = made[0].trainings.copy()
    unrecorded[3, COLUMNS.index("held_out_error")] = np.nan
    with pytest.raises(ValueError, match="no validation error; run it again with `alma run --record --fresh`"):
        fit([dataclasses.replace(made[0], trainings=unrecorded), *made[1:]], "validation")
    with pytest.raises(ValueError, match="reward_on='train': must be 'test' or 'validation'"):
        fit(made, "train")


def test_too_few_trainings_or_schedules_are_refused():
    with pytest.raises(ValueError, match="1 trainings in 1 runs: a curve needs at least 16; record runs"):
        fit([recorded("wait 20", lambda t: (t == 20, 0, 0))])
    with pytest.raises(ValueError, match="no training in 1 runs"):
        fit([dataclasses.replace(waits()[0], trainings=np.empty((0, len(COLUMNS))))])
    with pytest.raises(ValueError, match="1 schedules \\(wait 1\\): ranks need at least 3"):
        held_out(waits()[:1])


def test_terms_are_those_of_the_documentation():
    one = terms(np.array([0.5]), np.array([2.0]), np.array([4.0]), np.array([0.0]), np.array([1.0]), np.array([0.0]))
    a, b = math.log(2), math.log(4)
    expected = [1, a, a * a, b, b * b, a * b, 0.5, 0.5 * a, 1, a, a * a, 0, 0, 1, a, b, 0, 0]
    assert one.tolist() == [pytest.approx(expected)]


def test_a_learner_that_grows_has_the_runs_of_the_single_model_as_runs_without_growth(tmp_path):
    growing = [dataclasses.replace(one, learner="gens") for one in with_replay_and_growth()]
    single, wider = waits(), [dataclasses.replace(one, parameters=200) for one in waits(seeds=(1,))]
    save([*growing, *single, *wider], file := tmp_path / "runs.npz")
    assert recorded_widths("Digits-ALMA-v0", file).keys() == {"sm", "gens"}
    (found,) = recorded_groups("Digits-ALMA-v0", "gens", None, file, decisions=True)
    assert {one.learner for one in found} == {"gens"}
    added = found[len(growing) :]
    assert [one.schedule for one in added] == [f"{one.schedule}, growth never" for one in single]
    (found,) = recorded_groups("Digits-ALMA-v0", "gens", None, file)  # the first surrogate is as it was
    assert len(found) == len(growing)
    same = dataclasses.replace(single[0], learner="gens", schedule=f"{single[0].schedule}, growth never")
    save([*growing, same, *single], file)
    (found,) = recorded_groups("Digits-ALMA-v0", "gens", None, file, decisions=True)
    assert [one.schedule for one in found].count(same.schedule) == 1
    save([*growing, dataclasses.replace(same, schedule="another name"), *single], file)
    (found,) = recorded_groups("Digits-ALMA-v0", "gens", None, file, decisions=True)
    assert same.schedule not in [one.schedule for one in found]  # a fit counts it once, a comparison by its schedule
    (found,) = recorded_groups("Digits-ALMA-v0", "gens", None, file, decisions=True, repeated=True)
    assert [one.schedule for one in found].count(same.schedule) == 1


def test_runs_without_a_width_are_a_group_of_their_own(tmp_path):
    runs = [*waits(), *waits(width=9), *waits(width=None)]
    save([dataclasses.replace(one, learner="own") for one in runs], file := tmp_path / "runs.npz")
    found = recorded_groups("Digits-ALMA-v0", "own", None, file)
    assert [of_width[0].width for of_width in found] == [None, 4, 9]
    ((first, *_),) = recorded_groups("Digits-ALMA-v0", "own", 9, file)
    assert first.width == 9
    with pytest.raises(ValueError, match=r"width=5: no runs in runs.npz \(its widths are \[None, 4, 9\]\)"):
        recorded_groups("Digits-ALMA-v0", "own", 5, file)


def test_the_recorded_runs_without_growth_are_those_of_the_single_model_to_rounding():
    """An exploring run draws its decisions from its seed, so that runs with equal seeds differ only in growth."""
    for stream in ("Digits-ALMA-v0", "MNIST-ALMA-v0"):
        exploring = [one for one in load(shipped_file(stream, decisions=True)) if "exploring" in one.schedule]
        single = {_drawn(one): one for one in exploring if (one.learner, one.width) == ("sm", 4)}
        others = [one for one in exploring if one.learner != "sm" and not one.column("grow").any()]
        others = [one for one in others if _drawn(one) in single]
        assert len(others) >= 9
        differences = []
        for one in others:
            same = single[_drawn(one)]
            assert (one.column("tick") == same.column("tick")).all()
            assert (one.column("flops") == same.column("flops")).all()
            differences.append(abs(one.cer / same.cer - 1))
        # Runs of one machine are equal, see the next test. These are of processors that round differently, and a few
        # trainings amplify that.
        assert np.median(differences) < 0.001
        assert sum(difference > 0.01 for difference in differences) <= 1
        assert max(differences) < 0.03


def test_on_one_machine_a_learner_without_growth_is_the_single_model():
    env = alma_env.make("Digits-ALMA-v0", ticks=6)
    policy = policy_from("geometric:factor=1.6,replay=all,growth=never", grows=True)
    single, *others = (
        [row.error for row in agents.run(env, agents.make(id, env, width=4, epochs=5, policy=policy), 0)]
        for id in ("sm", "gens", "gmoe")
    )
    assert len(set(single)) > 1
    assert others == [single] * 2


def test_the_recorded_widths_of_the_package_are_those_that_are_named_or_all():
    by_default = recorded_groups("Digits-ALMA-v0", "sm", None, None, decisions=True)
    assert [runs[0].width for runs in by_default] == [4, 8, 16, 32, 64]
    named = recorded_groups("Digits-ALMA-v0", "sm", [64, 4], None, decisions=True)
    assert [runs[0].width for runs in named] == [4, 64]
    assert [len(runs) for runs in named] == [960, 560]
    with pytest.raises(ValueError, match=r"width=5: no runs in the package \(its widths are \[4, 8, 16, 32, 64\]\)"):
        recorded_groups("Digits-ALMA-v0", "sm", 5, None, decisions=True)
    with pytest.raises(ValueError, match=r"width=8: no runs in the package \(its widths are \[4, 32\]\)"):
        recorded_groups("Digits-ALMA-v0", "sm", 8, None)


def _drawn(one):
    return one.schedule.partition("seed=")[2].rstrip(")")


def test_runs_of_a_single_model_that_trains_in_another_way_are_no_runs_without_growth(tmp_path):
    again = json.dumps({"agent": {"from_scratch": True}})
    growing = [dataclasses.replace(one, learner="gmoe", settings=again) for one in with_replay_and_growth()]
    recordings.save([*growing, *waits()], file := tmp_path / "runs.npz")
    (found,) = recorded_groups("Digits-ALMA-v0", "gmoe", None, file, decisions=True)
    assert len(found) == len(growing)
