"""The surrogate: what it is fitted to comes out of it again, its arithmetic is the environment's; others' checks."""

from __future__ import annotations

import dataclasses
import json
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import agents
import alma_env
from agents.policies import Decision, fixed_wait
from agents.waiting import recordings
from agents.waiting.curve import Curve, fit, logit, terms
from agents.waiting.export import episode_of, to_minari
from agents.waiting.features import NAMES
from agents.waiting.fidelity import held_out, rank_correlation, simulate
from agents.waiting.prices import Prices
from agents.waiting.recordings import COLUMNS, Recording
from agents.waiting.shipped import curves_for, shipped
from agents.waiting.surrogate import SurrogateEnv, SurrogateVectorEnv
from agents.waiting.train import train_policy

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3

from agents.waiting.sb3 import SurrogateVecEnv

TICKS, CLASSES = 20, 10


def law(last, size, seen, stages, replay, grown):
    """A learning curve of the family that is fitted, with a validation that knows the truth."""
    error = -0.3 + 0.5 * last - 0.4 * np.log(size) - 0.1 * np.log(seen) - 0.2 * replay - 0.3 * np.log1p(grown)
    return error, 0.7 + 0.5 * error, 1 / (1 + math.exp(-error))


def recorded(schedule, decide, seed=0, noise=0.0, width=4):
    """A run on the law, with trainings (tick, replay, grow) where `decide` says so."""
    draw = np.random.default_rng([seed, 7])
    rows, last, grown, before = [], float(logit(np.float64(0.9))), 0, 0
    for tick in range(1, TICKS + 1):
        train, replay, grow = decide(tick)
        if not train:
            continue
        grow = grow if rows else 0  # the first training never grows
        size, grown = (tick if replay else tick - before), grown + grow
        error, loss, wrong = law(last, size, tick, len(rows), replay, grown)
        last, before = error + noise * draw.standard_normal(), tick
        parameters = 100 * (1 + grown)
        flops = 1e6 * (1 + grown) * (2 + size)
        rate = 1 / (1 + math.exp(-last))
        rows.append([tick, size, 9 * size, replay, grow, math.exp(loss), wrong, rate / 2, rate, flops, parameters])
        rows[-1][1] = tick - (rows[-2][0] if len(rows) > 1 else 0)
    return Recording(
        env="Digits-ALMA-v0",
        learner="sm",
        width=width,
        settings="{}",
        schedule=schedule,
        seed=seed,
        ticks=TICKS,
        classes=CLASSES,
        error=0.9,
        parameters=100,
        trainings=np.array(rows, np.float64),
    )


def waits(noise=0.0, width=4, seeds=(0,)):
    made = []
    for seed in seeds:
        for wait in (1, 2, 3, 4, 5, 7, 10, 20):
            made.append(
                recorded(f"wait {wait}", lambda t, w=wait: (t % w == 0 or t == TICKS, 0, 0), seed, noise, width)
            )
        draw = np.random.default_rng(seed)
        for n in range(4):
            at = draw.random(TICKS) < 0.4
            made.append(
                recorded(f"random {n}", lambda t, at=at: (bool(at[t - 1]) or t == TICKS, 0, 0), seed, noise, width)
            )
    return made


def with_replay_and_growth():
    draw = np.random.default_rng(3)
    made = []
    for n in range(30):
        flags = (draw.random((TICKS, 3)) < 0.5).astype(int)
        made.append(recorded(f"any {n}", lambda t, flags=flags: tuple(flags[t - 1].tolist()), n))
    return made


# --- fitting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recordings_of", [waits, with_replay_and_growth])
def test_a_curve_of_the_family_is_found_again(recordings_of):
    made = recordings_of()
    curve = fit(made)
    assert np.abs(curve.residuals[..., :2]).max() < 0.02  # the validation error is only nearly of the family
    for run in made[:6]:
        assert simulate(curve, run, 3, seed=0) == pytest.approx(run.cer, rel=0.01)


