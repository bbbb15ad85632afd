"""Learned schedules on real runs: their environment, the runs that they learn from, and the command."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import urllib.error
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import agents
import alma_env
from agents.cli import main
from agents.policies.learned.next_training import WITH_GROWTH, WITHOUT_GROWTH, NextTraining
from agents.policies.learned.schedule import LearnedSchedule, ScheduleNetwork
from agents.rl.environments.full_pass import full_pass_flops
from agents.rl.learning.real_runs import FIRST_SEED, RealRuns, player
from agents.rl.learning.real_training_env import RealStream, RealTrainingEnv
from agents.rl.models.training_fit import fit_trainings
from agents.rl.recorded import recordings
from agents.rl.recorded.recording import COLUMNS
from agents.rl.surrogates.next_training_env import NextTrainingVectorEnv
from alma_env.errors import AlmaError, DivergedError

from ..synthetic import TICKS, network_of, restarting, waits, with_replay_and_growth

FAST = {"width": 4, "epochs": 2}
PRICES = {"pass_price": 7.0, "memory_price": 0.25}
KINDS = [*{(one.replay, one.restart, one.grow): one for one in WITH_GROWTH.trainings}.values()]
SETTINGS = {"agent": {"stage": {"epochs": 2}}}


def recorded_runs(settings=SETTINGS, env="Digits-ALMA-v0"):
    """Recorded runs with replay, restarts and few epochs."""
    made = [run for run in with_replay_and_growth() if not run.column("grow").any()]
    made += [restarting(run) for run in waits(noise=0.05)]
    replayed = [dataclasses.replace(run, trainings=run.trainings.copy()) for run in waits(noise=0.05, seeds=(1,))]
    for run in replayed:
        run.trainings[1:, COLUMNS.index("replay")] = 1
    text = json.dumps(settings)
    return [dataclasses.replace(run, env=env, settings=text) for run in [*made, *replayed]]


@pytest.fixture(scope="module")
def model():
    return fit_trainings(recorded_runs())


def stream_of(model, learner="sm", reward_on="test"):
    stream = RealStream.of(recorded_runs()[0], model, reward_on)
    return dataclasses.replace(stream, learner=learner)


def deciding(menu, decision=None, seed=0):
    """A network for all prices with random weights, or one that always makes the same decision."""
    network = dataclasses.replace(network_of(seed, menu=menu), about={name: [0, 100] for name in PRICES})
    if decision is not None:
        network.layers[-1][1][decision] = 1e6
    return network


def played(env, network, seed):
    """The rewards of a run in which the network decides."""
    seen, _ = env.reset(seed=seed)
    rewards, ended = [], False
    while not ended:
        seen, reward, ended, _, _ = env.step(network.decide(seen))
        rewards.append(reward)
    return rewards


def real_run(learner, network, seed, tmp_path, record=False):
    """The same run by the policy: environment, agent, and ledger."""
    network.save(tmp_path / "schedule.npz")
    policy = LearnedSchedule(tmp_path / "schedule.npz", **PRICES, grows=learner == "gens")
    alma = alma_env.make("Digits-ALMA-v0")
    agent = agents.make(learner, alma, policy=policy, seed=seed, **FAST)
    return alma, agent, agents.run(alma, agent, seed, record=record)


def test_the_rule_decides_on_a_stream_of_one_mega_batch():
    env = alma_env.make("Digits-ALMA-v0", ticks=1)
    agent = agents.make("sm", env, policy=LearnedSchedule(), seed=0, **FAST)
    agents.run(env, agent, 0)
    assert [(stage.tick, stage.by) for stage in agent.history] == [(1, "rule")]


@pytest.mark.parametrize("ticks", [2, 3, 4, 5])
def test_a_stream_that_ends_before_the_first_training_has_it_at_its_last_tick(ticks, model, tmp_path):
    """A factor of 5 waits for tick 4. To train no more is a decision that a short stream does not change."""
    stream = stream_of(model)
    real = RealTrainingEnv(dataclasses.replace(stream, keywords={**stream.keywords, "ticks": ticks}))
    trained = {}
    for decision in (WITHOUT_GROWTH.trainings.index(NextTraining(5.0, "none")), WITHOUT_GROWTH.stop):
        deciding(WITHOUT_GROWTH, decision).save(tmp_path / "schedule.npz")
        env = alma_env.make("Digits-ALMA-v0", ticks=ticks)
        agent = agents.make("sm", env, policy=LearnedSchedule(tmp_path / "schedule.npz"), seed=0, **FAST)
        agents.run(env, agent, 0)
        trained[decision] = [stage.tick for stage in agent.history]
        real.reset(seed=0)
        real.step(decision)
        assert [stage.tick for stage in real.decisions.agent.history] == trained[decision]
    assert list(trained.values()) == [[min(ticks, 4)], []]


@pytest.mark.parametrize(
    ("learner", "kind"),
    [("sm", 0), ("gens", 1), ("sm", NextTraining(2.5, "all", restart=True)), *(("gens", kind) for kind in KINDS)],
)
def test_an_episode_is_the_run_of_the_policy_and_costs_as_much(learner, kind, model, tmp_path):
    env = RealTrainingEnv(stream_of(model, learner), **PRICES)
    if isinstance(kind, int):
        network = deciding(env.menu, seed=kind)
    else:
        network = deciding(env.menu, env.menu.trainings.index(dataclasses.replace(kind, factor=2.5)))
    rewards = played(env, network, seed=FIRST_SEED)
    alma, agent, ledger = real_run(learner, network, FIRST_SEED, tmp_path)

    ours = env.decisions.ledger
    for name in ("digest", "error", "parameters", "inference_flops"):
        assert [getattr(row, name) for row in ours] == [getattr(row, name) for row in ledger]
    spent = [{name: count for name, count in row.flops.items() if name != "policy"} for row in ledger]
    assert [row.flops for row in ours] == spent
    assert not any(stage.by for stage in agent.history)
    full = full_pass_flops(learner, alma, {**FAST, **agent.config["stage"]})
    passes = sum(sum(flops.values()) for flops in spent) / full
    size = sum(row.parameters for row in ledger.rows[1:]) / ledger[0].parameters
    cost = sum(row.error for row in ledger.rows[1:]) + 7.0 * passes + 0.25 * size
    scale = NextTrainingVectorEnv(1, [model])._references(np.zeros(1, int), *PRICES.values())[0]
    assert -sum(rewards) * scale == pytest.approx(cost)


def test_the_reward_can_be_on_the_validation_parts(model, tmp_path):
    env = RealTrainingEnv(stream_of(model, reward_on="validation"))
    network = deciding(env.menu, env.menu.trainings.index(NextTraining(5.0, "all")))
    rewards = played(env, network, FIRST_SEED)
    alma, agent, _ = real_run("sm", network, FIRST_SEED, tmp_path, record=True)
    first, second = agent.history  # at the ticks 4 and 20
    untrained = alma.validation_error(agents.make("sm", alma, seed=FIRST_SEED, **FAST).predictor)
    errors = [3 * untrained + first.held_out_error, 15 * first.held_out_error + second.held_out_error]
    assert rewards == pytest.approx(-np.array(errors) / env._scale)
    assert first.held_out_error != env.decisions.ledger[4].error


def test_the_checker_of_gymnasium_accepts_the_environment(model):
    env = RealTrainingEnv(stream_of(model), pass_price=(0.0, 100.0))
    check_env(env, skip_render_check=True)
    _, info = env.reset(seed=5)
    assert env.reset(seed=5)[1]["pass_price"] == info["pass_price"] != env.reset(seed=6)[1]["pass_price"]
    assert np.array_equal(env.reset(seed=np.int64(5))[0], env.reset(seed=5)[0])
    with pytest.raises(TypeError, match="seed=0.5: must be an integer"):
        env.reset(seed=0.5)
    env.step(np.True_)
    assert [record.tick for record in env.decisions.agent.history] == [1]
    env.step(WITHOUT_GROWTH.stop)
    with pytest.raises(RuntimeError, match="no episode runs; call reset"):
        env.step(0)
    with pytest.raises(ValueError, match=r"action=21: not in Discrete\(21\)"):
        env.step(21)


def test_runs_take_the_streams_in_turn_and_do_not_depend_on_the_processes(model):
    narrow, wide = stream_of(model), stream_of(model)
    wide = dataclasses.replace(wide, keywords=FAST | {"width": 6})
    makers = [partial(RealTrainingEnv, one, pass_price=(0.0, 100.0)) for one in (narrow, wide)]
    network = deciding(WITHOUT_GROWTH)
    with player(makers, workers=2, seed=3) as play:
        runs = play(network, [4, 1])
    with player(makers, seed=3) as play:
        again = play(network, [4, 1])
    for one, other in zip(runs, again, strict=True):
        assert all(np.array_equal(value, vars(other)[name]) for name, value in vars(one).items())
    for one, number, make in zip(runs, [4, 1], makers, strict=True):
        env = make()
        first, _ = env.reset(seed=FIRST_SEED + number)
        rewards = [env.step(decision)[1] for decision in one.decisions]
        assert np.array_equal(one.observations[0], first)
        assert np.array_equal(one.rewards, rewards)
        assert 1 <= len(rewards) <= TICKS


def test_a_process_that_ends_is_named(model):
    with (
        pytest.raises(AlmaError, match="a process of the 2 that play real runs ended"),
        player([partial(os._exit, 1)], workers=2) as play,
    ):
        play(deciding(WITHOUT_GROWTH), [0])


@pytest.mark.parametrize("workers", [1, 2])
def test_an_environment_that_cannot_be_made_gives_its_own_error(workers):
    with (
        pytest.raises(ValueError, match="invalid literal for int"),
        player([partial(int, "no environment")], workers=workers) as play,
    ):
        play(deciding(WITHOUT_GROWTH), [0])


def test_an_update_counts_each_run_to_its_end(model):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO

    from agents.rl.learning.fine_tuning import rollouts_of

    env = RealTrainingEnv(stream_of(model), pass_price=10.0)
    with player([lambda: env]) as play:
        runs = play(deciding(WITHOUT_GROWTH), range(3))
    buffer = rollouts_of(PPO("MlpPolicy", env, gamma=1.0, gae_lambda=1.0, device="cpu"), runs)
    returns = np.concatenate([run.rewards[::-1].cumsum()[::-1] for run in runs])
    assert buffer.returns[:, 0] == pytest.approx(returns, abs=1e-5)
    assert buffer.full


def test_no_streams_or_processes_are_refused(model):
    for streams, count, workers in (([], 1, 1), ([stream_of(model)], -1, 1), ([stream_of(model)], 1, 0)):
        with pytest.raises(ValueError, match=f"{len(streams)} streams, count={count}, workers={workers}: must be"):
            RealRuns(streams, count, workers)


def test_the_command_goes_on_with_real_runs(tmp_path, capsys):
    pytest.importorskip("stable_baselines3")
    file = tmp_path / "few-epochs.npz"
    wide = [dataclasses.replace(run, width=8) for run in recorded_runs()]
    recordings.save([*recorded_runs(), *wide], file)
    words = ["policy", "train-schedule", str(file), "--steps", "1000", "--pass-price", "1", "20"]
    threads = torch.get_num_threads()
    assert main([*words, "--out", str(tmp_path / "simulated.npz")]) == 0
    capsys.readouterr()
    real_runs = ["--real", "5", "--real-on", "Digits-ALMA-v0:4", "--workers", "1"]
    assert main([*words, "--out", str(tmp_path / "real.npz"), *real_runs]) == 0
    assert torch.get_num_threads() == threads
    printed = " ".join(capsys.readouterr().out.split())
    assert "5 of 5 real runs; the mean cost of the newest 5 is " in printed
    assert "learned on the surrogates; the real runs follow" in printed
    assert "learned on Digits-ALMA-v0: sm 4; Digits-ALMA-v0: sm 8, then on 5 real runs" in printed
    simulated, real = (ScheduleNetwork.read(tmp_path / f"{name}.npz") for name in ("simulated", "real"))
    assert real.about == {
        **simulated.about,
        "real_runs": 5,  # of the narrow network only
        "real_streams": ["Digits-ALMA-v0: sm 4"],
        "real_seed": FIRST_SEED,
    }
    steps = [np.abs(one - other).max() for one, other in zip(simulated.layers[0], real.layers[0], strict=True)]
    assert all(0 < step < 0.05 for step in steps)
    assert (real.known.low <= simulated.known.low).all()
    assert (real.known.high >= simulated.known.high).all()
    run = ["run", "--width", "4", "--set", "epochs=2", "--seeds", "1", "--out", str(tmp_path / "runs")]
    assert main([*run, "--policy", f"{tmp_path / 'real.npz'}:pass_price=5"]) == 0


def test_a_failure_of_a_real_run_keeps_what_the_updates_before_learned(tmp_path, capsys, monkeypatch):
    pytest.importorskip("stable_baselines3")
    from agents.rl.learning import fine_tuning

    @contextmanager
    def diverging(*arguments, **keywords):
        with player(*arguments, **keywords) as play:
            yield lambda network, numbers: fail() if 4 in numbers else play(network, numbers)

    def fail():
        raise DivergedError("the training diverged")

    monkeypatch.setattr(fine_tuning, "_RUNS_AT_ONCE", 2)
    monkeypatch.setattr(fine_tuning, "player", diverging)
    file, out = tmp_path / "few-epochs.npz", tmp_path / "schedule.npz"
    recordings.save(recorded_runs(), file)
    words = ["policy", "train-schedule", str(file), "--steps", "1000", "--pass-price", "1", "20", "--out", str(out)]
    assert main([*words, "--real", "6", "--workers", "1"]) == 2
    assert "the training diverged" in capsys.readouterr().err
    kept = ScheduleNetwork.read(out)
    assert kept.about["real_runs"] == 4
    assert main(words) == 0
    assert not np.array_equal(kept.layers[0][0], ScheduleNetwork.read(out).layers[0][0])


def test_a_network_that_cannot_be_written_leaves_the_file_before(tmp_path, monkeypatch):
    def full(raw, **_):
        raw.write(b"PK")
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "schedule.npz"
    deciding(WITHOUT_GROWTH).save(file)
    before = file.read_bytes()
    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left"):
        deciding(WITHOUT_GROWTH, seed=1).save(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["schedule.npz"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--real", "-1"], "--real -1: must be a number of real runs from 0 on, such as --real 2000"),
        (["--workers", "2"], "--workers 2: only real runs use processes; give --real 2000, too"),
        (["--real-on", "Digits-ALMA-v0"], "--real-on Digits-ALMA-v0: it chooses real runs; give --real 2000, too"),
        (
            ["--real", "1", "--width", "4", "--real-on", "Digits-ALMA-v0:4", "Digits-ALMA-v0:5"],
            "--real-on Digits-ALMA-v0:5: no surrogate has this stream and width; give some of Digits-ALMA-v0, ",
        ),
        (["--real", "1", "--workers", "0"], "--workers 0: must be at least 1; leave it out to fill the cores"),
    ],
)
def test_wrong_words_are_refused(words, message, capsys, tmp_path):
    assert main(["policy", "train-schedule", "Digits-ALMA-v0", "--out", str(tmp_path / "a.npz"), *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_runs_of_other_data_are_refused_before_the_training(capsys, tmp_path):
    recordings.save(recorded_runs({"protocol": {"digest": "0123"}}), tmp_path / "other.npz")
    words = ["policy", "train-schedule", str(tmp_path / "other.npz"), "--real", "1", "--out", str(tmp_path / "a.npz")]
    assert main(words) == 2
    assert "sm 4: protocol.digest is 0123 in the recorded runs and" in " ".join(capsys.readouterr().err.split())


def test_missing_data_are_named_before_the_training(capsys, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setenv("ALMA_DATA", str(tmp_path / "none"))
    file = tmp_path / "fashion.npz"
    recordings.save(recorded_runs(env="FashionMNIST-ALMA-v0"), file)
    assert main(["policy", "train-schedule", str(file), "--real", "1", "--out", str(tmp_path / "a.npz")]) == 2
    assert "FashionMNIST in" in (told := " ".join(capsys.readouterr().err.split()))
    assert "set the environment variable ALMA_DATA" in told
