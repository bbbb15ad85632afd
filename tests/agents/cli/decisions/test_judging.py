"""The command ``alma policy judge``: seeds, prices and rivals."""

from __future__ import annotations

import json
import re

import pytest

from agents.analysis.schedules.costs import RunPrices
from agents.analysis.schedules.priced_comparison import compare_at_prices
from agents.cli import main
from agents.policies.learned.next_training import WITH_GROWTH
from agents.policies.specs import policy_from

from ...fake_runs import fake_run
from ...rl.synthetic import network_of


def test_networks_are_judged_apart_and_on_their_own_seeds(tmp_path, capsys):
    (tmp_path / "a:b").mkdir()  # a path may contain a colon
    files = [tmp_path / "a:b" / f"{seed}.npz" for seed in (1, 2)]
    for seed, file in enumerate(files, 1):
        network_of(seed).save(file)
    out = str(tmp_path / "runs")
    run = ["run", "--width", "4", "--set", "epochs=5", "ticks=10", "--out", out]
    assert main([*run, "--seeds", "0", "1", "--policy", *(f"{file}:pass_price=10" for file in files), "doubling"]) == 0
    assert main([*run, "--seeds", "0", "--wait", "2"]) == 0
    capsys.readouterr()
    assert main(["policy", "judge", out, "--json"]) == 0
    told = capsys.readouterr()
    rows = json.loads(told.out)["rivalries"]
    assert len({row["runs"] for row in rows}) == 2
    one, other = (row for row in rows if row["rival_network"] is not None)  # each is the rival of the other
    assert (one["network"], one["rival_network"]) == (other["rival_network"], other["network"])
    assert {one["network"], other["network"]} == {row["network"] for row in rows}
    assert one["rival"] == f"network {one['rival_network']}"
    assert one["difference"]["mean"] == pytest.approx(-other["difference"]["mean"])
    assert (one["cost"], one["rival_cost"]) == (other["rival_cost"], other["cost"])
    assert all(row["cost"]["n"] == row["rival_cost"]["n"] == row["difference"]["n"] == 2 for row in rows)
    assert main(["policy", "judge", out]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for row in (one, other):
        ratio = row["cost"]["mean"] / row["rival_cost"]["mean"]
        assert f"{row['network']} {row['rival_network']} 1 {ratio:.3f}" in printed
    assert "w = 2: it lacks a seed of the subject; left out" in " ".join(told.err.split())


def test_a_learner_without_rivals_is_left_out_and_the_others_are_judged(tmp_path, capsys):
    network_of(1).save(file := tmp_path / "schedule.npz")
    out = str(tmp_path / "runs")
    run = ["run", "--set", "epochs=1", "ticks=4", "--out", out, "--policy", f"{file}:pass_price=10"]
    assert main([*run, "doubling", "--width", "4"]) == 0
    assert main([*run, "--width", "8"]) == 0
    capsys.readouterr()
    assert main(["policy", "judge", out, "--json"]) == 0
    told = capsys.readouterr()
    assert {row["runs"] for row in json.loads(told.out)["rivalries"]} == {"Digits, sm 4"}
    said = " ".join(told.err.split())
    assert "Digits, sm 8: the subject has 1 of its seeds at each price, and 0 runs of rivals" in said
    assert said.endswith("such as --wait 1; left out")


@pytest.mark.parametrize(
    "words", [["policy", "judge", "--recorded", "cifar"], ["surrogate", "schedules", "Digits-ALMA-v0", "--width", "4"]]
)
def test_a_picture_that_cannot_be_written_loses_no_number(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*words, "--picture", "/proc/costs.png"]) == 2
    told = capsys.readouterr()
    assert "/proc/costs.png" in told.err
    assert told.out.count("±") > 5


def test_a_learned_policy_that_sees_prices_is_judged_as_a_learned_schedule_is():
    learned = {"name": "learned", "digest": "0123", "replay": False, "growth": "never"}
    seeing, blind = learned | {"pass_price": 10.0, "memory_price": 0.0}, learned
    doubling = policy_from("doubling", grows=False, option="").as_plain_data()
    runs = [fake_run(wait=None, policy=one, seed=seed) for one in (seeing, doubling) for seed in (0, 1)]
    rivalries, *_ = compare_at_prices([*runs, fake_run(wait=1, seed=0), fake_run(wait=1, seed=1)])
    assert {(one.pass_price, one.network) for one in rivalries} == {(10.0, "0123")}
    assert {one.rival for one in rivalries} == {"best fixed wait", "doubling", "best schedule"}
    with pytest.raises(ValueError, match="no run has a learned schedule, or a learned policy that sees prices; add"):
        compare_at_prices([fake_run(wait=None, policy=blind), *runs[2:]])