def test_costs_are_lines_in_the_size_of_a_training_for_each_number_of_growth_steps():
    curve = fit(with_replay_and_growth())
    steps = np.arange(len(curve.parameters))
    assert curve.parameters == pytest.approx(100 * (1 + steps))
    known = curve.flops[1:6]
    assert known[:, 1] == pytest.approx(1e6 * (1 + steps[1:6]), rel=1e-6)
    assert known[:, 0] == pytest.approx(2e6 * (1 + steps[1:6]), rel=1e-5)


def test_noise_comes_back_in_its_size():
    made = waits(noise=0.3, seeds=range(12))
    every_tick = [run for run in made if run.schedule == "wait 1"]
    simulated = simulate(fit(made), every_tick[0], 256, seed=0)
    real = np.array([run.cer for run in every_tick])
    assert simulated.mean() == pytest.approx(real.mean(), abs=3 * real.std() / np.sqrt(len(real)))
    assert real.std() / 2 < simulated.std() < 2 * real.std()


def test_schedules_that_were_left_out_are_ranked():
    compared = held_out(waits(noise=0.05, seeds=(0, 1)), episodes=8)
    assert len(compared) == 12
    assert all(one.runs == 2 for one in compared)
    assert rank_correlation(compared) > 0.9


def test_a_curve_on_validation_is_of_that_error_and_asks_for_it():
    made = waits()
    curve = fit(made, "validation")
    for run in made[:6]:
        halved = (run.errors[1:] / 2 * (run.errors[1:] < 0.9)).sum() + 0.9 * (run.errors == 0.9).sum()
        assert simulate(curve, run, 3, seed=0) == pytest.approx(halved, rel=0.03)
    unrecorded = made[0].trainings.copy()
    unrecorded[3, COLUMNS.index("held_out_error")] = np.nan
    with pytest.raises(ValueError, match="was made without it; run again with `alma run --record --fresh`"):
        fit([dataclasses.replace(made[0], trainings=unrecorded), *made[1:]], "validation")
    with pytest.raises(ValueError, match="reward_on='train': must be 'test' or 'validation'"):
        fit(made, "train")


def test_too_little_to_fit_or_to_rank_is_said():
    with pytest.raises(ValueError, match="1 trainings in 1 runs: a curve needs at least 16; record runs"):
        fit([recorded("wait 20", lambda t: (t == 20, 0, 0))])
    with pytest.raises(ValueError, match="no training in 1 runs"):
        fit([dataclasses.replace(waits()[0], trainings=np.empty((0, len(COLUMNS))))])
    with pytest.raises(ValueError, match="1 schedules \\(wait 1\\): ranks need at least 3"):
        held_out(waits()[:1])


# --- recordings ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """Two finished runs of the single model and one of a growing ensemble with replay."""
    folder = tmp_path_factory.mktemp("runs")
    for name, id, policy in (
        ("a", "sm", fixed_wait(2)),
        ("b", "sm", fixed_wait(5)),
        ("c", "gens", fixed_wait(3, replay=True, growth="every")),
    ):
        env = alma_env.make("Digits-ALMA-v0", ticks=6)
        agent = agents.make(id, env, width=4, epochs=1, policy=policy, seed=1)
        agents.run(env, agent, 1, folder / name, record=name != "b")
    return folder


def test_a_run_is_recorded_with_all_that_its_folder_says(run_folder):
    made = recordings.read_run(run_folder / "c")
    ledger = agents.run_folder.read_ledger(run_folder / "c")
    assert made.errors.tolist() == [row.error for row in ledger]
    assert made.cer == pytest.approx(ledger.score().cer)
    assert made.column("flops").sum() == ledger.comp
    assert made.column("tick").tolist() == [3, 6]
    assert made.column("replay").tolist() == [1, 1]
    assert made.column("grow").tolist() == [0, 1]
    assert made.column("parameters").tolist() == [ledger[3].parameters, ledger[6].parameters]
    assert (made.env, made.learner, made.width, made.seed, made.ticks) == ("Digits-ALMA-v0", "gens", 4, 1, 6)


