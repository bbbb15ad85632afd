"""Episodes that are exported from recordings equal those of the decision environment."""

from __future__ import annotations

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest

import agents
import agents.runs.run_folder
import alma_env
from agents.analysis.prices import Prices
from agents.catalogue.data_facts import known_facts
from agents.catalogue.spec import RunSpec, resolve
from agents.cli import main
from agents.policies.waiting import Decision
from agents.rl.environments.export import episode_of, to_minari
from agents.rl.environments.run_keywords import keywords_of
from agents.rl.recorded import recordings

from ..synthetic import recorded, restarting, waits, with_replay_and_growth


@pytest.mark.parametrize("kind", ["train", "multi"])
def test_an_exported_episode_equals_the_episode_of_the_environment(kind, tmp_path):
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
        vectors.append(info["vector_reward"])
        actions.append(action)
    episode = episode_of(recordings.read_run(tmp_path / "run"), kind, Prices(50.0, 3.0))
    assert np.array_equal(episode.actions, np.array(actions))
    np.testing.assert_allclose(episode.observations, observations, atol=1e-6)
    np.testing.assert_allclose(episode.reward_vectors, vectors, rtol=1e-12)
    np.testing.assert_allclose(episode.rewards, rewards, rtol=1e-12)


@pytest.mark.parametrize("kind", ["train", "multi"])
def test_a_run_with_two_growth_steps_before_one_training_has_no_episode(kind):
    twice = recorded("at 6,7", lambda tick: (tick % 5 == 0, 0, 2 * (tick == 10)))
    with pytest.raises(ValueError, match="'sm' with 'at 6,7' grows by 2 steps before one training.*leave this run out"):
        episode_of(twice, kind)


@dataclasses.dataclass(frozen=True)
class Scripted:
    """Decisions tick by tick."""

    flags: tuple[tuple[int, int, int], ...]

    def __call__(self, now):
        train, replay, grow = self.flags[now.tick - 1]
        return Decision(bool(train), bool(replay and train), grow * train)


def test_recorded_episodes_are_written_as_a_minari_data_set(run_folder, tmp_path, monkeypatch):
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
    with pytest.raises(ValueError, match="alma/test-v0.*choose another id"):
        to_minari(made, "alma/test-v0")


def test_an_export_leaves_out_and_names_runs_that_no_action_expresses(tmp_path, monkeypatch, capsys, recwarn):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    file, runs = tmp_path / "own.npz", waits(noise=0.1)
    command = ["surrogate", "export", str(file), "alma/own-v0"]
    recordings.save([*runs, *map(restarting, runs[:11])], file)
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "11 of 23 runs are left out:\nwait 1, restart, seed 0: replays a part of the earlier data" in said
    assert "… and 1 more\n" in said
    assert minari.load_dataset("alma/own-v0").total_episodes == 12
    assert not [warning for warning in recwarn if "out of date" in str(warning.message)]
    recordings.save([restarting(run) for run in runs], file)
    assert main([*command[:-1], "alma/none-v0"]) == 2
    assert "no action of Wait-v0 can express a decision of each of its 12 runs" in capsys.readouterr().err
    recordings.save(with_replay_and_growth(), file)
    assert main([*command[:-1], "alma/train-v0"]) == 2
    assert "use kind='multi', or --actions multi of `alma surrogate export`" in capsys.readouterr().err


def test_a_data_set_is_of_one_stream_and_its_environment_has_the_prices_of_its_rewards(tmp_path, monkeypatch, capsys):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    runs = waits(noise=0.1)
    to_minari(runs, "alma/priced-v0", prices=Prices(50.0, 3.0))
    saved = minari.load_dataset("alma/priced-v0")
    env = saved.recover_environment().unwrapped
    assert (env.reward.prices.flops, env.reward.prices.parameters) == (50.0, 3.0)
    episode = next(saved.iterate_episodes())
    assert episode.rewards == pytest.approx(env.reward.prices.reward(episode.infos["vector_reward"][1:]))
    recordings.save([*runs, dataclasses.replace(runs[0], env="MNIST-ALMA-v0")], tmp_path / "mixed.npz")
    assert main(["surrogate", "export", str(tmp_path / "mixed.npz"), "alma/mixed-v0"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "recordings on Digits-ALMA-v0, MNIST-ALMA-v0: the runs of a data set have one environment; export" in said
    assert list(minari.list_local_datasets()) == ["alma/priced-v0"]


BAD_IDS = ["badid", "alma/test", "bad id-v0", "alma/x y-v0", "../up-v0", "/top-v0", "a//b-v0", "x-v1e"]


@pytest.mark.parametrize("dataset_id", BAD_IDS)
def test_an_id_that_minari_cannot_list_is_refused_before_anything_is_written(
    dataset_id, run_folder, tmp_path, monkeypatch
):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    made = [run for run in recordings.read_runs(run_folder) if run.learner == "sm"]
    with pytest.raises(ValueError, match=r"dataset_id=.*must be NAMESPACE/NAME-vVERSION"):
        to_minari(made, dataset_id)
    assert [path.name for path in tmp_path.rglob("*")] in ([], ["minari"])
    assert minari.list_local_datasets() == {}


def test_a_data_set_recovers_the_environment_of_its_runs(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    alma = alma_env.make("Digits-ALMA-v0", ticks=4, valid_fraction=0.2)
    keywords = {"width": 4, "epochs": 2, "members": 2}
    agents.run(alma, agents.make("ens", alma, **keywords, wait=2), 0, tmp_path / "runs" / "one")
    made = recordings.read_runs(tmp_path / "runs")
    to_minari(made, "alma/ens-v0")
    env = minari.load_dataset("alma/ens-v0").recover_environment().unwrapped
    env.reset(seed=0)
    for _ in range(4):
        env.step(env.alma.tick % 2)
    assert (env.learner, env.alma.ticks, env.alma.valid_fraction) == ("ens", 4, 0.2)
    assert env.agent.config["stage"]["epochs"] == env.agent.config["members"] == 2
    assert [row.error for row in env.ledger] == pytest.approx(made[0].errors)
    agents.run(alma, agents.make("ens", alma, **keywords | {"epochs": 3}, wait=2), 0, tmp_path / "runs" / "two")
    with pytest.raises(ValueError, match="recordings with different epochs: .*equal hyper-parameters"):
        to_minari(recordings.read_runs(tmp_path / "runs"), "alma/mixed-v0")
    assert list(minari.list_local_datasets()) == ["alma/ens-v0"]


def test_the_keywords_of_runs_on_another_split_name_the_split_and_not_the_data():
    settings = {"split": "letters", "ticks": 20}
    config = resolve(RunSpec("EMNIST-ALMA-v0", "sm", 4, settings=settings), known_facts("EMNIST-ALMA-v0", settings))
    run = dataclasses.replace(waits()[0], env="EMNIST-ALMA-v0", settings=recordings.settings_of(config))
    assert keywords_of(run) == {"ticks": 20, "split": "letters"}


def test_a_recorded_hyper_parameter_that_this_version_lacks_is_refused():
    settings = {"agent": {"label_smoothing": 0.3}}
    with pytest.raises(ValueError, match="label_smoothing=0.3: a recorded run of 'sm' has this hyper-parameter, which"):
        keywords_of(dataclasses.replace(waits()[0], settings=json.dumps(settings)))
