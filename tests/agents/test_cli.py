"""The command line says what it did, where things are, and what is wrong."""

from __future__ import annotations

import json

import pytest

from agents.cli import main
from alma_env import Ledger

QUICK = ["--width", "4", "--set", "epochs=1", "ticks=4"]


def run(capsys, *arguments) -> tuple[int, str, str]:
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def test_run_writes_ledgers_a_table_and_a_picture(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    status, out, _ = run(capsys, "run", *QUICK, "--wait", "1", "4", "--seeds", "0", "1", "--out", str(tmp_path))
    assert status == 0
    folders = sorted(path.parent for path in tmp_path.rglob("ledger.jsonl"))
    assert len(folders) == 4
    picture = tmp_path / "Digits-ALMA-v0" / "errors.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in out.replace("\n", "")
    for word in ("CER", "Mem", "Comp", "final error", "sm 4, wait 1", "sm 4, wait 4", "±"):
        assert word in out
    # A second time nothing is computed: the ledgers keep even their seconds.
    ledgers = [(folder / "ledger.jsonl").read_text() for folder in folders]
    assert run(capsys, "run", *QUICK, "--wait", "1", "4", "--seeds", "0", "1", "--out", str(tmp_path))[0] == 0
    assert [(folder / "ledger.jsonl").read_text() for folder in folders] == ledgers
    # --fresh repeats them.
    arguments = ["run", *QUICK, "--wait", "1", "4", "--seeds", "0", "1", "--out", str(tmp_path), "--fresh"]
    assert run(capsys, *arguments)[0] == 0
    assert [(folder / "ledger.jsonl").read_text() for folder in folders] != ledgers


def test_show_reads_one_run_or_many(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    run(capsys, "run", *QUICK, "--wait", "2", "--seeds", "0", "1", "--out", str(tmp_path))
    status, out, _ = run(capsys, "show", str(tmp_path))
    assert status == 0
    assert "Digits-ALMA-v0" in out
    ledger = next(tmp_path.rglob("ledger.jsonl"))
    status, out, _ = run(capsys, "show", str(ledger.parent))
    assert status == 0
    assert f"{Ledger.from_json(ledger.read_text()).score().cer:.2f}" in out
    assert '"adadelta"' in out
    # An unfinished run is named and left out.
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:3]))
    _, out, _ = run(capsys, "show", str(tmp_path))
    assert "unfinished, 2 ticks to go" in out.replace("\n", " ")


def test_settings_reach_the_agent_and_the_protocol(capsys, tmp_path):
    settings = ["epochs=2", "learning_rate=0.5", "valid_fraction=0.2", "ticks=3"]
    run(capsys, "run", "--width", "4", "--wait", "3", "--set", *settings, "--out", str(tmp_path))
    config = json.loads(next(tmp_path.rglob("config.json")).read_text())
    assert config["agent"]["stage"]["epochs"] == 2
    assert config["agent"]["stage"]["learning_rate"] == 0.5
    assert config["protocol"]["valid_fraction"] == 0.2
    assert config["protocol"]["ticks"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "Digit-ALMA-v0"], "unknown environment; the ids are"),
        (["run", "--agent", "moe"], "the agents are sm"),
        (["run", "--wait", "0"], "the waiting time must be at least 1 mega-batch"),
        (["run", "--wait", "21"], "wait at most 20"),
        (["run", "--seeds", "-1"], "seed=-1"),
        (["run", "--set", "epochs"], "write key=value"),
        (["run", "--set", "epoch=3"], "no such hyper-parameter"),
        (["run", "--set", "ticks=0"], "ticks=0"),
        (["run", "--threads", "0"], "at least 1"),
        (["run", "--device", "tpu9"], "device='tpu9'"),
        (["run", "Arrays-ALMA-v0"], "without data"),
        (["show", "nowhere"], "no ledger.jsonl"),
    ],
)
def test_bad_input_gets_one_message_with_the_rule_and_status_2(capsys, tmp_path, arguments, message):
    if arguments[0] == "run":
        arguments = [*arguments, "--out", str(tmp_path)]
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert message in err
    assert "Traceback" not in err


def test_the_lists_name_what_there_is(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    _, out, _ = run(capsys, "envs")
    assert "CIFAR10-ALMA-v0" in out
    assert "500" in out
    _, out, _ = run(capsys, "agents")
    assert "single model" in out
    assert "from_scratch" in out


def test_tensorboard_files_are_written_on_request(capsys, tmp_path):
    pytest.importorskip("tensorboard")
    run(capsys, "run", *QUICK, "--wait", "4", "--tensorboard", "--out", str(tmp_path))
    assert list(tmp_path.rglob("events.out.tfevents.*"))