def test_a_run_records_the_error_on_the_validation_parts_of_the_whole_stream_if_asked(run_folder):
    assert np.isnan(recordings.read_run(run_folder / "b").column("held_out_error")).all()
    env = gym.make("alma_env:Digits-ALMA-Wait-v0", ticks=6, width=4, epochs=1, reward_on="validation")
    env.reset(seed=1)
    infos = [env.step(int(tick % 2 == 0))[-1] for tick in range(1, 7)]
    expected = [-info["reward_vector"][0] for info in infos[1::2]]
    assert recordings.read_run(run_folder / "a").column("held_out_error").tolist() == expected


def test_runs_that_differ_in_schedule_and_seed_alone_belong_together(run_folder):
    grouped = recordings.groups(recordings.read_runs(run_folder))
    assert sorted((key[1], len(runs)) for key, runs in grouped.items()) == [("gens", 1), ("sm", 2)]


def test_a_file_gives_back_what_was_saved(run_folder, tmp_path):
    made = recordings.read_runs(run_folder)
    recordings.save(made, tmp_path / "made.npz")
    for one, other in zip(made, recordings.load(tmp_path / "made.npz"), strict=True):
        np.testing.assert_array_equal(one.trainings, other.trainings)
        assert dataclasses.replace(one, trainings=None) == dataclasses.replace(other, trainings=None)


def test_runs_that_cannot_be_recorded_are_named(run_folder, tmp_path):
    with pytest.raises(ValueError, match="no run in it; make some with `alma run"):
        recordings.read_runs(tmp_path)
    with pytest.raises(ValueError, match="recorded='.*none.npz': no recorded runs can be read there"):
        recordings.load(tmp_path / "none.npz")
    for file in (run_folder / "a").iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    rows = (tmp_path / "ledger.jsonl").read_text().splitlines()
    (tmp_path / "ledger.jsonl").write_text("\n".join(rows[:4]) + "\n")
    with pytest.raises(ValueError, match="3 of 6 ticks are answered; let the run end first"):
        recordings.read_run(tmp_path)
    changed = json.loads(rows[1]) | {"error": 0.5}  # tick 1, at which the run only waited
    (tmp_path / "ledger.jsonl").write_text("\n".join([rows[0], json.dumps(changed), *rows[2:]]) + "\n")
    with pytest.raises(ValueError, match="its errors change where it did not train"):
        recordings.read_run(tmp_path)
    (tmp_path / "stages.jsonl").unlink()
    with pytest.raises(ValueError, match="stages.jsonl: missing; .*run again with --fresh"):
        recordings.read_run(tmp_path)


@pytest.mark.parametrize("kind", ["train", "multi"])
def test_an_exported_episode_is_what_the_environment_would_have_shown(kind, tmp_path):
    decide = {"train": lambda t: (t % 2 == 0, 0, 0), "multi": lambda t: (t % 2 == 0, t == 4, t >= 4)}[kind]
    alma = alma_env.make("Digits-ALMA-v0", ticks=6)
    policy = Scripted(tuple(tuple(int(x) for x in decide(t)) for t in range(1, 7)))
    agents.run(alma, agents.make("gens", alma, width=4, epochs=1, policy=policy, seed=2), 2, tmp_path / "run")
    prices = {"flops_price": 50.0, "parameter_price": 3.0}
    env = gym.make("alma_env:Digits-ALMA-Wait-v0", ticks=6, learner="gens", width=4, epochs=1, actions=kind, **prices)
    observation, _ = env.reset(seed=2)
    observations, rewards, vectors, actions = [observation], [], [], []
    for tick in range(1, 7):
        action = np.array(decide(tick), int) * decide(tick)[0] if kind == "multi" else int(decide(tick)[0])
        observation, reward, *_, info = env.step(action)
        observations.append(observation)
        rewards.append(reward)
        vectors.append(info["reward_vector"])
        actions.append(action)
    episode = episode_of(recordings.read_run(tmp_path / "run"), kind, Prices(50.0, 3.0))
    assert np.array_equal(episode.actions, np.array(actions))
    np.testing.assert_allclose(episode.observations, observations, atol=1e-6)
    np.testing.assert_allclose(episode.reward_vectors, vectors, rtol=1e-12)
    np.testing.assert_allclose(episode.rewards, rewards, rtol=1e-12)