def test_a_narrow_terminal_breaks_lines_and_cuts_no_number(capsys, monkeypatch):
    numbers = []
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["policy", "judge", "--recorded", "growth"]) == 0
        printed = capsys.readouterr().out
        numbers.append(sorted(re.findall(r"[\d.]*\d", printed.partition("hypervolume")[0])))
    assert numbers[0] == numbers[1]


def test_each_price_has_the_seeds_that_the_subject_has_there(tmp_path, capsys):
    network_of(0).save(file := tmp_path / "schedule.npz")
    out = str(tmp_path / "runs")
    run = ["run", "--width", "4", "--set", "epochs=1", "ticks=4", "--out", out]
    assert main([*run, "--seeds", "0", "1", "2", "--policy", f"{file}:pass_price=10", "doubling"]) == 0
    assert main([*run, "--seeds", "0", "1", "--policy", f"{file}:pass_price=40"]) == 0
    capsys.readouterr()
    assert main(["policy", "judge", out, "--json"]) == 0
    told = capsys.readouterr()
    assert "seeds [2]: the subject lacks them at a price; the fronts leave them out" in " ".join(told.err.split())
    judged = json.loads(told.out)
    for row in judged["rivalries"]:
        seeds = {10: 3, 40: 2}[row["pass_price"]]
        assert [row[name]["n"] for name in ("cost", "rival_cost", "difference")] == [seeds] * 3
    assert {front["hypervolume"]["n"] for front in judged["fronts"]} == {2}


def test_a_subject_without_prices_is_refused():
    with pytest.raises(ValueError, match=r"prices=\(\) with subject='doubling': a subject needs prices"):
        compare_at_prices([], "doubling")


def test_without_runs_no_schedule_is_called_the_subject():
    with pytest.raises(ValueError, match="no run has this schedule; the runs have none; name"):
        compare_at_prices([], "fixed:wait=1", [RunPrices(10)], ["doubling"])


def _doubling_and_waiting(**keywords):
    doubling = policy_from("doubling", grows=False, option="").as_plain_data()
    schedules = [{"wait": None, "policy": doubling}, {"wait": 1}]
    return [fake_run(seed=seed, **schedule, **keywords) for schedule in schedules for seed in (0, 1)]


def test_runs_of_text_have_no_errors_to_compare_with_prices():
    runs = _doubling_and_waiting(text=True)
    with pytest.raises(ValueError, match="the runs have a perplexity, not an error rate"):
        compare_at_prices(runs, "doubling", [RunPrices(10.0)])


def test_learners_that_start_without_parameters_are_judged_where_memory_is_free():
    runs = _doubling_and_waiting()
    for run in runs:
        run.columns.parameters[:] = [0] * len(run.columns)
    compared, *_ = compare_at_prices(runs, "doubling", [RunPrices(10.0)])
    assert {one.size for one in compared} == {0.0}
    with pytest.raises(ValueError, match="it has no parameters; judge this learner at a memory price of 0"):
        compare_at_prices(runs, "doubling", [RunPrices(10.0, 0.5)])


