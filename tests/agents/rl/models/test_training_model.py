"""The model of trainings: fitted to episodes of a known model, it finds that model again."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import agents
import alma_env
from agents.policies.specs import policy_from
from agents.rl.environments.decision_env import DecisionEnv
from agents.rl.models.regression import logistic, logit
from agents.rl.models.stacked_models import StackedModels
from agents.rl.models.training_fit import examples_of, fit_trainings, models_for
from agents.rl.models.training_model import Trainings, validation_terms
from agents.rl.recorded import recordings
from agents.rl.recorded.recording import COLUMNS
from agents.rl.recorded.selection import recorded_groups
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv

from ..known_model import TICKS, record
from ..synthetic import TICKS as RECORDED_TICKS
from ..synthetic import recorded, waits, with_replay_and_growth


def test_the_fit_finds_the_model_of_the_episodes(truth, episodes):
    fitted = fit_trainings(episodes)
    assert fitted.quality == pytest.approx(0.3, rel=0.2)
    assert fitted.warm_residuals[..., 0].std() == pytest.approx(0.1, rel=0.15)
    assert fitted.warm_power == pytest.approx(0, abs=0.1)
    assert fitted.cold_residuals[..., 0].std() == pytest.approx(math.hypot(0.3, 0.0), rel=0.15)
    draw = np.random.default_rng(5)
    env = DecisionSurrogateVectorEnv(512, models=[fitted])
    other = DecisionSurrogateVectorEnv(512, models=[truth])
    env.reset(seed=0)
    other.reset(seed=1)
    for tick in range(1, TICKS):
        choice = draw.integers(7) if draw.random() < 0.5 else 0
        for one in (env, other):
            one.step([choice] * 512)
        if tick in (5, 15, 39):
            ours, theirs = (logit(one._error) for one in (env, other))
            assert abs(ours.mean() - theirs.mean()) < 0.12, tick
            assert ours.std() == pytest.approx(theirs.std(), rel=0.2), tick


@pytest.mark.parametrize("power", [0.5, -0.5])
def test_residuals_fall_with_the_size_of_the_training(truth, power):
    """Without quality, whose estimate has errors of any size. Residuals that grow with the size have one unit."""
    uneven = dataclasses.replace(truth, quality=0.0, warm_power=power)
    schedules = ["random", "random", "wait 1", "wait 2", "wait 4", "wait 8"]
    runs = [
        dataclasses.replace(record(uneven, schedule, 100 * number + seed), seed=seed)
        for number, schedule in enumerate(schedules)
        for seed in range(24)
    ]
    fitted = fit_trainings(runs)
    assert fitted.warm_power == pytest.approx(max(power, 0), abs=0.1)
    if power > 0:
        assert fitted.warm_residuals[..., 0].std() == pytest.approx(0.1, rel=0.15)


def test_errors_after_growth_say_nothing_of_trainings_before_it():
    """In the changed runs, the errors after growth rise with the number of trainings."""
    runs = with_replay_and_growth()
    changed = [dataclasses.replace(run, trainings=run.trainings.copy()) for run in runs]
    for run in changed:
        grown, error = np.cumsum(run.column("grow")) > 0, COLUMNS.index("error")
        rise = np.where(grown, np.log1p(np.arange(len(grown))), 0)
        run.trainings[:, error] = logistic(logit(run.trainings[:, error]) + rise)
    as_they_are, risen = (StackedModels([fit_trainings(of)]) for of in (runs, changed))
    inputs = [examples_of(run).inputs for run in runs]
    trainings = Trainings(
        *(np.concatenate(values) for values in zip(*(vars(one).values() for one in inputs), strict=True))
    )
    model, cold = np.zeros(len(trainings.size), int), trainings.trained == 0
    difference = risen.expected(model, trainings, cold)[0] - as_they_are.expected(model, trainings, cold)[0]
    before = trainings.grown == 0
    assert abs(difference[before & ~cold]).max() < 0.1  # both say something of the quality of the network
    assert abs(difference[~before & ~cold]).mean() > 0.3


def test_what_the_regression_misses_of_a_schedule_is_no_quality(truth):
    """Runs without quality, with higher errors in one schedule: the same for all seeds, so that no seed is bad."""
    lucky = dataclasses.replace(truth, quality=0.0)
    schedules = ["wait 1", "wait 2", "wait 3", "wait 4", "wait 5", "wait 6"]
    runs = [
        record(lucky, schedule, 10 * number + seed) for number, schedule in enumerate(schedules) for seed in range(8)
    ]
    for number, run in enumerate(runs):
        runs[number] = dataclasses.replace(run, seed=number % 8)
        if run.schedule == "wait 2":
            column = COLUMNS.index("error")
            run.trainings[:, column] = logistic(logit(run.trainings[:, column]) + 0.5)
    assert fit_trainings(runs).quality < 0.05
    alone = [dataclasses.replace(run, seed=0) for run in runs]  # nothing tells the schedule from the seed
    assert fit_trainings(alone).quality > 0.1


def test_a_fit_to_few_seeds_simulates_more_luck_than_its_residuals_have():
    """The same trainings, with four seeds and with a seed for each run: only the luck of a new seed differs."""
    # No two of these schedules begin with the same decisions, which would make more seeds comparable.
    runs = [run for run in waits(noise=0.05, seeds=range(4)) if run.schedule.startswith("wait")]
    few = fit_trainings(runs)
    many = fit_trainings([dataclasses.replace(run, seed=number) for number, run in enumerate(runs)])
    counts = np.array([len(run.trainings) for run in runs])
    of_seeds = counts.reshape(4, -1).sum(1)
    fewer, more = (n.sum() ** 2 / (n**2).sum() for n in (of_seeds, counts))
    assert fewer == pytest.approx(4, rel=0.01)
    ratio = math.sqrt((fewer + 1) / (fewer - 1) / ((more + 1) / (more - 1)))
    assert few.quality == pytest.approx(ratio * many.quality)
    for name in ("cold_residuals", "warm_residuals"):
        for end in (np.min, np.max):  # of each pool: the pools hold the same residuals, in another order
            here, there = (end(getattr(one, name), axis=1) for one in (few, many))
            assert np.allclose(here, there * [ratio, 1, 1])
    assert np.array_equal(few.warm, many.warm)


def test_one_seed_is_widened_as_two_are():
    runs = 2 * waits(noise=0.05)
    one, two = (
        fit_trainings([dataclasses.replace(run, seed=number // each) for number, run in enumerate(runs)])
        for each in (len(runs), len(runs) // 2)
    )
    assert one.quality == pytest.approx(two.quality, rel=1e-3)


@pytest.mark.parametrize(("stream", "width", "examples"), [("MNIST-ALMA-v0", 4, 12), ("Digits-ALMA-v0", 64, 7)])
def test_a_simulated_validation_error_is_as_noisy_as_a_share_of_the_validation_examples(stream, width, examples):
    """``examples`` validation examples come with each mega-batch; a training is on 1 mega-batch, 10, or nearly all."""
    (model,) = models_for(stream, "sm", width, None)
    env = DecisionSurrogateVectorEnv(4096, models=[model])
    one = np.ones(env.num_envs, int)
    for size in (1, 10, env.ticks - 1):
        env.reset(seed=size)
        for tick in range(1, size + 1):
            env.decide(one * (tick in (1, size)), tick * one, 0 * one, 0 * one)
        error = logistic(env._logit)
        expected = validation_terms(env._logit, one * size) @ model.validation[:, 1]
        noise = (env._validation[1] - expected) / np.sqrt(error * (1 - error) / (examples * size))
        inside = (env._validation[1] > 0) & (env._validation[1] < 1)
        assert inside.mean() > 0.5
        assert noise.std() == pytest.approx(1, rel=0.25), size


def test_too_few_trainings_are_refused(episodes):
    with pytest.raises(ValueError, match="no training in 1 runs"):
        fit_trainings([dataclasses.replace(episodes[0], trainings=np.zeros((0, 13)))])
    with pytest.raises(ValueError, match=r"1 trainings from a random initialisation and \d+ others in 1 runs: a model"):
        fit_trainings([next(one for one in episodes if one.schedule == "wait 13")])


@pytest.mark.filterwarnings("error")
def test_trainings_that_start_from_few_different_errors_are_fitted_without_a_warning():
    runs = waits(seeds=(0, 1))
    for run in runs:
        run.trainings[:, COLUMNS.index("error")] = 0.5
    assert np.isfinite(fit_trainings(runs).warm).all()


def test_a_full_pass_of_trainings_with_patience_is_that_of_the_decision_environment(tmp_path):
    settings = {"width": 4, "epochs": 60, "patience": 2}
    for schedule in ("fixed:wait=1", "doubling"):
        env = alma_env.make("Digits-ALMA-v0")
        agent = agents.make("sm", env, seed=0, policy=policy_from(schedule), **settings)
        agents.run(env, agent, seed=0, folder=tmp_path / schedule.replace(":", "-"))
    model = fit_trainings(recordings.read_runs(tmp_path))
    env = DecisionEnv("Digits-ALMA-v0", **settings)
    assert model.pass_flops == pytest.approx(env.pass_flops)


def test_a_replay_that_repeats_nothing_is_no_example_of_replay():
    once = [recorded(f"at {tick}", lambda t, tick=tick: (t == tick, 1, 0)) for tick in range(1, RECORDED_TICKS)]
    assert not fit_trainings([*waits(), *once]).replays


def test_the_error_after_a_restart_depends_on_the_error_before_only_after_growth():
    (runs,) = recorded_groups("Digits-ALMA-v0", "gens", 4, None, decisions=True)
    models = StackedModels([fit_trainings(runs)])
    before, one = np.array([-2.0, 1.0]), np.ones(2)
    for grown, depends in ((0, False), (3, True)):
        restarts = Trainings(before, 4 * one, 8 * one, 2 * one, 3 * one, 0 * one, grown * one, 0 * one)
        (low, high), _ = models.expected(np.zeros(2, np.int64), restarts, one > 0)
        assert (low < high) if depends else (low == high)  # the older members of the ensemble stay


def test_trainings_before_a_restart_leave_no_trace():
    """The mean errors after a restart, and after one more training, are those of a learner that waited before it."""
    (runs,) = recorded_groups("Digits-ALMA-v0", "sm", 4, None, decisions=True)
    episodes = 4_096
    env, one = DecisionSurrogateVectorEnv(episodes, models=[fit_trainings(runs)]), np.ones(episodes, int)

    def errors(trains_before):
        env.reset(seed=0)
        for tick in range(1, 12):
            train = one if tick > 8 else trains_before * one
            size = tick if tick > 8 else 1
            *_, infos = env.decide(train, size * one, (tick == 9) * one, 0 * one)
            if tick > 9:
                yield infos["vector_reward"][:, 0].mean()

    assert list(errors(1)) == pytest.approx(list(errors(0)), rel=0.03)


@pytest.mark.parametrize(("learner", "same"), [("gens", True), ("gmoe", False)])
def test_a_restart_directly_after_growth_is_growth_if_the_new_members_are_untrained(learner, same):
    (runs,) = recorded_groups("Digits-ALMA-v0", learner, 4, None, decisions=True)
    env, one = DecisionSurrogateVectorEnv(16, models=[fit_trainings(runs)]), np.ones(16, int)

    def error(restart):
        env.reset(seed=0)
        for tick in range(1, 4):
            *_, infos = env.decide(one, one, restart * (tick == 3) * one, (tick == 3) * one)
        return infos["vector_reward"][:, 0]

    assert np.array_equal(error(0), error(1)) is same


def test_recorded_restarts_directly_after_growth_continue():
    (runs,) = recorded_groups("Digits-ALMA-v0", "gens", 4, None, decisions=True)
    both = [(run.column("restart") > 0) & (run.column("grow") > 0) for run in runs]
    assert sum(map(np.sum, both)) > 100
    for run, growing in zip(runs, both, strict=True):
        cold = examples_of(run).cold
        assert not cold[growing].any()
        assert cold[(run.column("restart") > 0) & ~growing].all()