@dataclasses.dataclass(frozen=True)
class Scripted:
    """Decisions tick by tick."""

    flags: tuple[tuple[int, int, int], ...]

    def __call__(self, now):
        train, replay, grow = self.flags[now.tick - 1]
        return Decision(bool(train), bool(replay and train), grow * train)


def test_recorded_episodes_become_a_minari_data_set(run_folder, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    made = [run for run in recordings.read_runs(run_folder) if run.learner == "sm"]
    to_minari(made, "alma/test-v0")
    saved = minari.load_dataset("alma/test-v0")
    assert saved.total_steps == 12
    for run, episode in zip(made, saved.iterate_episodes(), strict=True):
        assert episode.rewards.sum() == pytest.approx(run.error - run.cer)
        assert episode.terminations.tolist() == [False] * 5 + [True]
    assert saved.recover_environment().unwrapped.learner == "sm"
    with pytest.raises(ValueError, match="Minari has a data set of this name"):
        to_minari(made, "alma/test-v0")


# --- the environment -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def curve() -> Curve:
    return fit(waits(noise=0.1, seeds=(0, 1)))


@pytest.fixture
def file(tmp_path):
    recordings.save([*waits(noise=0.1), *waits(noise=0.1, width=9)], tmp_path / "waits.npz")
    return tmp_path / "waits.npz"


@pytest.mark.parametrize("width", [4, [4, 9], None])
def test_the_checkers_of_gymnasium_and_stable_baselines3_pass(file, width, recwarn):
    env = gym.make("alma_env:Digits-ALMA-Wait-Surrogate-v0", recorded=str(file), width=width)
    check_env(env.unwrapped, skip_render_check=True)
    check_env_of_sb3(env.unwrapped)
    assert not [str(warning.message) for warning in recwarn if issubclass(warning.category, UserWarning)]


@pytest.mark.parametrize("reward_on", ["test", "validation"])
@pytest.mark.parametrize("stream", ["Digits", "MNIST"])
def test_what_is_shipped_makes_a_surrogate_without_any_file(stream, reward_on):
    env = gym.make(f"alma_env:{stream}-ALMA-Wait-Surrogate-v0", reward_on=reward_on)
    check_env(env.unwrapped, skip_render_check=True)
    check_env_of_sb3(env.unwrapped)
    assert len(env.unwrapped.vector.curves) == 2  # two widths


def test_what_is_shipped_for_the_digits_ranks_schedules_that_it_was_not_fitted_to():
    for runs in recordings.groups(recordings.load(shipped("Digits-ALMA-v0"))).values():
        assert rank_correlation(held_out(runs, episodes=4)) > 0.7


def test_its_spaces_are_those_of_the_real_one(curve):
    real = gym.make("alma_env:Digits-ALMA-Wait-v0", width=4).unwrapped
    ours = SurrogateVectorEnv(3, curves=[curve])
    assert ours.single_observation_space == real.observation_space
    assert ours.single_action_space == real.action_space
    assert ours.reward_space == real.reward_space


def test_gymnasium_makes_a_vector_of_it(file):
    envs = gym.make_vec(
        "alma_env:Digits-ALMA-Wait-Surrogate-v0",
        5,
        vectorization_mode="vector_entry_point",
        recorded=str(file),
        width=4,
    )
    observations, _ = envs.reset(seed=0)
    assert observations in envs.observation_space
    observations, rewards, *_ = envs.step(envs.action_space.sample())
    assert observations in envs.observation_space
    assert rewards.shape == (5,)


def test_without_noise_it_is_the_law_by_hand():
    env = SurrogateVectorEnv(2, curves=[dataclasses.replace(fit(waits()), residuals=np.zeros((8, 512, 3)))])
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.array([0, 0]))
    observations, rewards, ended, _, infos = env.step(np.array([1, 0]))  # three mega-batches, at tick 3
    error, loss, wrong = law(float(logit(np.float64(0.9))), 3, 3, 0, 0, 0)
    assert rewards == pytest.approx([-1 / (1 + math.exp(-error)), -0.9], rel=0.01)
    seen = dict(zip(NAMES, observations[0].tolist(), strict=True))
    assert seen["validation_loss"] == pytest.approx(math.exp(loss) / math.log(10) / 2, rel=0.02)
    assert seen["validation_error"] == pytest.approx(wrong, rel=0.02)
    assert (seen["tick"], seen["pending"], seen["pending_share"]) == pytest.approx((4 / 20, 1 / 20, 1 / 4))
    assert infos["comp"] == pytest.approx([5e6, 0], rel=0.01)
    assert not ended.any()