def test_learners_that_grow_are_judged_at_prices_of_memory(tmp_path, capsys):
    network_of(0, menu=WITH_GROWTH).save(file := tmp_path / "schedule.npz")
    out = str(tmp_path / "runs")
    run = ["run", "--agent", "gens", "--width", "4", "--set", "epochs=3", "ticks=8", "--seeds", "0", "1", "--out", out]
    schedules = [f"{file}:pass_price=10,memory_price=0.5", "doubling", "doubling:growth=never"]
    assert main([*run, "--policy", *schedules]) == 0
    capsys.readouterr()

    def judged(*words):
        assert main(["policy", "judge", out, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["rivalries"]

    prices = ["--pass-price", "10", "--memory-price", "0", "0.5"]
    rows = judged("--subject", "doubling", *prices, "--rival", "doubling:growth=never")
    (free, dear) = [row for row in rows if row["rival"] == "doubling:growth=never"]
    assert (free["memory_price"], dear["memory_price"]) == (0.0, 0.5)
    assert free["rival_size"] == 1
    assert free["size"] == pytest.approx((1 + 2 * 2 + 4 * 3 + 4) / 8)  # trainings at the ticks 1, 2, 4 and 8
    for one, size in (("cost", "size"), ("rival_cost", "rival_size")):
        assert dear[one]["mean"] - free[one]["mean"] == pytest.approx(0.5 * 8 * free[size])
    learned = judged("--rival", "doubling:growth=never")
    assert {(row["pass_price"], row["memory_price"]) for row in learned} == {(10.0, 0.5)}
    assert {row["rival"] for row in learned} == {"doubling", "doubling:growth=never", "best schedule"}
    assert main(["policy", "judge", out, "--picture", str(tmp_path / "rivals.png")]) == 0
    printed = capsys.readouterr().out
    assert "sizes" in printed
    assert "10, 0.5" in printed


def test_a_rival_can_be_the_subject_for_some_of_the_learners(tmp_path, capsys):
    out = str(tmp_path)
    run = ["run", "--width", "4", "--set", "epochs=1", "ticks=4", "--seeds", "0", "1", "--out", out, "--policy"]
    assert main([*run, "doubling", "doubling:growth=never", "--agent", "gens"]) == 0
    assert main([*run, "doubling", "geometric:factor=3", "--agent", "sm"]) == 0
    capsys.readouterr()
    words = ["--subject", "doubling", "--pass-price", "1", "--rival", "doubling:growth=never", "--json"]
    assert main(["policy", "judge", out, *words]) == 0
    rows = json.loads(capsys.readouterr().out)["rivalries"]
    assert {(row["runs"], row["rival"]) for row in rows} == {
        ("Digits, gens 4", "doubling:growth=never"),
        ("Digits, gens 4", "best schedule"),
        ("Digits, sm 4", "best schedule"),
    }


def test_a_rule_without_growth_is_not_taken_for_the_rule(tmp_path, capsys):
    network_of(0, menu=WITH_GROWTH).save(file := tmp_path / "schedule.npz")
    out = str(tmp_path / "runs")
    run = ["run", "--agent", "gens", "--width", "4", "--set", "epochs=1", "ticks=4", "--out", out, "--policy"]
    assert main([*run, f"{file}:pass_price=1", "doubling:growth=never"]) == 0
    capsys.readouterr()
    assert main(["policy", "judge", out, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rivalries"]
    assert (row["rival"], row["schedule"]) == ("best schedule", "doubling:growth=never")


def test_fronts_of_errors_and_flops_are_left_out_where_memory_costs(capsys):
    for words, count in (([], 21), (["growth"], 0)):
        assert main(["policy", "judge", "--recorded", *words, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["fronts"]) == count


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--subject", "doubling"], "a subject needs prices"),
        (["--pass-price", "10"], "a subject needs prices"),
        (["--subject", "learned", "--pass-price", "10"], "learned: must be one of fixed"),
        (["--subject", "doubling:restart=0.5", "--pass-price", "1"], "doubling:restart=0.5: no run has this schedule"),
        (
            ["--rival", "doubling:restart=0.5"],
            "no run has this schedule; the runs have doubling, fixed:wait=1, ",
        ),
        (["--subject", "doubling", "--pass-price", "1", "--rival", "doubling:first=1"], "it is the subject"),
        (
            ["--memory-price", "0.5"],
            "--memory-price [0.5]: a subject needs prices",
        ),
        (["--subject", "doubling", "--pass-price", "-1"], "--pass-price -1: a price must be a finite number"),
    ],
)
def test_a_subject_or_rival_without_runs_is_refused(words, message, capsys):
    assert main(["policy", "judge", "--recorded", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_an_unknown_schedule_is_refused_before_the_runs_are_read(tmp_path, capsys):
    missing = tmp_path / "missing.jsonl.xz"
    for no_schedule in ("doublings", "learned:pass_price=10", "exploring"):
        assert main(["policy", "judge", str(missing), "--rival", no_schedule]) == 2
        message = " ".join(capsys.readouterr().err.split())
        assert f"{no_schedule}: must be one of fixed, geometric, doubling," in message
    assert main(["policy", "judge", str(missing), "--rival", "doubling"]) == 2
    assert str(missing) in "".join(capsys.readouterr().err.split())
