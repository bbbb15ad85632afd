"""The model of trainings: fitted to episodes of a known model, it finds that model again."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import agents
import alma_env
from agents.cli import main
from agents.policies.choices import REPLAY, RESTART, TRAIN, decision_of, megabatches_with
from agents.policies.specs import policy_from
from agents.rl.environments.decision_env import DecisionEnv
from agents.rl.models.regression import POOL_SIZE, logistic, logit
from agents.rl.models.stacked_models import StackedModels
from agents.rl.models.training_fit import examples_of, fit_trainings, models_for
from agents.rl.models.training_model import TrainingModel, Trainings, validation_terms
from agents.rl.recorded import recordings
from agents.rl.recorded.recording import COLUMNS, Recording
from agents.rl.recorded.recordings import load, save
from agents.rl.recorded.selection import recorded_groups, shipped_file
from agents.rl.surrogates.decision_fidelity import HeldOut, fidelity, held_out, simulate
from agents.rl.surrogates.decision_surrogate import DecisionSurrogateVectorEnv
from agents.rl.surrogates.fidelity import spearman

from ..synthetic import TICKS as RECORDED_TICKS
from ..synthetic import recorded, waits

TICKS = 40


@pytest.fixture(scope="module")
def truth() -> TrainingModel:
    """A model whose trainings have a quality of 0.3 and residuals of 0.1."""
    fitted = fit_trainings(waits(noise=0.05, seeds=range(4)))
    draw = np.random.default_rng(0)
    residuals = np.zeros((8, POOL_SIZE, 3))
    residuals[..., 0] = 0.1 * draw.standard_normal((8, POOL_SIZE))
    warm = np.zeros_like(fitted.warm)
    warm[[0, 1, 3, 5]] = -0.4, -0.3, 0.5, -0.2
    cold = np.zeros_like(fitted.cold)
    cold[:2] = 1.0, -0.6
    return dataclasses.replace(
        fitted,
        ticks=TICKS,
        warm=warm,
        cold=cold,
        low=-8.0,
        high=4.0,
        quality=0.3,
        warm_residuals=residuals,
        warm_power=0.0,
        cold_residuals=3 * residuals[:6],
        replays=True,
        restarts=True,
    )


def record(truth: TrainingModel, schedule: str, seed: int) -> Recording:
    """An episode of a model as a recording: ``random`` choices, or trainings at every ``wait``-th tick."""
    env = DecisionSurrogateVectorEnv(1, models=[truth])
    env.reset(seed=seed)
    draw = np.random.default_rng(seed)
    rows = []
    for tick in range(1, TICKS + 1):
        if schedule == "random":
            choice = draw.integers(7) if draw.random() < 0.5 else 0
        else:
            choice = int(tick % int(schedule.split()[1]) == 0)
        pending, stages = int(env._pending[0]), int(env._stages[0])
        size = int(megabatches_with(REPLAY[choice], tick, pending, TICKS))
        one = decision_of(choice, TICKS)
        *_, infos = env.step([choice])
        ended = "final_info" in infos
        if TRAIN[choice] and not ended:  # the last tick's error is overwritten by the next episode
            error, loss, wrong = float(env._error[0]), *env._validation[:2, 0]
            window = math.nan if one.window is None else one.window
            restart = bool(RESTART[choice]) and stages > 0
            rows.append(
                [tick, pending, 9 * size, one.replay, 0, loss, wrong, error, error, 1e6 * size, 100, window, restart]
            )
    return Recording("Digits-ALMA-v0", "sm", 4, "{}", schedule, seed, TICKS, 10, 0.9, 100, np.array(rows, np.float64))


@pytest.fixture(scope="module")
def episodes(truth) -> list[Recording]:
    schedules = ["random", "random", "wait 1", "wait 2", "wait 4", "wait 8", "wait 13"]
    return [
        dataclasses.replace(record(truth, schedule, 100 * number + seed), seed=seed)
        for number, schedule in enumerate(schedules)
        for seed in range(24)
    ]


@pytest.fixture(scope="module")
def few(episodes) -> list[Recording]:
    """The runs of five seeds, for the tests of commands: their numbers are tested on all."""
    return [one for one in episodes if one.seed < 5]


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


def test_held_out_runs_of_the_same_law_are_simulated_faithfully(episodes):
    found = fidelity(held_out(episodes, episodes=100))
    assert found.schedules == 6  # 5 waits, and the random choices, which share a name
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
        trained = run.column("tick").astype(int)
        assert (run.column("restart").any() and np.isfinite(run.column("window")).any()) == (schedule == "random")
        cer = simulate(still, run, episodes=2, seed=0)
        if trained[-1] < TICKS:
            assert np.allclose(cer, run.cer)


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


def test_the_shipped_runs_make_a_faithful_surrogate_of_the_digits():
    runs = [
        one for one in load(shipped_file("Digits-ALMA-v0", decisions=True)) if (one.learner, one.width) == ("sm", 4)
    ]
    found = fidelity(held_out(runs))
    assert len(runs) == 560
    assert found.schedules == 20
    assert found.ranks > 0.95
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
    runs = [one for one in few if one.schedule in ("random", "wait 4")]
    twins = [dataclasses.replace(one, schedule="twin") for one in runs if one.schedule == "wait 4"]
    once, twice = held_out(runs, episodes=8), held_out([*runs, *twins], episodes=8)
    assert [one.schedule for one in twice] == [one.schedule for one in once]
    assert all(np.array_equal(one.simulated, other.simulated) for one, other in zip(once, twice, strict=True))


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