def test_an_episode_that_ends_begins_anew_and_tells_how_it_ended(curve):
    env = SurrogateVectorEnv(4, curves=[curve], flops_price=1.0)
    env.reset(seed=1)
    returns = np.zeros(4)
    for tick in range(1, TICKS + 1):
        observations, rewards, ended, truncated, infos = env.step(np.array([1, 0, tick % 2, 1]))
        returns += rewards
        assert ended.tolist() == [tick == TICKS] * 4
        assert not truncated.any()
    spent = -infos["reward_vector"][:, 1]  # of the last tick
    assert infos["final_info"]["cer"][1] == pytest.approx(0.9 * (TICKS + 1))
    assert returns[1] == pytest.approx(-0.9 * TICKS)
    assert spent[0] > 0
    assert spent[1] == 0
    final = np.stack(infos["final_obs"])
    assert final[:, NAMES.index("tick")] == pytest.approx(1)
    assert final[1, NAMES.index("pending")] == 1
    assert final[0, NAMES.index("pending")] == 0
    assert observations[:, NAMES.index("tick")] == pytest.approx(1 / TICKS)
    assert observations[:, NAMES.index("trained")].tolist() == [0] * 4
    assert infos["cer"] == pytest.approx([0.9] * 4)


def test_a_seed_fixes_all_draws_and_one_episode_is_the_first_of_many(curve):
    def errors(env):
        env.reset(seed=5)
        return np.stack([env.step(np.ones(env.num_envs, int))[1] for _ in range(2 * TICKS)])

    assert np.array_equal(errors(SurrogateVectorEnv(8, curves=[curve])), errors(SurrogateVectorEnv(8, curves=[curve])))
    single, vector = SurrogateEnv(curves=[curve]), SurrogateVectorEnv(1, curves=[curve])
    single.reset(seed=5)
    vector.reset(seed=5)
    for _ in range(TICKS):
        observation, reward, ended, _, info = single.step(1)
        observations, rewards, ends, _, infos = vector.step(np.array([1]))
        assert reward == rewards[0]
        if not ended:
            assert np.array_equal(observation, observations[0])
    assert ended
    assert ends[0]
    assert info["cer"] == infos["final_info"]["cer"][0]
    with pytest.raises(RuntimeError, match="without an episode: call reset"):
        single.step(0)


