"""Learning a schedule, in Python and with commands."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agents.cli import main
from agents.policies.learned.next_training import WITH_GROWTH
from agents.policies.learned.priced_features import FEATURES
from agents.policies.learned.schedule import LearnedSchedule, ScheduleNetwork
from agents.rl.learning.train_schedule import train_schedule
from agents.rl.surrogates.next_training_env import NextTrainingVectorEnv

from ..synthetic import TICKS


def test_a_network_learns_to_stop_when_passes_are_dear_and_a_file_keeps_it(model, tmp_path):
    pytest.importorskip("stable_baselines3")
    network = train_schedule([model], pass_price=(0.0, 100.0), steps=40_000, about={"learned_on": ["law"]})
    spent = []
    for price in (0.0, 100.0):
        env = NextTrainingVectorEnv(64, [model], pass_price=price)
        observations, _ = env.reset(seed=3)
        comp, going = np.zeros(64), np.ones(64, bool)
        for _ in range(TICKS):
            observations, _, ended, _, infos = env.step(network.decide(observations))
            comp[going] -= infos["vector_reward"][going, 1]
            going &= ~ended
        spent.append(comp.mean())
    assert spent[1] < 0.5 < spent[0]
    network.save(tmp_path / "schedule.npz")
    again = ScheduleNetwork.read(tmp_path / "schedule.npz")
    seen = np.random.default_rng(0).random((50, len(FEATURES)), np.float32)
    assert (again.decide(seen) == network.decide(seen)).all()
    assert (again.known.low == network.known.low).all()
    env = NextTrainingVectorEnv(64, [model], pass_price=50.0)
    observations, _ = env.reset(seed=4)
    known = []
    for _ in range(TICKS):
        known.append(again.known.contain(observations))
        observations, *_ = env.step(again.decide(observations))
    assert np.mean(known) > 0.95
    assert again.about["learned_on"] == ["law"]
    assert again.about["pass_price"] == [0.0, 100.0]


def test_a_network_learns_to_restart_dead_networks(model):
    pytest.importorskip("stable_baselines3")
    restarts = []
    for dead in (0.0, 0.2):
        network = train_schedule([model], pass_price=0, steps=150_000, dead=dead)
        assert network.about["dead"] == dead
        env = NextTrainingVectorEnv(400, [model], dead=0.5)
        env.reset(seed=3)
        observations, *_, infos = env.step(np.zeros(400, int))
        chosen = np.array([one.restart for one in (*network.menu.trainings, network.menu.trainings[0])])
        guesses = np.isclose(infos["error"], 1 - np.exp(-model.guess_loss))
        restarts.append(chosen[network.decide(observations[guesses])].mean())
    assert restarts[0] < 0.5 < 0.9 < restarts[1]


def test_a_network_learns_to_grow_when_memory_is_free_and_not_when_it_is_dear(growing):
    pytest.importorskip("stable_baselines3")
    prices = {"pass_price": (1.0, 1.0), "memory_price": (0.0, 1.0)}
    network = train_schedule([growing], **prices, steps=100_000)
    grown = []
    for price in (0.0, 1.0):
        env = NextTrainingVectorEnv(64, [growing], pass_price=1.0, memory_price=price)
        observations, _ = env.reset(seed=3)
        size, going = np.ones(64), np.ones(64, bool)
        for _ in range(TICKS):
            observations, _, ended, _, _ = env.step(network.decide(observations))
            size[going] = np.maximum(size, env._parameters() / 100)[going]
            going &= ~ended
        grown.append(size.mean())
    assert network.menu is WITH_GROWTH
    assert grown[1] < 1.1 < grown[0]


def test_a_schedule_for_one_price_can_be_read_again(model, tmp_path):
    pytest.importorskip("stable_baselines3")
    train_schedule([model], pass_price=40, steps=1).save(tmp_path / "schedule.npz")
    policy = LearnedSchedule(tmp_path / "schedule.npz", pass_price=40.0)
    assert ScheduleNetwork.read(policy.path).about["pass_price"] == [40.0, 40.0]


@pytest.mark.parametrize("seed", [-1, 2**33])
def test_a_seed_that_the_libraries_cannot_use_is_refused(model, seed):
    with pytest.raises(ValueError, match=f"seed={seed}: must be from 0 to .*; use seed=0"):
        train_schedule([model], steps=1, seed=seed)


def test_commands_learn_run_and_judge_a_schedule(tmp_path, capsys):
    pytest.importorskip("stable_baselines3")
    file, out = tmp_path / "schedule.npz", str(tmp_path / "runs")
    words = ["policy", "train-schedule", "Digits-ALMA-v0", "--width", "4", "--steps", "2e4", "--out", str(file)]
    assert main(words) == 0
    assert "learned on Digits-ALMA-v0: sm 4" in capsys.readouterr().out
    run = ["run", "--width", "4", "--set", "epochs=5", "ticks=10", "--seeds", "0", "1", "--out", out]
    assert main([*run, "--policy", f"{file}:pass_price=10", f"{file}:pass_price=40", "doubling"]) == 0
    assert main([*run, "--wait", "1", "5"]) == 0
    capsys.readouterr()
    assert main(["policy", "judge", out, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = told["rivalries"]
    assert [front["schedules"] for front in told["fronts"]] == ["learned", "fixed waits", "all other schedules"]
    assert all(0 < front["hypervolume"]["mean"] < 1 for front in told["fronts"][1:])
    assert {(row["rival"], row["pass_price"]) for row in rows} == {
        (rival, price) for rival in ("best fixed wait", "doubling", "best schedule") for price in (10.0, 40.0)
    }
    for row in rows:
        assert row["difference"]["mean"] == pytest.approx(row["cost"]["mean"] - row["rival_cost"]["mean"])
    doubling = {row["pass_price"]: row["rival_cost"]["mean"] for row in rows if row["rival"] == "doubling"}
    assert doubling[40.0] - doubling[10.0] == pytest.approx(30, rel=0.05)  # it trains once on each mega-batch
    assert main(["policy", "judge", out, "--picture", str(tmp_path / "drawn" / "rivals.png")]) == 0
    assert (tmp_path / "drawn" / "rivals.png").stat().st_size > 10_000
    assert "Holm's correction over the prices" in " ".join(capsys.readouterr().out.split())


def test_each_stream_gives_those_of_the_widths_that_it_has(tmp_path, capsys):
    words = ["policy", "train-schedule", "Digits-ALMA-v0", "CIFAR10-ALMA-v0", "--width", "4", "16", "--steps", "1"]
    assert main([*words, "--out", str(file := tmp_path / "schedule.npz")]) == 0
    capsys.readouterr()
    learned_on = ["Digits-ALMA-v0: sm 4", "Digits-ALMA-v0: sm 16", "CIFAR10-ALMA-v0: sm 4"]
    assert ScheduleNetwork.read(file).about["learned_on"] == learned_on


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.zip"], "let its name end in .npz"),
        (["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--steps", "inf"], "--steps inf: must be"),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--dead", "1"],
            "--dead=1.0: must be a probability from 0 to below 1, such as --dead=0.01",
        ),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--pass-price", "5", "1"],
            "--pass-price 5 1: must be two ascending prices",
        ),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--memory-price", "0.5", "0.1"],
            "--memory-price 0.5 0.1: must be two ascending prices from 0 on, such as 0 0.1",
        ),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--learner", "gens", "gmeo"],
            "--learner gmeo: no given stream has runs of it; recorded are Digits-ALMA-v0: gens 4, gmoe 4, sm 4/8",
        ),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "--out", "a.npz", "--width", "4", "5"],
            "--width 5: no given stream has runs of it; recorded are Digits-ALMA-v0: gens 4, gmoe 4, ",
        ),
        (
            ["policy", "train-schedule", "Digits-ALMA-v0", "CIFAR10-ALMA-v0", "--out", "a.npz", "--width", "8"],
            "CIFAR10-ALMA-v0: none of --width 8; recorded are Digits-ALMA-v0: gens 4, gmoe 4, ",
        ),
        (
            ["policy", "judge", ".", "--subject", "doubling", "--pass-price", "1", "--memory-price", "-1"],
            "--memory-price -1: a price must be a finite number",
        ),
        (["policy", "judge", "."], "no ledger.jsonl in or below it"),
        (["run", "--policy", "missing.npz"], "policy='missing.npz': file not found"),
        (["run", "--policy", "learned:price=3"], "'price=3' is not a field"),
    ],
)
def test_wrong_words_are_refused(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err
