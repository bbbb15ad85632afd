"""``alma run``, ``alma show`` and the lists: output, files, and messages about wrong input."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import UnidentifiedImageError
from rich.console import Console

from agents.analysis.measures import ERROR_RATE
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.recipes import recipe_for
from agents.cli.console import RunProgress
from alma_env import Ledger, Row, files
from alma_env.errors import how_to_install

from ..fake_runs import fake_run, write
from .running import run

QUICK = ["--width", "4", "--set", "epochs=1", "ticks=4"]


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
    # A second call computes nothing: even the seconds in the ledgers stay.
    ledgers = [(folder / "ledger.jsonl").read_text() for folder in folders]
    assert run(capsys, "run", *QUICK, "--wait", "1", "4", "--seeds", "0", "1", "--out", str(tmp_path))[0] == 0
    assert [(folder / "ledger.jsonl").read_text() for folder in folders] == ledgers
    # --fresh computes the runs again.
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
    # An unfinished run is reported and left out.
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:3]))
    _, out, _ = run(capsys, "show", str(tmp_path))
    assert "unfinished, 2 ticks to go" in out.replace("\n", " ")


def test_show_prints_json_in_the_order_of_the_table(capsys, tmp_path):
    for wait in (1, 2, 10):
        for seed in (0, 1):
            write(fake_run("sm", wait=wait, seed=seed), tmp_path)
    status, out, _ = run(capsys, "show", str(tmp_path), "--json")
    assert status == 0
    found = [(one["config"]["agent"]["policy"]["wait"], one["seed"]) for one in json.loads(out)]
    assert found == [(1, 0), (1, 1), (2, 0), (2, 1), (10, 0), (10, 1)]


def test_the_labels_of_json_are_the_lines_of_the_table(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    for seed in (0, 1):
        write(fake_run(seed=seed, policy={"name": "random", "probability": 0.5, "seed": seed}), tmp_path / "random")
        write(fake_run(seed=seed, stage={"epochs": 1}), tmp_path / "short")
        write(fake_run(seed=seed, stage={"epochs": 3}), tmp_path / "long")
    _, out, _ = run(capsys, "show", str(tmp_path), "--json")
    seeds: dict[str, list[int]] = {}
    for one in json.loads(out):
        seeds.setdefault(one["label"], []).append(one["seed"])
    assert list(seeds.values()) == [[0, 1]] * 3
    _, table, _ = run(capsys, "show", str(tmp_path))
    lines = table.splitlines()
    assert [[line for line in lines if label in line] != [] for label in seeds] == [True] * 3


def test_show_has_one_line_per_setting(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    out = ["--out", str(tmp_path)]
    run(capsys, "run", *QUICK, "--wait", "2", "--seeds", "0", "1", *out)
    run(capsys, "run", "--width", "4", "--wait", "2", "--set", "epochs=2", "ticks=4", *out)
    run(capsys, "run", "--width", "4", "--wait", "2", "--set", "epochs=1", "ticks=7", *out)
    status, shown, err = run(capsys, "show", str(tmp_path))
    assert (status, err) == (0, "")
    for label, seeds in (("epochs=1, ticks=4", 2), ("epochs=2, ticks=4", 1), ("epochs=1, ticks=7", 1)):
        assert re.search(rf"sm 4, wait 2, {label} +{seeds} ", shown)
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
    # In 80 columns every label is complete.
    monkeypatch.setenv("COLUMNS", "80")
    _, shown, _ = run(capsys, "show", str(tmp_path))
    assert "…" not in shown
    for word in ("epochs=2", "ticks=7"):
        assert word in shown


def test_show_counts_a_run_once(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    run(capsys, "run", *QUICK, "--wait", "2", "--out", str(tmp_path / "one"))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    status, out, _ = run(capsys, "show", str(tmp_path))
    assert status == 0
    assert re.search(r"two/.*: the same run as .*/one/.*; counted once", out)
    assert re.search(r"sm 4, wait 2 +1 ", out)


def test_show_ignores_an_incomplete_last_line_and_does_not_change_the_file(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    run(capsys, "run", *QUICK, "--wait", "2", "4", "--out", str(tmp_path))
    ledger = next(tmp_path.rglob("*wait4*/ledger.jsonl"))
    cut = ledger.read_bytes()[:-30]
    ledger.write_bytes(cut)
    status, out, _ = run(capsys, "show", str(tmp_path))
    assert status == 0
    assert "unfinished, 1 ticks to go; left out" in out
    assert "sm 4, wait 2" in out
    assert ledger.read_bytes() == cut


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("ledger.jsonl", "{}\n", "restore the file, or delete the folder"),
        ("stages.jsonl", "{}\n", "delete the folder and run again"),
        (None, None, "was started without record"),
    ],
)
def test_the_folder_of_the_last_run_is_checked_before_the_first_run_starts(capsys, tmp_path, name, content, remedy):
    words = ["run", *QUICK, "--out", str(tmp_path)]
    assert run(capsys, *words, "--seeds", "1")[0] == 0
    (folder,) = [ledger.parent for ledger in tmp_path.rglob("ledger.jsonl")]
    if name is not None:
        (folder / name).write_text(content)
    words += [] if name is not None else ["--record"]
    status, _, err = run(capsys, *words, "--seeds", "0", "1")
    assert status == 2
    assert str(folder if name is None else folder / name) in err
    assert remedy in err
    assert [ledger.parent for ledger in tmp_path.rglob("ledger.jsonl")] == [folder]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "config.json: missing"),
        ("config.json", "{", "config.json: not a run configuration"),
        ("ledger.jsonl", "nonsense\n", "ledger.jsonl: line 1: not a ledger row"),
    ],
)
def test_show_names_a_missing_or_damaged_file(capsys, tmp_path, file, content, message):
    run(capsys, "run", *QUICK, "--wait", "4", "--out", str(tmp_path))
    (damaged,) = tmp_path.rglob(file)
    damaged.unlink() if content is None else damaged.write_text(content)
    status, _, err = run(capsys, "show", str(tmp_path))
    assert status == 2
    assert message in err
    assert "restore it" in err or "restore the file" in err


def test_a_folder_that_cannot_be_written_is_one_message_with_status_2(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, err = run(capsys, "run", *QUICK, "--wait", "4", "--out", str(tmp_path / "file"))
    assert status == 2
    assert str(tmp_path / "file") in err
    assert "choose a folder that can be read and written" in err


@pytest.mark.parametrize(("name", "goes_on"), [("run", True), ("new", False)])
def test_a_full_disk_is_named_and_only_runs_go_on(capsys, monkeypatch, name, goes_on):
    def full(options, console):
        with files.naming(Path("here")):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agents.cli.runs.run_sweep.run", full)
    monkeypatch.setattr("agents.cli.starting_points.new", full)
    status, _, err = run(capsys, *{"run": ["run"], "new": ["new", "agent"]}[name])
    assert status == 2
    assert f"{name}: here: No space left on device; make room on its disk" in err
    assert ("runs go on from their last checkpoint" in err) == goes_on


def test_an_error_of_a_library_that_reads_files_has_no_remedy_for_folders(capsys, monkeypatch):
    def broken(options, console):
        raise UnidentifiedImageError("cannot identify image file 'cat.png'")

    monkeypatch.setattr("agents.cli.runs.run_sweep.run", broken)
    assert run(capsys, "run") == (2, "", "alma run: cannot identify image file 'cat.png'\n")


def test_the_end_of_the_reader_ends_the_command_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "agents", "envs", "--json"]
    ended = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_messages_and_labels_are_printed_without_markup(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    _, _, err = run(capsys, "run", *QUICK, "--track", "tensorboard", "--out", str(tmp_path))
    assert how_to_install("tensorboard") in err
    assert not list(tmp_path.iterdir())
    _, _, err = run(capsys, "run", "--set", "optimizer=[/x]", "--out", str(tmp_path))
    assert "optimizer='[/x]': must be one of" in err
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "[red]out"
    status, shown, err = run(capsys, "run", *QUICK, "--wait", "4", "--out", str(out))
    assert (status, err) == (0, "")
    assert f"Runs are in {out}/" in shown
    monkeypatch.setattr(AgentConfig, "label", "sm [/4] [b]")
    status, shown, err = run(capsys, "run", *QUICK, "--wait", "4", "--out", str(out))
    assert (status, err) == (0, "")
    assert shown.count("sm [/4] [b]") == 2  # in the line of the run and in the table
    monkeypatch.setattr(Console, "is_terminal", True)  # shows the progress bar
    assert run(capsys, "run", *QUICK, "--wait", "4", "--out", str(out))[0] == 0


def test_each_bar_begins_with_the_numbers_of_its_own_run_and_shows_the_tick_of_a_long_stage():
    progress = RunProgress(Console(file=io.StringIO(), force_terminal=True), ERROR_RATE)
    for run_number in range(2):  # the second bar begins less than 0.1 s after the first
        agent = SimpleNamespace(ticks=9, training_on=5)
        on_tick = progress.begin("a run", agent, lambda until: 10 * until)
        assert progress.tasks[run_number].fields["scores"] == ""
        on_tick(Row(0, 0.9, 0, 0, 0.0, {}, 0, (), "", False, 0.0))
        bar = progress.tasks[run_number]
        assert (bar.total, bar.completed) == (90, 0)
        on_tick(Row(1, 0.5, 0, 0, 0.0, {}, 0, (), "", False, 0.0))
        time.sleep(0.11)
        progress.on_epoch(0)
        assert (bar.completed, bar.fields["tick"]) == (15, 1)
        assert bar.fields["scores"] == "error 0.500  CER 1.40  0 FLOPs"


def test_the_oracle_trains_at_every_tick_by_default(capsys, tmp_path):
    status, out, err = run(capsys, "run", *QUICK, "--agent", "oracle", "--out", str(tmp_path))
    assert (status, err) == (0, "")
    assert "oracle 4, wait 1, replay" in out


def test_all_runs_are_checked_before_the_first_starts(capsys, tmp_path):
    arguments = ["run", *QUICK, "--wait", "2", "5", "--out", str(tmp_path)]
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert "wait=5: the stream has only 4 mega-batches" in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []
    # --fresh deletes nothing then.
    run(capsys, "run", *QUICK, "--wait", "2", "--out", str(tmp_path))
    (ledger,) = tmp_path.rglob("ledger.jsonl")
    assert run(capsys, *arguments, "--fresh")[0] == 2
    assert ledger.exists()


@pytest.mark.parametrize(
    ("words", "function", "message"),
    [
        ("run --width 4", "runs.run.run", "goes on from here"),
        ("run --width 4 --fresh", "runs.run.run", "without --fresh goes on from here"),
        ("surrogate record Digits-ALMA-v0", "cli.decisions.surrogates.record", "goes on from here"),
        (
            "surrogate record Digits-ALMA-v0 --fresh",
            "cli.decisions.surrogates.record",
            "without --fresh goes on from here",
        ),
        ("policy train Digits-ALMA-Wait-v0 --out a.zip", "cli.decisions.policies.train", "begins again"),
        ("policy train-schedule Digits-ALMA-v0 --out a.npz", "cli.decisions.scheduling.train_schedule", "begins again"),
    ],
)
def test_an_interrupt_promises_to_go_on_only_where_the_command_does(
    words, function, message, capsys, tmp_path, monkeypatch
):
    def interrupt(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"agents.{function}", interrupt)
    status, _, err = run(capsys, *words.split())
    assert status == 130
    assert " ".join(err.split()).endswith(f"stopped; the same command {message}")


def test_settings_reach_the_agent_and_the_protocol(capsys, tmp_path):
    settings = ["epochs=2", "learning_rate=0.5", "valid_fraction=0.2", "ticks=3"]
    run(capsys, "run", "--width", "4", "--wait", "3", "--set", *settings, "--out", str(tmp_path))
    config = json.loads(next(tmp_path.rglob("config.json")).read_text())
    assert config["agent"]["stage"]["epochs"] == 2
    assert config["agent"]["stage"]["learning_rate"] == 0.5
    assert config["protocol"]["valid_fraction"] == 0.2
    assert config["protocol"]["ticks"] == 3


@pytest.mark.parametrize(("text", "value"), [("true", True), ("FALSE", False), ("True", True)])
def test_true_and_false_are_bools_in_upper_and_lower_case(capsys, tmp_path, text, value):
    settings = [f"keep_initial={text}", f"from_scratch={text}", "epochs=1", "ticks=2"]
    run(capsys, "run", "--width", "4", "--wait", "2", "--replay", "--set", *settings, "--out", str(tmp_path))
    config = json.loads(next(tmp_path.rglob("config.json")).read_text())
    assert config["agent"]["stage"]["keep_initial"] is value
    assert config["agent"]["from_scratch"] is value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "Digit-ALMA-v0"], "unknown environment; the ids are"),
        (["run", "Digits"], "did you mean Digits-ALMA-v0?"),
        (["run", "--agent", "my_policy:make_agent"], "did you mean my_policy.py:make_agent?"),
        (["run", "--agent", "fine-tune"], "the agents are sm"),
        (["run", "--agent", ""], "agent '': unknown; the agents are sm"),
        (["run", "--device", ""], "device=''"),
        (["run", "--wait", "0"], "the waiting time must be at least 1 mega-batch"),
        (["run", "--wait", "21"], "use at most 20"),
        (["run", "--seeds", "-1"], "seed=-1"),
        (["run", "--set", "epochs"], "key=value"),
        (["run", "--set", "epoch=3"], "no such hyper-parameter"),
        (["run", "--set", "ticks=0"], "ticks=0"),
        (["run", "--threads", "0"], "must be 1 to 1024"),
        (["run", "--device", "tpu9"], "device='tpu9'"),
        (["run", "Arrays-ALMA-v0"], "without data"),
        (["show", "nowhere"], "nowhere: not found; give a folder written by `alma run`"),
        (["run", "--seeds", "0", "1", "0"], "--seeds 0 1 0: 0 occurs twice"),
        (["run", "--wait", "5", "5"], "--wait 5 5: 5 occurs twice"),
        (["run", "--width", "4", "4"], "--width 4 4: 4 occurs twice"),
        (["run", "--set", "epochs=abc"], "epochs='abc': must be a whole number; use for example epochs=100"),
        (["run", "--set", "epochs=2.5"], "epochs=2.5: must be a whole number"),
        (["run", "--set", "epochs=None"], "epochs=None: must be a whole number"),
        (["run", "--set", "epochs=true"], "epochs=True: must be a whole number"),
        (["run", "--set", "batch_size=[1]"], "batch_size=[1]: must be a whole number"),
        (["run", "--set", "learning_rate=abc"], "learning_rate='abc': must be a number"),
        (["run", "--set", "keep_initial=yes"], "keep_initial='yes': must be True or False"),
        (["run", "--set", "keep_initial=1"], "keep_initial=1: must be True or False"),
        (["run", "--set", "from_scratch=no"], "from_scratch='no': must be True or False"),
        (["run", "--set", "patience=many"], "patience='many': must be a whole number or None"),
        (["run", "--agent", "ens", "--set", "members=few"], "members='few': must be a whole number"),
        (["run", "--set", "width=8"], "--set width=8: width has its own option; write --width 8"),
        (["run", "--set", "wait=3"], "write --wait 3"),
        (["run", "--set", "seed=1"], "write --seeds 1"),
        (["run", "--set", "device=cpu"], "write --device cpu"),
        (["run", "--set", "replay=true"], "write --replay"),
        (["run", "--set", "engine=plain"], "write --engine plain"),
        (["run", "--set", "threads=2"], "write --threads 2"),
        (["run", "--set", "id=sm"], "write --agent sm"),
        (["run", "--set", "policy=none"], "policy has its own option; write --policy none"),
        (["run", "--set", "growth=every"], "growth='every': agent 'sm' cannot grow"),
        (["run", "--agent", "gens", "--set", "growth=at:"], "growth='at:'"),
        (
            ["run", "--agent", "gens", "--set", "growth=true"],
            "growth=True: must be text or None",
        ),
    ],
)
def test_bad_input_gets_one_message_with_the_rule_and_status_2(capsys, tmp_path, arguments, message):
    if arguments[0] == "run":
        arguments = [*arguments, "--out", str(tmp_path)]
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert message in err
    assert "Traceback" not in err


def test_stages_are_as_long_as_the_papers():
    """ALMA paper, section 5 and appendix; CIFAR-100 and EMNIST: its first version."""
    expected = {"MNIST": 100, "CIFAR10": 100, "EMNIST-byclass": 100, "CIFAR100": 200}
    assert {name: recipe_for(name).settings.epochs for name in expected} == expected