def test_a_mask_begins_some_episodes_anew(curve):
    env = SurrogateVectorEnv(3, curves=[curve])
    env.reset(seed=0)
    env.step(np.array([1, 1, 1]))
    observations, infos = env.reset(options={"reset_mask": np.array([True, False, True])})
    assert observations[:, NAMES.index("tick")] * TICKS == pytest.approx([1, 2, 1])
    assert infos["comp"][1] > 0
    with pytest.raises(ValueError, match="reset_mask of shape \\(2,\\): must be one bool for each of 3"):
        env.reset(options={"reset_mask": np.array([True, False])})


def test_several_curves_are_drawn_by_episode(file):
    env = SurrogateVectorEnv(400, stream="Digits-ALMA-v0", recorded=file)
    one = dataclasses.replace(env.curves[0], first_error=0.5)
    env = SurrogateVectorEnv(400, curves=[one, env.curves[1]])
    _, infos = env.reset(seed=0)
    assert set(infos["cer"]) == {0.5, 0.9}
    assert 120 < (infos["cer"] == 0.5).sum() < 280


def test_replay_and_growth_act_where_they_were_recorded():
    curve = fit(with_replay_and_growth())
    env = SurrogateVectorEnv(3, curves=[curve], actions="multi")
    env.reset(seed=0)
    flags = np.array([[1, 0, 0]] * 3)
    env.step(flags)
    _, rewards, *_, infos = env.step(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]]))
    assert rewards[1] > rewards[0]  # replay helps, by the law
    assert rewards[2] > rewards[0]
    assert -infos["reward_vector"][:, 2] * 1e6 == pytest.approx([100, 100, 200])
    assert infos["comp"][1] > infos["comp"][0]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_envs": 0}, "num_envs=0: at least 1 episode"),
        ({"actions": "multi"}, "no recorded run has replay, so nothing is known of it; use actions='train'"),
        ({"replay": True}, "no recorded run has replay"),
        ({"grow": True}, "no recorded run has grow"),
    ],
)
def test_what_was_never_recorded_is_not_made_up(curve, keywords, message):
    with pytest.raises(ValueError, match=message):
        SurrogateVectorEnv(**({"curves": [curve]} | keywords))


def test_runs_that_are_not_there_are_named_with_the_remedy(file):
    with pytest.raises(ValueError, match="width=5: no runs in waits.npz \\(it has width \\[4, 9\\]\\)"):
        curves_for("Digits-ALMA-v0", "sm", 5, file)
    with pytest.raises(ValueError, match="learner='ens': no runs in waits.npz"):
        curves_for("Digits-ALMA-v0", "ens", None, file)
    with pytest.raises(ValueError, match="stream='EMNIST-ALMA-v0': no recorded runs of it are shipped"):
        curves_for("EMNIST-ALMA-v0", "sm", None, None)


def test_steps_that_mean_nothing_are_refused(curve):
    env = SurrogateVectorEnv(3, curves=[curve])
    with pytest.raises(RuntimeError, match="step\\(\\) before reset"):
        env.step(np.zeros(3, int))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions of shape \\(2,\\): must be \\(3,\\)"):
        env.step(np.zeros(2, int))


# --- learning ----------------------------------------------------------------------------------------------


