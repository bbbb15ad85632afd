"""``alma surrogate``, ``alma policy`` and ``alma run --policy``."""

from __future__ import annotations

import json
import re

import pytest

from agents import finished
from agents.cli import main
from agents.waiting import recordings

pytest.importorskip("stable_baselines3")

QUICK = ["--set", "epochs=20", "ticks=8"]


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for when in (["--wait", "1", "2", "4", "8"], ["--policy", "doubling", "random:probability=0.5"]):
        assert main(["run", *QUICK, "--width", "4", "--seeds", "0", "1", *when, "--out", str(folder)]) == 0
    return folder


def test_from_runs_to_a_learned_policy_on_the_real_stream(capsys, runs, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    file, policy = tmp_path / "mine.npz", tmp_path / "deep" / "waiting.zip"
    status, out, _ = run(capsys, "surrogate", "fit", runs, "--out", file)
    assert status == 0
    assert re.search(r"Digits-ALMA-v0 +sm +4 +12 +6 ", out)
    assert len(recordings.load(file)) == 12

    status, out, _ = run(capsys, "surrogate", "validate", file, "--episodes", "4")
    assert status == 0
    rows = re.findall(r"(?m)^ *(\S.*?) +2 +(\d\.\d+) +(\d\.\d+) *$", out)
    real = {made.schedule: [] for made in recordings.load(file)}
    for made in recordings.load(file):
        real[made.schedule].append(made.cer)
    assert {name: float(cer) for name, cer, _ in rows} == {
        name: pytest.approx(sum(cers) / 2, abs=0.006) for name, cers in real.items()
    }
    assert re.search(r"rank correlation of 6 schedules: -?\d\.\d+", out)

    learning = ["policy", "train", "Digits-ALMA-Wait-Surrogate-v0", "--steps", "600", "--set", f"recorded={file}"]
    assert run(capsys, *learning, "--out", policy)[0] == 0
    status, _, err = run(capsys, *learning, "--out", policy, "--evaluate", "0")
    assert status == 2
    assert "--evaluate: the recorded runs were made with agent.stage.epochs=20, protocol.ticks=8" in err
    arguments = ["run", *QUICK, "--width", "4", "--policy", policy, "doubling", "--out", tmp_path / "with"]
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert "learned" in out
    assert "doubling" in out
    config = json.loads(next((tmp_path / "with").rglob("*learned*/config.json")).read_text())
    assert config["agent"]["policy"]["name"] == "learned"


def test_a_policy_is_played_on_the_real_streams_as_soon_as_it_is_learned(capsys, tmp_path):
    file, out = tmp_path / "waiting.zip", tmp_path / "runs"
    words = ["policy", "train", "Digits-ALMA-Wait-v0", "--steps", "10", "--set", "width=2", "ticks=5", "epochs=2"]
    status, said, _ = run(capsys, *words, "--out", file, "--evaluate", "3", "4", "--runs", out)
    assert status == 0
    assert f"alma run Digits-ALMA-v0 --agent sm --out {out} --width 2 --set ticks=5 epochs=2 --seeds 3 4" in said
    assert sorted(run.config["seed"] for run in finished.find(out)[0]) == [3, 4]


def test_a_policy_that_says_only_when_is_played_with_the_replay_and_the_growth_it_was_learned_with(capsys, tmp_path):
    file, out = tmp_path / "waiting.zip", tmp_path / "runs"
    settings = ["learner=gens", "replay=true", "grow=true", "width=2", "ticks=4", "epochs=1"]
    words = ["policy", "train", "Digits-ALMA-Wait-v0", "--steps", "10", "--set", *settings, "--out", file]
    status, said, _ = run(capsys, *words, "--evaluate", "3", "--runs", out)
    assert status == 0
    assert f"--policy {file}:replay=true,growth=every" in said
    (played,) = finished.find(out)[0]
    assert played.config["agent"]["policy"] | {"digest": ""} == {
        "name": "learned",
        "digest": "",
        "replay": True,
        "growth": "every",
    }


def test_what_cannot_be_done_is_said_in_one_line(capsys, runs, tmp_path):
    for arguments, message in (
        (["surrogate", "fit", runs, "--out", tmp_path / "x.json"], "let it end in .npz"),
        (["surrogate", "fit", tmp_path, "--out", tmp_path / "x.npz"], "no run in it"),
        (["surrogate", "validate", "EMNIST"], "no recorded runs of it are shipped"),
        (["surrogate", "validate", "x", "--episodes", "0"], "--episodes 0: at least 1 is needed"),
        (["policy", "train", "CartPole-v1", "--out", tmp_path / "x.zip"], "no decision environment; the ids are"),
        (["policy", "train", "Digits-ALMA-Wait-v0", "--out", tmp_path / "x"], "let the file end in .zip"),
        (["run", "--policy", "doubling", "--wait", "3"], "--wait beside --policy doubling: a policy says when"),
        (["run", "--policy", "doubling", "--replay"], "with replay as --policy doubling:replay=true"),
        (["run", "--policy", "doubling", "doubling"], "doubling stands there twice"),
        (["run", "--policy", "sometimes"], "there is no such policy; choose one of"),
        (["run", "--agent", "oracle", "--policy", "doubling"], "it trains at every tick; leave both out"),
    ):
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
