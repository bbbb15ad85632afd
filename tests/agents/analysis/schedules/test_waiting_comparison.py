"""`alma policy compare`: comparison of schedules, paired by seed."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from scipy.stats import ttest_rel

from agents.analysis.prices import Prices
from agents.analysis.schedules.waiting_comparison import compare
from agents.analysis.statistics import Interval, paired_difference
from agents.cli import main
from agents.runs import load, run_folder

from ...fake_runs import fake_run

QUICK = ["--set", "epochs=20", "ticks=8", "--width", "4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    assert main(["run", *QUICK, "--seeds", "0", "1", "2", "--wait", "1", "2", "8", "--out", str(out)]) == 0
    for seed in ("0", "1", "2"):  # each run has its own random seed
        policy = f"random:probability=0.5,seed={seed}"
        assert main(["run", *QUICK, "--seeds", seed, "--policy", policy, "--out", str(out)]) == 0
    return out


def test_the_interval_of_paired_differences_equals_that_of_scipy():
    these, those = {0: 3.0, 1: 5.5, 2: 4.0, 9: 1.0}, {0: 2.0, 1: 4.0, 2: 4.5}
    expected = ttest_rel([3.0, 5.5, 4.0], [2.0, 4.0, 4.5]).confidence_interval(0.95)
    found = paired_difference(these, those)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((expected.low, expected.high))
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
    assert Interval.of([4.0]).text() == "4.00"
    assert Interval.of([4.0, 5.0, 6.0]).text("+.1f") == "+5.0 ± 2.5"
    with pytest.raises(ValueError, match="one value per seed"):
        Interval.of([])


def test_schedules_are_ranked_by_cer_and_paired_with_the_best_fixed_wait(folder):
    found, left_out = load.find(folder)
    assert left_out == []
    (one,) = compare(found)
    assert one.title == "Digits-ALMA-v0, sm 4"
    assert {schedule.name: schedule.cost.n for schedule in one.schedules} == {
        "wait 1": 3,
        "wait 2": 3,
        "wait 8": 3,
        "random(probability=0.5)": 3,
    }
    cers = {run.folder: run.ledger.score().cer for run in found}
    tardy = next(schedule for schedule in one.schedules if schedule.wait == 8)
    assert sorted(tardy.costs.values()) == sorted(cer for path, cer in cers.items() if "wait8" in path.name)
    assert one.schedules[-1] is tardy
    assert one.best_fixed.wait in (1, 2)
    assert one.against_best_fixed(one.best_fixed) is None
    assert one.against_best_fixed(tardy).mean == pytest.approx(tardy.cost.mean - one.best_fixed.cost.mean)


def test_the_best_fixed_wait_is_chosen_by_the_seeds_that_all_fixed_waits_share():
    runs = [fake_run(wait=5, seed=seed) for seed in (0, 1, 2)] + [fake_run(wait=10, seed=0)]
    costs = {run.run_config.agent.wait: run.score.cer for run in runs if run.seed == 0}
    (comparison,) = compare(runs)
    assert comparison.best_fixed.wait == min(costs, key=costs.get)
    (other,) = [one for one in comparison.schedules if one is not comparison.best_fixed]
    assert comparison.against_best_fixed(other).mean > 0


def test_prices_are_added_to_the_cost(folder):
    found, _ = load.find(folder)
    (free,), (priced,) = compare(found), compare(found, Prices(flops=2e6, parameters=3.0))
    score = next(run for run in found if "wait8" in run.folder.name and run.config["seed"] == 1).ledger.score()
    cost = next(schedule for schedule in priced.schedules if schedule.wait == 8).costs[1]
    assert cost == pytest.approx(score.cer + 2e6 * score.comp / 1e12 + 3 * score.mem / 1e6)
    assert {schedule.name for schedule in free.schedules} == {schedule.name for schedule in priced.schedules}


def test_the_command_prints_a_line_for_each_schedule_and_draws_a_figure(capsys, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["policy", "compare", str(folder)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"(?m)^ *wait 8 +3 +\d\.\d\d ± \d\.\d\d .* \+\d\.\d\d ± \d\.\d\d *$", out)
    assert len(re.findall("best fixed *$", out, flags=re.MULTILINE)) == 1
    assert (folder / "waiting.png").stat().st_size > 10_000


def test_a_comparison_without_a_fixed_waiting_time_says_so(capsys, tmp_path):
    assert (
        main(["run", "--width", "4", "--set", "epochs=1", "ticks=4", "--policy", "doubling", "--out", str(tmp_path)])
        == 0
    )
    capsys.readouterr()
    assert main(["policy", "compare", str(tmp_path), "--json"]) == 0
    message = "Digits-ALMA-v0, sm 4: no run has a fixed waiting time; add runs of alma run … --wait 1 2 5"
    assert message in " ".join(capsys.readouterr().err.split())


def test_with_json_the_figure_is_drawn_if_it_is_asked_for(capsys, folder, tmp_path):
    assert main(["policy", "compare", str(folder), "--json", "--picture", str(tmp_path / "board.svg")]) == 0
    output = capsys.readouterr()
    assert {line["wait"] for line in json.loads(output.out)} >= {8}
    assert "board.svg" in output.err
    assert (tmp_path / "board.svg").stat().st_size > 10_000


@pytest.mark.parametrize(
    "words", [["policy", "compare", "."], ["policy", "judge", "."], ["surrogate", "schedules", "Digits-ALMA-v0"]]
)
def test_a_picture_of_an_unknown_kind_is_refused_before_the_work(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--picture", "board.xyz", *(["--pass-price", "10"] if "compare" not in words else [])]) == 2
    output = capsys.readouterr()
    assert "--picture board.xyz: must end with one of ." in output.err
    assert output.err.endswith("; write board.png\n")
    assert output.out == ""


def test_a_folder_without_runs_and_a_negative_price_are_refused(capsys, folder, tmp_path):
    assert main(["policy", "compare", str(tmp_path)]) == 2
    assert "no ledger.jsonl in or below it" in capsys.readouterr().err
    assert main(["policy", "compare", str(folder), "--flops-price", "-1"]) == 2
    assert "a price must be a finite number from 0 on" in capsys.readouterr().err


def test_several_random_seeds_on_one_stream_are_several_schedules(folder):
    random = [run for run in load.find(folder)[0] if "random" in run.folder.name]
    agent = {**random[1].config["agent"], "seed": random[0].config["agent"]["seed"]}
    config = {**random[1].config, "seed": random[0].seed, "agent": agent}
    same = [random[0], dataclasses.replace(random[1], config=config)]
    (one,) = compare(same)
    assert len({schedule.name for schedule in one.schedules}) == 2


def test_a_run_with_other_threads_is_counted_once(folder):
    found, _ = load.find(folder)
    again = dataclasses.replace(found[0], config={**found[0].config, "threads": 7})
    (one,) = compare([*found, again])
    assert {schedule.cost.n for schedule in one.schedules} == {3}
    assert "counted once" in one.notes[0]


def test_an_unfinished_run_is_left_out_with_a_message(capsys, folder, tmp_path):
    source = next(path for path in (folder / "Digits-ALMA-v0").iterdir() if "wait1-" in path.name)
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.json").write_text(json.dumps(run_folder.read_config(source).to_dict()))
    lines = (source / "ledger.jsonl").read_text().splitlines(keepends=True)
    (half / "ledger.jsonl").write_text("".join(lines[:4]))
    assert main(["policy", "compare", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert "unfinished, 5 ticks to go; left out" in output.out
    assert "no finished run" in output.err


def test_runs_on_text_are_refused_because_the_sum_of_perplexities_is_no_cer(tmp_path, capsys):
    file = tmp_path / "text.jsonl.xz"
    load.pack([fake_run(text=True, env="Text-ALMA-v0")], file)
    assert main(["policy", "compare", str(file)]) == 2
    assert "the runs have a perplexity, not an error rate; compare runs on images, or use" in capsys.readouterr().err