def test_stable_baselines3_sees_the_same_episodes(curve):
    env = SurrogateVecEnv(SurrogateVectorEnv(3, curves=[curve]))
    reference = SurrogateVectorEnv(3, curves=[curve])
    env.seed(4)
    assert np.array_equal(env.reset(), reference.reset(seed=4)[0])
    for tick in range(1, TICKS + 1):
        actions = np.array([1, 0, tick % 2])
        observations, rewards, ended, told = env.step(actions)
        theirs, their_rewards, their_ends, _, infos = reference.step(actions)
        assert np.array_equal(observations, theirs)
        assert rewards == pytest.approx(their_rewards)
        assert np.array_equal(ended, their_ends)
    for row in range(3):
        assert np.array_equal(told[row]["terminal_observation"], infos["final_obs"][row])
        assert told[row]["cer"] == infos["final_info"]["cer"][row]


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "dqn"])
def test_a_policy_is_learned_and_drives_a_run_that_goes_on_after_a_kill(algorithm, file, tmp_path):
    settings = {"learning_starts": 10} if algorithm == "dqn" else {}
    model = train_policy(
        "Digits-ALMA-Wait-Surrogate-v0",
        algorithm=algorithm,
        steps=400,
        episodes_at_once=8,
        settings=settings,
        recorded=str(file),
        width=4,
    )
    model.save(tmp_path / "policy.zip")
    policy = agents.LearnedPolicy(tmp_path / "policy.zip")
    env = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", env, width=4, epochs=1, policy=policy)
    ledger = agents.run(env, agent, 0, tmp_path / "run")
    decided = [row.tick for row in ledger if "training" in row.flops]
    assert decided == [record.tick for record in agent.history]
    assert all(row.flops["policy"] > 0 for row in ledger.rows[1:])  # deciding is charged, too

    moved = tmp_path / "elsewhere.zip"
    (tmp_path / "policy.zip").rename(moved)
    again = agents.make("sm", env, width=4, epochs=1, policy=agents.LearnedPolicy(moved))
    assert agents.run(env, again, 0, tmp_path / "run").to_json() == ledger.to_json()


def test_a_policy_decides_as_its_model_does_on_the_real_environment(file, tmp_path):
    model = train_policy("Digits-ALMA-Wait-Surrogate-v0", steps=64, episodes_at_once=2, recorded=str(file), width=4)
    model.save(tmp_path / "policy.zip")
    env = gym.make("alma_env:Digits-ALMA-Wait-v0", width=4, epochs=1)
    observation, _ = env.reset(seed=0)
    ended, actions = False, []
    while not ended:
        action, _ = model.predict(observation, deterministic=True)
        actions.append(int(action))
        observation, _, ended, _, _ = env.step(action)
    alma = alma_env.make("Digits-ALMA-v0")
    agent = agents.make("sm", alma, width=4, epochs=1, policy=agents.LearnedPolicy(tmp_path / "policy.zip"))
    agents.run(alma, agent, 0)
    assert [record.tick for record in agent.history] == [n + 1 for n, action in enumerate(actions) if action]


def test_files_that_hold_no_policy_are_refused(tmp_path):
    from stable_baselines3 import PPO

    with pytest.raises(ValueError, match="no.zip': there is no such file; give what model.save"):
        agents.LearnedPolicy(tmp_path / "no.zip")
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(ValueError, match="text.zip': not a model of PPO, A2C or DQN"):
        agents.LearnedPolicy(tmp_path / "text.zip")
    PPO("MlpPolicy", "CartPole-v1").save(tmp_path / "cart.zip")
    with pytest.raises(ValueError, match="a policy that decides when to wait is trained on an environment such as"):
        agents.LearnedPolicy(tmp_path / "cart.zip")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env_id": "CartPole-v1"}, "env_id='CartPole-v1': no decision environment; the ids are .*Digits-ALMA-Wait-v0"),
        ({"algorithm": "sac"}, "algorithm='sac': must be one of ppo, a2c, dqn"),
        ({"steps": 0}, "steps=0: at least 1 decision"),
    ],
)
def test_training_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        train_policy(**({"env_id": "Digits-ALMA-Wait-Surrogate-v0"} | arguments))


def test_terms_are_what_the_docstring_of_the_module_says():
    one = terms(np.array([0.5]), np.array([2.0]), np.array([4.0]), np.array([0.0]), np.array([1.0]), np.array([0.0]))
    a, b = math.log(2), math.log(4)
    expected = [1, a, a * a, b, b * b, a * b, 0.5, 0.5 * a, 1, a, a * a, 0, 0, 1, a, b, 0, 0]
    assert one.tolist() == [pytest.approx(expected)]
