"""``alma reproduce`` runs, draws and judges a plan, also from a packed file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from agents.cli import main
from agents.cli import reproduce as reproduce_cli
from agents.cli.options.parser import PARTS
from agents.reproduction import outcome, plans
from agents.reproduction.calibration import Calibration
from agents.runs import archive, load
from agents.sweeps.sweep import Failure, SweepReport

COMMAND = ["reproduce", "ablation", "--scale", "smoke", "--set", "ticks=4", "epochs=1"]


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction")
    assert main([*COMMAND, "--workers", "1", "--out", str(folder)]) == 0
    return folder


def test_a_plan_is_run_drawn_and_judged(out):
    text = (out / "reproduction.md").read_text(encoding="utf-8")
    assert "* ablation (first version, section 5.2): 8 of 8 runs." in text
    assert "* Instead of the seeds and settings of the plans: --set ticks=4 epochs=1." in text
    assert "![errors](ablation-errors.png)" in text
    assert (out / "ablation-errors.png").stat().st_size > 10_000
    assert len((out / "ablation-errors.csv").read_text().splitlines()) > 4
    assert re.search(r"^\| 4: gmoe − moe \| CER \| < 0 \| .*± .* \| 2 \| .+ \| \w+ \| .* \|$", text, re.MULTILINE)
    assert "| gEns of MoE | 2 |" in text
    assert "Of 2 findings of the paper, " in text  # those of the plan
    assert "\n| finding | verdict | " in text  # no column of data, because all findings are on the same
    assert "\n| gMoE < fixed MoE < ensemble of fixed MoEs, in CER | " in text


def test_recorded_runs_give_the_same_report_and_nothing_is_run(out, tmp_path, monkeypatch, capsys):
    file = tmp_path / f"ablation-smoke{archive.SUFFIX}"
    load.pack(load.find(out)[0], file)
    monkeypatch.setattr(outcome, "recorded_files", lambda: [file])
    again = tmp_path / "again"
    assert main([*COMMAND, "--recorded", "--out", str(again)]) == 0
    there, here = (folder.joinpath("reproduction.md").read_text(encoding="utf-8") for folder in (out, again))
    assert here == there.replace("8 of 8 runs", "8 of 8 runs recorded")
    assert sorted(file.name for file in again.iterdir()) == [
        "ablation-errors.csv",
        "ablation-errors.png",
        "reproduction.md",
    ]
    assert "ablation: 8 of 8 runs recorded" in capsys.readouterr().out
    assert main([*COMMAND, "--runs", str(file), "--out", str(again)]) == 0
    assert (again / "reproduction.md").read_text(encoding="utf-8") == there
    assert main(["reproduce", "fig7", "--runs", str(file), "--out", str(again)]) == 2
    assert "none of 8 finished runs is one of fig7 at scale cpu; choose the --scale" in capsys.readouterr().err


def test_a_failed_run_removes_its_comparisons_and_sets_the_exit_status(out, tmp_path, monkeypatch, capsys):
    there = {str(run.folder): run.folder for run in load.find(out)[0] if run.config["agent"]["id"] != "moe"}
    failed = Failure(plans.read("ablation").specs("smoke")[-1], "Traceback …")
    swept = SweepReport(finished=there, failed=[failed, failed])
    monkeypatch.setattr(reproduce_cli, "sweep", lambda specs, out, **keywords: swept)
    assert main([*COMMAND, "--out", str(tmp_path)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "ablation: 6 of 8 runs" in shown
    assert "not run: " in shown
    assert "ablation-growing" in shown.partition("not run: ")[2]
    assert "ablation-tree" not in shown.partition("not run: ")[2]


def test_missing_recordings_are_reported_without_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outcome, "recorded_files", list)
    assert main(["reproduce", "ablation", "--scale", "smoke", "--recorded", "--out", str(tmp_path)]) == 0
    assert "ablation: 0 of 8 runs recorded" in capsys.readouterr().out
    assert "**" not in (tmp_path / "reproduction.md").read_text(encoding="utf-8")


def test_a_dry_run_shows_what_is_finished_and_what_the_rest_costs(out, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "160")
    assert main([*COMMAND, "--seeds", "0", "1", "2", "--runs", str(out), "--dry-run"]) == 0
    line = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["ablation"]][1]
    assert line[:4] == ["ablation", "smoke", "8", "4"]


SHOWN = {
    "summary": "Of 2 findings of the paper, ",
    "headlines": "ablation: no finding of the front page is judged.",
    "findings": "| gMoE < fixed MoE < ensemble of fixed MoEs, in CER | ",
    "scores": "ablation: 8 of 8 runs recorded.",
    "comparisons": "| 4: gmoe − moe | CER | < 0 | ",
    "hours": "| Digits | ",
}


@pytest.mark.parametrize("part", [part for part in PARTS if part != "costs"])
def test_a_part_is_printed_and_nothing_is_written(part, out, tmp_path, monkeypatch, capsys):
    file = tmp_path / f"ablation-smoke{archive.SUFFIX}"
    load.pack(load.find(out)[0], file)
    monkeypatch.setattr(outcome, "recorded_files", lambda: [file])
    monkeypatch.chdir(tmp_path)
    assert main([*COMMAND, "--recorded", "--print", part]) == 0
    assert SHOWN[part] in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [file]


def test_the_scores_of_text_are_perplexities(capsys):
    assert main(["reproduce", "tab1", "--scale", "cpu", "--recorded", "--print", "scores"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\| ens \(tiny\) \| 4@2 \| 4 \| 1,200 \|.* \\\* \| \\\* \| \\\* \| \d+\.\d\d ± ", printed)
    assert "Test perplexity" in printed


def test_costs_are_printed_without_runs_and_for_plans_with_text_of_your_own(capsys):
    assert main(["reproduce", "tab2", "--scale", "gpu", "--print", "costs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[1] for line in lines[2:] if line] == ["smoke", "cpu", "gpu"]
    assert main(["reproduce", "fig2", "fig3", "--print", "costs"]) == 0
    of_fig2, of_fig3, together = (lines for lines in np.array_split(capsys.readouterr().out.splitlines()[2:11], 3))
    runs = [[int(line.split(" | ")[2]) for line in lines] for lines in (of_fig2, of_fig3, together)]
    assert [line.split(" | ")[0] for line in together] == ["| together"] * 3
    assert all(max(pair) <= both < sum(pair) for *pair, both in zip(*runs, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--print", "costs", "--recorded"], "--recorded with --print costs: the table has the costs of all runs"),
        (["--print", "costs", "--missing"], "--missing with --print costs: the table has the costs of all runs"),
        (["--print", "costs", "--runs", "runs"], "--runs with --print costs: the table has the costs of all runs"),
        (["--calibrate", "--per-gpu", "1"], "it measures the cores of this machine; leave --per-gpu out"),
        (["--print", "costs", "--calibrate"], "--calibrate with --print costs: each prints something else"),
        (["--calibrate"], "--calibrate without --dry-run: it measures the hours that --dry-run prints; give both"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options, message, capsys):
    assert main(["reproduce", "fig7", *options]) == 2
    assert message in capsys.readouterr().err


def test_runs_of_text_cannot_be_measured(capsys):
    assert main(["reproduce", "tab1", "--scale", "smoke", "--dry-run", "--calibrate"]) == 2
    assert "--calibrate for runs on Text: only data like MNIST, CIFAR10, Digits are measured" in capsys.readouterr().err


def test_a_dry_run_prints_the_hours_of_this_machine(monkeypatch, capsys):
    asked = []

    def calibrate(data, workers):
        asked.append((data, workers))
        return [Calibration("MNIST", (300.0, 500.0))]

    monkeypatch.setattr(reproduce_cli, "calibrate", calibrate)
    monkeypatch.setenv("COLUMNS", "160")
    words = ["reproduce", "fig3-mnist", "--dry-run"]
    assert main(words) == 0
    assert main([*words, "--calibrate", "--workers", "3"]) == 0
    assert asked == [({"MNIST"}, 3)]
    printed = capsys.readouterr().out
    assert "not measured" not in printed
    assert "takes 387.30 times as long as the rates of the package (2 measurements, 300.00 to 500.00)" in printed
    of_package, here = (
        float(line.split()[-3].replace(",", "")) for line in printed.splitlines()[-30:] if " cpu " in line
    )
    assert here / of_package == pytest.approx(387.3, rel=0.1)


def test_a_calibration_measures_only_what_the_runs_that_are_left_need(monkeypatch, capsys):
    asked = []

    def calibrate(data, workers):
        asked.append((data, workers))
        return [Calibration("CIFAR10", (2.0,))]

    monkeypatch.setattr(reproduce_cli, "calibrate", calibrate)
    monkeypatch.setenv("COLUMNS", "160")
    options = ["--scale", "cpu", "--missing", "--dry-run", "--calibrate", "--workers", "999"]
    assert main(["reproduce", "fig7", "fig4", *options]) == 0  # the runs of fig7, on MNIST, are in the package
    shown = capsys.readouterr().out
    *_, of_left = (line.split() for line in shown.splitlines() if line.split()[:2] == ["together", "cpu"])
    assert asked == [({"CIFAR10"}, int(of_left[3].replace(",", "")))]
    assert "MNIST: not measured; the hours are those of the rates of the package" in " ".join(shown.split())
    assert main(["reproduce", "fig7", *options]) == 0
    assert "All runs are finished, so this machine is not measured" in " ".join(capsys.readouterr().out.split())
    assert len(asked) == 1


def test_recorded_and_own_runs_are_joined(out, tmp_path, monkeypatch, capsys):
    runs = load.find(out)[0]
    recorded, own = tmp_path / f"recorded{archive.SUFFIX}", tmp_path / "own"
    load.pack(runs[:4], recorded)
    own.mkdir()
    load.pack(runs[4:], own / f"mine{archive.SUFFIX}")
    monkeypatch.setattr(outcome, "recorded_files", lambda: [recorded])
    words = [*COMMAND, "--recorded", "--runs", str(own), "--print", "scores"]
    assert main(words) == 0
    assert "ablation: 8 of 8 runs." in capsys.readouterr().out
    assert main([*COMMAND, "--print", "summary"]) == 2
    assert "--print summary: it shows finished runs; give --recorded, or --runs PATH" in capsys.readouterr().err


def test_only_the_missing_runs_are_computed_and_all_runs_are_judged(out, tmp_path, monkeypatch, capsys):
    runs = load.find(out)[0]
    recorded, own, folder = tmp_path / f"recorded{archive.SUFFIX}", tmp_path / f"own{archive.SUFFIX}", tmp_path / "rest"
    load.pack(runs[:4], recorded)
    load.pack(runs[4:6], own)
    monkeypatch.setattr(outcome, "recorded_files", lambda: [recorded])
    monkeypatch.setenv("COLUMNS", "160")
    words = [*COMMAND, "--missing", "--runs", str(own), "--workers", "1", "--out", str(folder)]
    assert main([*words, "--dry-run"]) == 0
    assert not folder.exists()
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["ablation"]]
    finished, missing = rows[1][2:4]  # rows[0] is the cost of the whole plan
    assert (finished, missing) == ("6", "2")
    assert main(words) == 0
    assert {run.folder.name for run in load.find(folder)[0]} == {run.folder.name for run in runs[6:]}
    whole, completed = (place.joinpath("reproduction.md").read_text(encoding="utf-8") for place in (out, folder))
    assert completed == whole


def test_the_cost_of_all_plans_counts_each_run_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["reproduce", "all", "--dry-run", "--scale", "cpu"]) == 0
    lines = {
        words[0]: int(words[2].replace(",", ""))
        for line in capsys.readouterr().out.splitlines()
        if len(words := line.split()) == 8
    }
    assert sorted(lines) == sorted([*set(plans.NAMES) - set(plans.BY_NAME), "together"])
    assert lines.pop("together") < sum(lines.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tab2", "--scale", "cpu"], "your own text is required; give it as --set train=PATH valid=PATH"),
        (
            ["tab2", "--scale", "cpu", "--missing", "--runs", "runs"],
            "your own text is required; give it as --set train=",
        ),
        (["fig7", "--set", "width=4"], "--set width=4: the plan sets width; use `alma sweep`"),
        (["fig7", "--set", "epoch=4"], r"epoch"),
        (["fig7", "--set", "valid_fraction=abc"], "valid_fraction='abc': must be a number; use for example valid_frac"),
        (["fig7", "--set", "valid_fraction=2"], "valid_fraction=2: must lie between 0 and 1, both excluded; use"),
        (["fig7", "--set", "epochs=4", "epochs=5"], "--set epochs=5: epochs is given twice; give it once"),
        (["fig7", "--recorded", "--fresh"], "--fresh with --recorded or --runs: no run is computed then"),
        (["fig7", "--missing", "--print", "summary"], "--print summary: it shows finished runs; give --recorded"),
        (["fig7", "--recorded", "--workers", "0"], "--workers 0: must be at least 1"),
    ],
)
def test_wrong_input_is_refused_with_a_remedy(words, message, tmp_path, capsys):
    assert main(["reproduce", *words, "--out", str(tmp_path)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "ticks", "message"),
    [
        ("fig4", "20", "--set ticks=20: fig4 compares waiting times of a stream with 10 mega-batches; leave it out"),
        ("tab2", "2", "--set ticks=2: tab2 compares waiting times of a stream with 4 mega-batches"),
        ("ablation", "0", "ticks=0: must be a whole number of mega-batches from 1"),
        ("emnist", "5", "--set ticks=5: emnist waits for 10 mega-batches; use at least ticks=10, or leave it out"),
        ("emnist", "many", "ticks='many': must be a whole number"),
        ("ablation", "2.5", "ticks=2.5: must be a whole number"),
    ],
)
def test_another_stream_length_is_refused_by_plans_that_compare_waiting_times(name, ticks, message, capsys):
    assert main(["reproduce", name, "--scale", "smoke", "--dry-run", "--set", f"ticks={ticks}"]) == 2
    assert message in capsys.readouterr().err
