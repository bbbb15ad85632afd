"""A tracker receives every row of the ledger once, also if the run continues after a stop."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from agents.cli import main
from agents.runs import run_folder
from agents.runs.run_folder import FolderInUseError
from agents.sweeps import jobs, trackers
from alma_env import AlmaEnv, Ledger
from alma_env.errors import how_to_install

from .small_runs import GOOD

QUICK = ["run", "--width", "4", "--wait", "2", "--set", "epochs=1", "ticks=4"]


def run(out: Path, *options: str) -> Ledger:
    assert main([*QUICK, "--out", str(out), *options]) == 0
    return Ledger.from_json(next(out.rglob("ledger.jsonl")).read_text())


class Stopped(Exception):
    pass


def stop_after(monkeypatch, tick: int) -> None:
    """Let the next run end with an error after this tick."""
    step = AlmaEnv.step

    def stopping(env: AlmaEnv, predictor: object):
        if len(env.ledger) > tick:
            raise Stopped
        return step(env, predictor)

    monkeypatch.setattr(AlmaEnv, "step", stopping)


def test_tensorboard_holds_the_errors_of_the_ledger_once_after_a_stop(tmp_path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with monkeypatch.context() as patched:
        stop_after(patched, 2)
        with pytest.raises(Stopped):
            run(tmp_path, "--track", "tensorboard")
    ledger = run(tmp_path, "--track", "tensorboard")
    events = accumulator.EventAccumulator(str(next(tmp_path.rglob("tensorboard"))))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("error")] == [
        (row.tick, pytest.approx(row.error)) for row in ledger
    ]
    # The configuration and the score are shown as hyper-parameters.
    from tensorboard.plugins.hparams import plugin_data_pb2

    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    shown = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    found = {name: getattr(value, value.WhichOneof("kind")) for name, value in shown.items()}
    assert (found["agent.stage.epochs"], found["env"], found["seed"]) == (1, "Digits-ALMA-v0", 0)
    assert (found["agent.width"], found["agent.stage.learning_rate"], found["agent.policy.replay"]) == (4, 1, "false")
    assert events.Scalars("score/cer")[-1].value == pytest.approx(ledger.score().cer)


def test_mlflow_holds_curve_score_and_configuration_and_continues_the_same_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    out = tmp_path / "runs"
    with monkeypatch.context() as patched:
        stop_after(patched, 2)
        with pytest.raises(Stopped):
            run(out, "--track", "mlflow")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(trackers.PROJECT).experiment_id
    (stopped,) = client.search_runs([experiment])
    assert stopped.info.status == "FAILED"
    ledger = run(out, "--track", "mlflow")
    (finished,) = client.search_runs([experiment])
    assert finished.info.status == "FINISHED"
    assert finished.data.params["agent.stage.epochs"] == "1"
    assert finished.data.metrics["score/cer"] == ledger.score().cer
    history = client.get_metric_history(finished.info.run_id, "error")
    assert [(metric.step, metric.value) for metric in history] == [(row.tick, row.error) for row in ledger]
    folder = next(out.rglob("ledger.jsonl")).parent
    stored = {file.path: file.file_size for file in client.list_artifacts(finished.info.run_id)}
    assert stored == {name: (folder / name).stat().st_size for name in trackers.ARTEFACT}


def wandb_records(file: Path):
    """The records of an offline run: a LevelDB log of protocol buffers after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    content, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # the rest of a block is filled with zeros
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def test_weights_and_biases_holds_curve_and_score(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    ledger = run(tmp_path, "--track", "wandb")
    (file,) = tmp_path.rglob("run-*.wandb")
    errors, summary, stored = {}, {}, {}
    for record in wandb_records(file):
        stored |= {entry.path: entry.size for entry in record.artifact.manifest.contents}
        items = {(item.key or item.nested_key[0]): item.value_json for item in record.history.item}
        if "error" in items:
            errors[int(items["_step"])] = float(items["error"])
        summary |= {(item.key or item.nested_key[0]): item.value_json for item in record.summary.update}
    assert errors == {row.tick: row.error for row in ledger}
    assert float(summary["cer"]) == ledger.score().cer
    folder = next(tmp_path.rglob("ledger.jsonl")).parent
    assert stored == {name: (folder / name).stat().st_size for name in trackers.ARTEFACT}


def test_no_tracker_opens_and_nothing_is_written_while_another_process_computes_the_run(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(jobs.trackers, "following", lambda *arguments: opened.append(arguments))
    env = GOOD.make_env()
    with run_folder.locked(tmp_path), pytest.raises(FolderInUseError, match="another process is writing this run"):
        jobs.execute(GOOD, env, GOOD.make_agent(env), tmp_path, on_tick=lambda row: None, track=["mlflow"])
    assert opened == []
    assert not (tmp_path / "spec.json").exists()


def test_a_tracker_without_a_login_is_one_line_with_the_remedy(tmp_path, monkeypatch, capsys):
    wandb = pytest.importorskip("wandb")

    def not_logged_in(**_):
        raise wandb.errors.UsageError("No API key configured. Use `wandb login` to log in.\nmore lines")

    monkeypatch.setattr(trackers, "_require_login", lambda: None)
    monkeypatch.setattr(wandb, "init", not_logged_in)
    assert main([*QUICK, "--out", str(tmp_path), "--track", "wandb"]) == 2
    message = capsys.readouterr().err
    assert "--track wandb: No API key configured" in message
    assert "log in; run `wandb login`, or set WANDB_API_KEY, or WANDB_MODE=offline" in message
    assert message.count("\n") == 1


class Failing:
    def __init__(self, *_):
        self.ticks, self.ended = [], []

    def log(self, tick, values):
        self.ticks.append(tick)
        if tick == self.fails_at:
            raise ConnectionError("server gone\nmore lines")

    def end(self, score):
        self.ended.append(score)
        if self.fails_at is None:
            raise RuntimeError("no artefact")


@pytest.mark.parametrize(("fails_at", "reason", "last"), [(2, "server gone", 2), (None, "no artefact", 4)])
def test_a_tracker_that_fails_does_not_end_the_run(fails_at, reason, last, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(Failing, "fails_at", fails_at, raising=False)
    monkeypatch.setitem(trackers._TRACKERS, "tensorboard", lambda *given: opened.append(Failing(*given)) or opened[-1])
    with pytest.warns(UserWarning, match=f"--track tensorboard: {reason}; the run goes on in its folder") as warned:
        assert len(run(tmp_path, "--track", "tensorboard")) == 5
    assert len(warned) == 1
    assert opened[0].ticks == list(range(last + 1))
    assert len(opened[0].ended) == (fails_at is None)


def test_an_unknown_or_missing_tracker_is_refused_before_anything_runs(tmp_path, capsys, monkeypatch):
    assert main([*QUICK, "--out", str(tmp_path), "--track", "neptune"]) == 2
    assert "--track neptune: unknown tracker; choose from tensorboard, wandb, mlflow" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert main([*QUICK, "--out", str(tmp_path), "--track", "mlflow"]) == 2
    assert how_to_install("mlflow") in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_weights_and_biases_without_a_login_is_refused_in_one_line_before_anything_runs(tmp_path):
    pytest.importorskip("wandb")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    words = [sys.executable, "-m", "agents", *QUICK, "--out", str(tmp_path / "runs"), "--track", "wandb"]
    ended = subprocess.run(words, capture_output=True, text=True, env={**environment, "HOME": str(tmp_path)})
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "nobody is logged in" in line
    assert "wandb login" in line
    assert not (tmp_path / "runs").exists()
