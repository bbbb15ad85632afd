"""``alma policy train``, and the runs of the policy after it."""

from __future__ import annotations

import itertools

import pytest

from agents.cli import main
from agents.runs import load

from ..running import run

pytest.importorskip("stable_baselines3")


def test_a_policy_is_run_on_the_real_streams_after_it_is_learned(capsys, tmp_path):
    file, out = tmp_path / "waiting.zip", tmp_path / "runs"
    words = ["policy", "train", "Digits-ALMA-Wait-v0", "--steps", "10", "--set", "width=2", "ticks=5", "epochs=2"]
    status, shown, _ = run(capsys, *words, "--out", file, "--evaluate", "3", "4", "--runs", out)
    assert status == 0
    assert f"alma run Digits-ALMA-v0 --agent sm --out {out} --width 2 --set ticks=5 epochs=2 --seeds 3 4" in shown
    assert sorted(run.config["seed"] for run in load.find(out)[0]) == [3, 4]


def test_a_policy_that_decides_only_when_runs_with_the_replay_and_growth_of_its_problem(capsys, tmp_path):
    file, out = tmp_path / "waiting.zip", tmp_path / "runs"
    settings = ["learner=gens", "replay=true", "grow=true", "width=2", "ticks=4", "epochs=1"]
    words = ["policy", "train", "Digits-ALMA-Wait-v0", "--steps", "10", "--set", *settings, "--out", file]
    status, shown, _ = run(capsys, *words, "--evaluate", "3", "--runs", out)
    assert status == 0
    assert f"--policy {file}:replay=true,growth=every" in shown
    (played,) = load.find(out)[0]
    assert played.config["agent"]["policy"] | {"digest": ""} == {
        "name": "learned",
        "digest": "",
        "replay": True,
        "growth": "every",
    }


def test_a_policy_runs_at_the_exact_price_of_its_problem(capsys, tmp_path):
    file, out = tmp_path / "priced.zip", tmp_path / "runs"
    settings = ["pass_price=(0,1.23456789)", "width=2", "ticks=4", "epochs=1"]
    words = ["policy", "train", "Digits-ALMA-Wait-v1", "--steps", "10", "--set", *settings, "--out", file]
    status, shown, _ = run(capsys, *words, "--evaluate", "3", "--runs", out)
    assert status == 0
    assert f"--policy {file}:pass_price=0 {file}:pass_price=1.23456789" in shown
    assert {played.config["agent"]["policy"]["pass_price"] for played in load.find(out)[0]} == {0, 1.23456789}


@pytest.fixture
def stop_at_update(monkeypatch):
    """A function that lets Ctrl-C arrive at an update of PPO."""
    from stable_baselines3 import PPO

    def stop(number):
        updates = itertools.count(1)

        def update(model):
            if next(updates) == number:
                raise KeyboardInterrupt
            learn(model)

        monkeypatch.setattr(PPO, "train", update)

    learn = PPO.train
    return stop


LEARNING = {
    "train": (
        ["Digits-ALMA-Wait-Surrogate-v1", "--set", "episodes_at_once=8", "width=4"],
        "x.zip",
        "stopped after 480 decisions",
    ),
    "train-schedule": (["Digits-ALMA-v0", "--width", "4"], "x.npz", "stopped after 49,152 trainings"),
}


@pytest.mark.parametrize("command", LEARNING)
def test_ctrl_c_keeps_what_was_learned_beside_an_earlier_file(capsys, tmp_path, stop_at_update, command):
    given, name, after = LEARNING[command]
    file, stopped = tmp_path / name, tmp_path / name.replace("x", "x-stopped")
    file.write_bytes(b"an earlier network")
    stop_at_update(3)
    status, shown, err = run(capsys, "policy", command, *given, "--out", file)
    assert status == 130
    assert f"{stopped}: the " in shown
    assert after in shown
    assert "stopped; the same command begins again" in err
    assert file.read_bytes() == b"an earlier network"
    words = ["--width", "4", "--set", "epochs=1", "--policy", f"{stopped}:pass_price=0"]
    assert run(capsys, "run", "Digits-ALMA-v0", *words, "--out", tmp_path / "runs")[0] == 0


@pytest.mark.parametrize("command", LEARNING)
def test_ctrl_c_before_the_first_update_keeps_nothing(capsys, tmp_path, stop_at_update, command):
    given, name, _ = LEARNING[command]
    stop_at_update(1)
    assert run(capsys, "policy", command, *given, "--out", tmp_path / name)[0] == 130
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("evaluation", [[], ["--evaluate", "0"]])
@pytest.mark.parametrize(
    ("env", "similar"),
    [
        ("Digits", "Digits-ALMA-Wait-v0 or Digits-ALMA-Wait-v1"),
        ("Digits-ALMA-v0", "Digits-ALMA-Wait-v0 or Digits-ALMA-Wait-v1"),
        ("alma_env:Digits-ALMA-Wait-Surrogat-v0", "Digits-ALMA-Wait-Surrogate-v0 or Digits-ALMA-Wait-Surrogate-v1"),
    ],
)
def test_learning_on_an_unknown_environment_suggests_decision_environments(capsys, tmp_path, env, similar, evaluation):
    status, _, err = run(capsys, "policy", "train", env, "--out", tmp_path / "x.zip", *evaluation)
    assert status == 2
    assert err.startswith(f"alma policy: env_id={env!r}: not a decision environment; the ids are MNIST-ALMA-Wait-v0, ")
    assert err.endswith(f"; did you mean {similar}?\n")


def test_keywords_of_the_training_are_none_of_the_runs_after_it(capsys, tmp_path):
    words = [
        "policy",
        "train",
        "Digits-ALMA-Wait-Surrogate-v1",
        "--steps",
        "40",
        "--set",
        "width=4",
        "episodes_at_once=2",
        "dead=0.01",
    ]
    assert main([*words, "--out", str(tmp_path / "a.zip"), "--evaluate", "0", "--runs", str(tmp_path / "runs")]) == 0
