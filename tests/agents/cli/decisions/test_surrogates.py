"""From recorded runs to a surrogate and a policy, and what the commands refuse before they work."""

from __future__ import annotations

import json
import re

import pytest

from agents.analysis.schedules.names import schedule_name
from agents.cli import main
from agents.rl.recorded import recordings

from ..running import run

pytest.importorskip("stable_baselines3")

QUICK = ["--set", "epochs=20", "ticks=8"]


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
    real = {schedule_name(made.schedule): [] for made in recordings.load(file)}
    for made in recordings.load(file):
        real[schedule_name(made.schedule)].append(made.cer)
    assert {name: float(cer) for name, cer, _ in rows} == {
        name: pytest.approx(sum(cers) / 2, abs=0.006) for name, cers in real.items()
    }
    assert re.search(r"rank correlation of 6 schedules: -?\d\.\d+", out)

    learning = ["policy", "train", "Digits-ALMA-Wait-Surrogate-v0", "--steps", "600", "--set", f"recorded={file}"]
    assert run(capsys, *learning, "--out", policy)[0] == 0
    learning[2] = "Recorded-ALMA-Wait-Surrogate-v0"
    assert run(capsys, *learning, "--out", policy)[0] == 0
    status, _, err = run(capsys, *learning, "--out", policy, "--evaluate", "0")
    assert status == 2
    assert "--evaluate: the recorded runs have agent.stage.epochs=20, protocol.ticks=8" in err
    assert "alma run Digits-ALMA-v0 " in err
    arguments = ["run", *QUICK, "--width", "4", "--policy", policy, "doubling", "--out", tmp_path / "with"]
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert "learned" in out
    assert "doubling" in out
    config = json.loads(next((tmp_path / "with").rglob("*learned*/config.json")).read_text())
    assert config["agent"]["policy"]["name"] == "learned"


def test_a_run_below_several_of_the_folders_counts_once(capsys, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(runs)
    file = tmp_path / "new" / "folder" / "mine.npz"
    folders = [runs, runs / "Digits-ALMA-v0", "Digits-ALMA-v0", next(runs.rglob("ledger.jsonl")).parent]
    assert run(capsys, "surrogate", "fit", *folders, "--out", file)[0] == 0
    assert len(recordings.load(file)) == 12
    status, _, err = run(capsys, "surrogate", "fit", runs, tmp_path, "--out", file)
    assert (status, "it holds no run" in err) == (2, True)


@pytest.mark.parametrize(
    ("command", "work", "suffix"),
    [
        ("surrogate fit runs", "surrogates.recordings.gathered", "npz"),
        ("policy train Digits-ALMA-Wait-Surrogate-v0", "policies.train_policy", "zip"),
        ("policy train-schedule Digits-ALMA-v0", "scheduling.fit_trainings", "npz"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(command, work, suffix, capsys, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("the work began")

    monkeypatch.setattr(f"agents.cli.decisions.{work}", fail)
    (tmp_path / "plain").write_text("")
    (tmp_path / f"folder.{suffix}").mkdir()
    for out, message in (
        (f"plain/x.{suffix}", "plain (File exists); choose a folder that can be written"),
        (f"plain/deep/x.{suffix}", "plain/deep (Not a directory); choose a folder that can be written"),
        (f"folder.{suffix}", "it is a folder, and must be a file; choose another name"),
    ):
        status, _, err = run(capsys, *command.split(), "--out", tmp_path / out)
        assert status == 2
        assert f"--out {tmp_path / out}: " in err
        assert message in err


@pytest.mark.parametrize(
    ("command", "setting", "message"),
    [
        ("surrogate record Digits-ALMA-v0", "seeds=3", "seeds has its own option; write --seeds 3"),
        ("surrogate record Digits-ALMA-v0", "seed=3", "seed has its own option; write --seeds 3"),
        ("surrogate record Digits-ALMA-v0", "exploring=2", "write --exploring 2"),
        ("surrogate record Digits-ALMA-v0", "width=4", "write --width 4"),
        ("surrogate record Digits-ALMA-v0", "learner=ens", "write --learner ens"),
        ("surrogate record Digits-ALMA-v0", "policy=doubling", "leave it out, or compute runs of your own with"),
        ("surrogate record Digits-ALMA-v0", "device=cpu", "the command sets it for each of its runs; leave it out"),
        ("policy train Digits-ALMA-Wait-v0", "seed=3", "seed has its own option; write --seed 3"),
        ("policy train Digits-ALMA-Wait-v0", "steps=9", "write --steps 9"),
        (
            "policy train Digits-ALMA-Wait-v0",
            "settings=3",
            "can be given in Python only; call `agents.rl.train_policy`",
        ),
    ],
)
def test_a_keyword_that_is_not_for_set_is_refused(command, setting, message, capsys, tmp_path):
    status, out, err = run(capsys, *command.split(), "--set", setting, "--out", tmp_path / "new" / "x.zip")
    assert (status, out) == (2, "")
    assert f"--set {setting}: " in err
    assert message in err
    assert not (tmp_path / "new").exists()


def test_wrong_input_gets_one_line_with_the_remedy(capsys, runs, tmp_path):
    for arguments, message in (
        (["surrogate", "fit", runs, "--out", tmp_path / "x.json"], "end in .npz"),
        (["surrogate", "fit", tmp_path, "--out", tmp_path / "x.npz"], "it holds no run"),
        (["surrogate", "validate", "EMNIST"], "no recorded runs come with the package"),
        (["surrogate", "validate", "x", "--episodes", "0"], "--episodes 0: must be at least 1"),
        (["policy", "train", "CartPole-v1", "--out", tmp_path / "x.zip"], "not a decision environment; the ids are"),
        (["policy", "train", "Digits-ALMA-Wait-v0", "--out", tmp_path / "x"], "end in .zip"),
        (["policy", "train", "X", "--steps", "inf", "--out", "x.zip"], "--steps inf: must be a finite number"),
        (["run", "--policy", "doubling", "--wait", "3"], "--wait with --policy doubling: a policy decides when"),
        (["run", "--policy", "doubling", "--replay"], "replay as --policy doubling:replay=true"),
        (["run", "--policy", "doubling", "doubling"], "doubling occurs twice"),
        (["run", "--policy", "sometimes"], "--policy sometimes: unknown policy; choose one of"),
        (["run", "--agent", "oracle", "--policy", "doubling"], "it trains at every tick; leave both out"),
    ):
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
