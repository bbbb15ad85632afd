"""``alma reproduce`` makes runs, draws and judges them, and does so again from a packed file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agents import cli, finished, packed
from agents.experiments import cli as experiments_cli
from agents.experiments.sweep import Failure, SweepReport
from agents.reproduction import plan, recorded

COMMAND = ["reproduce", "ablation", "--scale", "smoke", "--set", "ticks=4", "epochs=1"]


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction")
    assert cli.main([*COMMAND, "--workers", "1", "--out", str(folder)]) == 0
    return folder


def test_a_plan_is_run_drawn_and_judged(out):
    text = (out / "reproduction.md").read_text(encoding="utf-8")
    assert "* ablation (first version, section 5.2): 8 of 8 runs." in text
    assert "* In place of the plan's: ticks=4, epochs=1." in text
    assert "![errors](ablation-errors.png)" in text
    assert (out / "ablation-errors.png").stat().st_size > 10_000
    assert len((out / "ablation-errors.csv").read_text().splitlines()) > 4
    assert re.search(r"^\| 4: gmoe − moe \| CER \| < 0 \| .*± .* \| 2 \| \w+ \|$", text, re.MULTILINE)
    assert "| gEns of MoE | 2 |" in text
    assert text.count("| CIFAR-10 |") == 10  # of other plans, not run


def test_recorded_runs_give_the_same_report_and_nothing_is_run(out, tmp_path, monkeypatch, capsys):
    file = tmp_path / f"ablation-smoke{packed.SUFFIX}"
    packed.write(finished.find(out)[0], file)
    monkeypatch.setattr(recorded, "recorded_files", lambda: [file])
    again = tmp_path / "again"
    assert cli.main([*COMMAND, "--recorded", "--out", str(again)]) == 0
    there, here = (folder.joinpath("reproduction.md").read_text(encoding="utf-8") for folder in (out, again))
    assert here == there.replace("8 of 8 runs", "8 of 8 runs recorded")
    assert sorted(file.name for file in again.iterdir()) == [
        "ablation-errors.csv",
        "ablation-errors.png",
        "reproduction.md",
    ]
    assert "ablation: 8 of 8 runs recorded" in capsys.readouterr().out
    assert cli.main([*COMMAND, "--runs", str(file), "--out", str(again)]) == 0
    assert (again / "reproduction.md").read_text(encoding="utf-8") == there
    assert cli.main(["reproduce", "fig7", "--runs", str(file), "--out", str(again)]) == 2
    assert "none of 8 finished runs is one of fig7 at scale cpu; choose the scale" in capsys.readouterr().err


def test_a_run_that_failed_leaves_its_comparisons_out_and_shows_in_the_exit_status(out, tmp_path, monkeypatch, capsys):
    there = {str(run.folder): run.folder for run in finished.find(out)[0] if run.config["agent"]["id"] != "moe"}
    failed = Failure(plan.read("ablation").specs("smoke")[-1], "Traceback …")
    swept = SweepReport(finished=there, failed=[failed, failed])
    monkeypatch.setattr(experiments_cli, "carry_out", lambda specs, options, console: swept)
    assert cli.main([*COMMAND, "--out", str(tmp_path)]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "ablation: 6 of 8 runs" in told
    assert "not run: " in told
    assert "ablation-growing" in told.partition("not run: ")[2]
    assert "ablation-tree" not in told.partition("not run: ")[2]


def test_nothing_recorded_is_said_and_is_no_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recorded, "recorded_files", list)
    assert cli.main(["reproduce", "fig7", "--recorded", "--out", str(tmp_path)]) == 0
    assert "fig7: 0 of 360 runs recorded" in capsys.readouterr().out
    assert "**" not in (tmp_path / "reproduction.md").read_text(encoding="utf-8")


def test_the_cost_of_all_plans_is_that_of_their_runs_each_counted_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["reproduce", "all", "--dry-run", "--scale", "cpu"]) == 0
    lines = {
        words[0]: int(words[2]) for line in capsys.readouterr().out.splitlines() if len(words := line.split()) == 8
    }
    assert sorted(lines) == sorted([*plan.NAMES, "together"])
    assert lines.pop("together") < sum(lines.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tab2", "--scale", "gpu"], r"needs a text of one's own; give it as --set train=PATH valid=PATH"),
        (["fig7", "--set", "width=4"], r"--set width=4: width is what a plan goes through"),
        (["fig7", "--set", "epoch=4"], r"epoch"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_remedy(words, message, tmp_path, capsys):
    assert cli.main(["reproduce", *words, "--out", str(tmp_path)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "ticks", "message"),
    [
        ("fig4", "20", "--set ticks=20: fig4 compares waiting times of a stream with 10 mega-batches; leave it out"),
        ("tab2", "2", "--set ticks=2: tab2 compares waiting times of a stream with 4 mega-batches"),
        ("ablation", "0", "ticks=0: must be a whole number of mega-batches from 1"),
        ("ablation", "2.5", "ticks=2.5: must be a whole number"),
    ],
)
def test_a_stream_of_another_length_is_refused_where_it_would_be_another_experiment(name, ticks, message, capsys):
    assert cli.main(["reproduce", name, "--scale", "smoke", "--dry-run", "--set", f"ticks={ticks}"]) == 2
    assert message in capsys.readouterr().err
