"""The numbers of the documentation are those of ``alma policy judge --recorded``."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from agents.cli import main
from agents.rl.registration import SHIPPED
from agents.runs import load

ROOT = Path(__file__).parents[4]
NINTH, EIGHTH = "ad0e84f6dcc3c572", "b6b9f4753ed2a05c"  # the learned schedule, and the one before
THIRD, FIRST = "a9d4723f53300012", "3f724a12d37cdc92"
# That for learners that grow, and the two before it
SIXTH, GROWING, BEFORE = "a799504d86d0928b", "11993ba26b2aeda3", "b229c571dc77948e"


def require_on_the_page(name, rows, *, costs=True):
    """Require the costs and differences of all rows on a page, one line for each learner and rival."""
    page = (ROOT / "docs" / name).read_text()
    lines = {}
    for row in rows:
        cost, difference = (row[name] for name in ("cost", "difference"))
        numbers = lines.setdefault((row["runs"], row["rival"]), ([], []))
        numbers[0].append(f"{cost['mean']:.2f} ± {cost['half']:.2f}")
        numbers[1].append(f"{difference['mean']:+.2f} ± {difference['half']:.2f}".replace("-", "−"))
    for numbers in lines.values():
        numbers = numbers if costs else numbers[1:]
        assert all(f"| {' | '.join(cells)} |" in page for cells in numbers)
    return page


def won(rows, rival, p):
    """In how many comparisons with a rival the learned schedule costs less."""
    return sum(row["difference"]["mean"] < 0 and row["p"] < p for row in rows if row["rival"] == rival)


def above(row):
    """How many percent the learned schedule costs more than a rival."""
    return 100 * row["difference"]["mean"] / row["rival_cost"]["mean"]


def near(rows, rival="best schedule"):
    """In how many comparisons with a rival the learned schedule costs at most 2 % more."""
    return sum(above(row) <= 2 for row in rows if row["rival"] == rival)


def test_the_page_has_the_numbers_of_the_recorded_comparison(capsys):
    assert main(["policy", "judge", "--recorded", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rivalries"]
    assert len(rows) == 112  # seven learners, four prices, four rivals
    require_on_the_page("waiting.md", rows)
    others = [row for row in rows if row["rival"] != "best schedule"]
    assert all(row["difference"]["mean"] < 0 for row in others)
    assert all(row["p"] < 0.01 for row in others)
    far = {(row["runs"], row["pass_price"]): round(above(row), 1) for row in rows if above(row) > 2}
    assert far == {("Digits, sm 4", 0): 4.2, ("MNIST, sm 64", 40): 2.3, ("MNIST, sm 64", 100): 2.9}
    assert near(rows) == 25
    assert sum(row["worst"] <= row["rival_worst"] for row in rows if row["rival"] == "doubling") == 28


def test_the_page_says_where_the_third_network_fails(capsys):
    restarting = [f"geometric:factor={factor},replay=all,restart=0.1,stop=0.2" for factor in (1.6, 5)]
    assert main(["policy", "judge", "--recorded", "cifar", "--json", "--rival", *restarting]) == 0
    rows = json.loads(capsys.readouterr().out)["rivalries"]
    beside = [row for row in rows if row["rival"] not in restarting]
    assert len(beside) == 16  # four prices, four rivals
    require_on_the_page("preregistration.md", beside)
    rivals = ("best fixed wait", "doubling", "the rule")
    assert [won(rows, rival, 0.05) for rival in rivals] == [1, 2, 1]
    assert near(rows) == 0
    assert sum(row["worst"] <= row["rival_worst"] for row in rows if row["rival"] == "doubling") == 2
    percent = {
        rival: [round(above(row)) for row in rows if row["rival"] == rival] for rival in (*rivals, "best schedule")
    }
    assert [percent["best fixed wait"][1], percent["doubling"][1], *percent["the rule"][1:3]] == [19, 17, 22, 4]
    assert [round(above(row)) for row in beside if row["rival"] == "best schedule"] == [16, 28, 28, 23]
    costs = ([row["rival_cost"]["mean"] for row in rows if row["rival"] == rule] for rule in restarting)
    better = map(min, *costs)
    learned = [row["cost"]["mean"] for row in rows if row["rival"] == "the rule"]
    assert [round(100 * own / least - 100) for own, least in zip(learned, better, strict=True)][1:] == [25, 23, 9]


def test_the_page_has_the_numbers_of_the_seeds_that_repeat_the_comparison(capsys):
    assert main(["policy", "judge", "--recorded", "seeds", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rivalries"]
    assert len(rows) == 48  # three learners, four prices, four rivals
    require_on_the_page("preregistration.md", rows)
    others = [row for row in rows if row["rival"] != "best schedule"]
    assert all(row["difference"]["mean"] < 0 for row in others)
    lost = [(row["runs"], row["rival"], row["pass_price"]) for row in others if row["p"] >= 0.005]
    assert lost == [("MNIST, sm 8", "the rule", 10), ("MNIST, sm 64", "the rule", 10)]
    hindsight = [row for row in rows if row["rival"] == "best schedule"]
    dearer = [row for row in hindsight if row["difference"]["mean"] > 0.02 * row["rival_cost"]["mean"]]
    assert [(row["runs"], row["pass_price"]) for row in dearer] == [("MNIST, sm 64", 10)]
    assert all(row["worst"] <= row["rival_worst"] for row in rows if row["rival"] == "doubling")


def test_the_page_has_the_numbers_of_the_widths_that_the_network_never_met(capsys):
    assert main(["policy", "judge", "--recorded", "widths", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rivalries"]
    assert len(rows) == 48  # three learners, four prices, four rivals
    require_on_the_page("preregistration.md", rows)
    others = [row for row in rows if row["rival"] != "best schedule"]
    assert all(row["difference"]["mean"] < 0 and row["p"] < 0.001 for row in others)
    hindsight = [row for row in rows if row["rival"] == "best schedule"]
    dear = {
        (row["runs"], row["pass_price"]): round(above(row), 1)
        for row in hindsight
        if row["difference"]["mean"] > 0.02 * row["rival_cost"]["mean"]
    }
    assert dear == {
        ("Digits, sm 8", 0): 3.3,
        ("Digits, sm 8", 10): 4.6,
        ("Digits, sm 16", 10): 2.5,
        ("Digits, sm 64", 10): 2.4,
    }
    assert all(row["p"] > 0.05 for row in hindsight if (row["runs"], row["pass_price"]) in dear)
    assert all(row["worst"] <= row["rival_worst"] for row in rows if row["rival"] == "doubling")


def test_the_page_has_the_differences_to_the_networks_before(capsys):
    assert main(["policy", "judge", "--recorded", "earlier", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rivalries"]
    before = [row for row in rows if row["network"] == THIRD and row["rival"].startswith("network")]
    assert len(before) == 44  # six learners, four prices, two networks; the second lacks seeds of one learner
    require_on_the_page("preregistration.md", before, costs=False)
    first = [row for row in before if row["rival"] == f"network {FIRST}"]
    assert sum(row["cost"]["mean"] <= 1.02 * row["rival_cost"]["mean"] for row in first) == 20
    dear = [row for row in first if row["p"] < 0.05 and abs(row["difference"]["mean"]) > 0.005]
    assert [(row["runs"].removesuffix(f", {THIRD}"), row["pass_price"]) for row in dear] == [("MNIST, sm 64", 100)]


@pytest.mark.parametrize(
    ("recorded", "network", "before", "cells", "numbers", "worst"),
    [
        # less than: the best fixed wait, doubling, the rule; within 2 % of: the best schedule, the network before
        # worst: worst seeds that are not above the worst of doubling
        ("noise", "1accd880eccc7232", THIRD, 9, (36, 35, 31, 28, 29), 36),
        ("fifth", "5a58cfe5f1546c99", THIRD, 9, (36, 33, 31, 26, 28), 35),
        ("longer", "5061afb72fa23453", BEFORE, 4, (16, 15, 15, 12, 11), None),
        ("told", "3b0479337248ff09", BEFORE, 4, (16, 15, 14, 8, 6), None),
        ("after", GROWING, BEFORE, 4, (16, 15, 14, 11, 8), None),
    ],
)
def test_the_page_has_the_numbers_of_another_network(recorded, network, before, cells, numbers, worst, capsys):
    assert main(["policy", "judge", "--recorded", recorded, "--json"]) == 0
    told = [row for row in json.loads(capsys.readouterr().out)["rivalries"] if row["network"] == network]
    rivals = ["best fixed wait", "doubling", "the rule", "best schedule", f"network {before}"]

    def rows(rival):
        return [row for row in told if row["rival"] == rival]

    assert all(len(rows(rival)) == 4 * cells for rival in rivals)
    assert (*(won(told, rival, 0.05) for rival in rivals[:3]), *(near(told, rival) for rival in rivals[3:])) == numbers
    name = "preregistration.md" if cells == 9 else "preregistration-growth.md"  # four learners that grow
    page = (ROOT / "docs" / name).read_text()
    (section,) = [section for section in page.split("\n## ") if f"alma policy judge --recorded {recorded}\n" in section]
    hypotheses = numbers if cells == 9 else (numbers[0], *numbers[2:])  # those of learners that grow leave out doubling
    assert all(f"| {number}" in section for number in hypotheses)
    if worst is not None:  # a hypothesis on the learners that do not grow
        assert sum(row["worst"] <= row["rival_worst"] for row in rows("doubling")) == worst
        (hypothesis,) = [line for line in section.splitlines() if line.startswith("| 5. the worst seed")]
        assert hypothesis.endswith(f"| {worst} |")
    ratio = np.exp(np.mean([np.log(row["cost"]["mean"] / row["rival_cost"]["mean"]) for row in rows(rivals[-1])]))
    assert f"network, is {ratio:.3f}" in " ".join(section.split())
    if recorded == "noise":  # the only section with the costs of each learner
        require_on_the_page("preregistration.md", [*rows(rivals[-1]), *rows("best schedule")])


def test_the_page_has_the_numbers_of_the_network_that_was_learned_on_cifar_10(capsys):
    assert main(["policy", "judge", "--recorded", "seventh", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rivalries"] if row["network"] == "2824668fbf09c3ee"]
    cifar = [row for row in rows if row["runs"].startswith("CIFAR10")]
    assert len(rows) == 80  # four learners, four prices, five rivals
    require_on_the_page("preregistration.md", rows)
    rivals = ("best fixed wait", "doubling", "the rule")
    assert [won(rows, rival, 0.05) for rival in rivals] == [14, 14, 14]
    assert near(rows) == 12
    assert [won(cifar, rival, 0.001) for rival in (*rivals, f"network {THIRD}")] == [4, 4, 4, 4]
    assert near(cifar) == 4
    assert sum(row["worst"] <= row["rival_worst"] for row in rows if row["rival"] == "doubling") == 14
    lost = {(row["runs"][:6], row["pass_price"]) for row in rows if row["rival"] in rivals and row["p"] >= 0.05}
    assert lost == {("Fashio", 10), ("Fashio", 40)}


def beside_the_network_before(capsys, recorded, network, before):
    """Return the comparisons of a network, those with the network before, and the page that has the latter."""
    assert main(["policy", "judge", "--recorded", recorded, "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rivalries"] if row["network"] == network]
    beside = [row for row in rows if row["rival"] == f"network {before}"]
    assert len(rows) == 5 * len(beside) == 200  # ten learners, four prices, five rivals
    return rows, beside, require_on_the_page("preregistration.md", beside, costs=False)


def more_widths(rows):
    """Return the comparisons on three more widths of the digits, with what the page says of both later networks."""
    widths = [row for row in rows if row["runs"].startswith(tuple(f"Digits, sm {width}," for width in (8, 16, 64)))]
    assert [won(widths, rival, 0.001) for rival in ("best fixed wait", "doubling", "the rule")] == [12, 12, 12]
    assert near(widths) == 9
    assert sum(row["worst"] <= row["rival_worst"] for row in widths if row["rival"] == "doubling") == 12
    return widths


def test_the_page_has_the_numbers_of_the_network_that_was_learned_with_dead_networks(capsys):
    rows, third, page = beside_the_network_before(capsys, "eighth", EIGHTH, THIRD)
    widths = more_widths(rows)
    beside = [row for row in third if row not in widths and not row["runs"].startswith("CIFAR10")]
    assert len(beside) == 24
    (other,) = [row for row in beside if row["p"] < 0.05]
    assert (other["runs"], other["pass_price"], round(above(other), 1)) == (f"MNIST, sm 64, {EIGHTH}", 10, -6.8)
    ratio = np.exp(np.mean([np.log(row["cost"]["mean"] / row["rival_cost"]["mean"]) for row in beside]))
    assert f"third network, is {ratio:.3f} over the 24" in " ".join(page.split())
    assert won([row for row in rows if row["runs"].startswith("CIFAR10")], f"network {THIRD}", 0.001) == 4


def test_the_page_has_the_numbers_of_the_network_that_was_learned_on_surrogates_that_forget(capsys):
    rows, before, page = beside_the_network_before(capsys, "ninth", NINTH, EIGHTH)
    widths = more_widths(rows)
    assert round(max(above(row) for row in widths if row["rival"] == "best schedule"), 1) == 5.7
    beside = [row for row in before if row not in widths]
    assert len(beside) == 28
    ratio = np.exp(np.mean([np.log(row["cost"]["mean"] / row["rival_cost"]["mean"]) for row in beside]))
    assert f"eighth network, is {ratio:.3f} over the 28 comparisons" in " ".join(page.split())
    differing = {(row["runs"], row["pass_price"]): round(above(row), 1) for row in beside if row["p"] < 0.05}
    assert differing == {(f"MNIST, sm 8, {NINTH}", 0): -3.4, (f"MNIST, sm 64, {NINTH}", 0): 2.8}


def runs_on_the_stream_left_out(network):
    """Return the runs on Fashion-MNIST, and seed, restart and error of trainings after a dead network."""
    runs, _ = load.find(*(SHIPPED / f"learned-{network}{part}.jsonl.xz" for part in ("", "-fresh")))
    fashion = [run for run in runs if run.run_config.env.startswith("FashionMNIST")]
    assert {run.seed for run in fashion} == {*range(40)}
    assert len(fashion) == 160
    after = [
        (run.seed, later.restart, round(run.columns.error[later.tick], 2))
        for run in fashion
        for stage, later in itertools.pairwise(run.stages)
        if stage.restart and run.columns.error[stage.tick] > 0.88
    ]
    return fashion, sorted(after)


def test_the_eighth_network_restarts_dead_networks_of_real_runs():
    fashion, after = runs_on_the_stream_left_out("eighth")
    assert round(max(run.score.cer for run in fashion)) == 155
    assert after == [(30, True, 0.26), (35, True, 0.36)]
    page = " ".join((ROOT / "docs/preregistration.md").read_text().split())
    assert "Two restarts of the eighth network left a dead network there (seed 30 at" in page
    assert "had errors of 0.26 and 0.36." in page


def test_the_learned_schedule_restarts_dead_networks_of_real_runs():
    fashion, after = runs_on_the_stream_left_out("ninth")
    cers = sorted((round(run.score.cer), run.seed, run.run_config.agent.schedule["pass_price"]) for run in fashion)
    assert (cers[-1], cers[-2][0]) == ((237, 33, 40), 145)
    assert len(after) == 5
    assert all(restart and 0.28 <= error <= 0.56 for _, restart, error in after)


def test_the_page_has_the_numbers_of_growth_at_prices_of_memory(capsys):
    without = "geometric:factor=1.6,stop=0.8,growth=never"
    assert main(["policy", "judge", "--recorded", "growth", "--rival", without, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rivalries"]
    assert len(rows) == 100  # five learners, four prices, five rivals
    page = require_on_the_page("waiting.md", [row for row in rows if row["rival"] != "doubling"])
    assert all(f" {row['size']:.2f}, {row['rival_size']:.2f} " in page for row in rows if row["rival"] == "the rule")

    rivals = [("best fixed wait", 0.005), ("doubling", 0.005), ("the rule", 0.005), (without, 0.05)]
    assert [won(rows, *rival) for rival in rivals] == [20, 20, 20, 19]
    assert near(rows) == 17


def test_the_page_has_the_numbers_of_the_growing_network_that_knows_gmoe_on_mnist(capsys):
    assert main(["policy", "judge", "--recorded", "sixth", "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rivalries"] if row["network"] == SIXTH]
    before = [row for row in rows if row["rival"] == f"network {GROWING}"]
    assert len(rows) == 5 * len(before) == 100  # five learners, four prices, five rivals
    assert [won(rows, "the rule", 0.005), won(rows, "best fixed wait", 0.001), near(rows)] == [20, 20, 17]
    assert near(before, f"network {GROWING}") == 18
    assert won([row for row in before if row["runs"].startswith("MNIST")], f"network {GROWING}", 0.01) == 7
    digits = [row for row in before if row["runs"].startswith("Digits")]
    assert all(row["p"] > 0.05 for row in digits)
    assert [round(end(map(above, digits)), 1) for end in (min, max)] == [-2.2, 4.0]
    ratio = np.exp(np.mean([np.log(row["cost"]["mean"] / row["rival_cost"]["mean"]) for row in before]))
    page = " ".join((ROOT / "docs/preregistration-growth.md").read_text().split())
    assert f"divided by that of the present network, is {ratio:.3f}. On MNIST, the surrogates" in page
    assert f"{1 - ratio:.1%} less than that network".replace("%", " %") in (ROOT / "docs/waiting.md").read_text()


def test_the_page_has_the_numbers_of_gmoe_on_mnist(capsys):
    """Of the network of that day, and of the one that took its place; see docs/preregistration-growth.md."""
    ratios = []
    for recorded, held in (("gmoe", [3, 3, 2]), ("gmoe-after", [4, 4, 1]), ("after", None)):
        assert main(["policy", "judge", "--recorded", recorded, "--json"]) == 0
        rivalries = json.loads(capsys.readouterr().out)["rivalries"]
        rows = [row for row in rivalries if row["network"] in (None, BEFORE if recorded == "gmoe" else GROWING)]
        if held is not None:
            assert [won(rows, "the rule", 0.05), won(rows, "best fixed wait", 0.05), near(rows)] == held
        ratios += [
            row["cost"]["mean"] / row["rival_cost"]["mean"] for row in rows if row["rival"] == f"network {BEFORE}"
        ]
    assert len(ratios) == 20
    page = " ".join((ROOT / "docs/preregistration-growth.md").read_text().split())
    over = [np.exp(np.mean(np.log(ratios[:many]))) for many in (4, 20)]
    assert f"is {over[0]:.3f} over the four prices, and {over[1]:.3f} over the 20 comparisons" in page


def test_the_page_has_the_numbers_of_the_rules_that_restart(capsys):
    rules = [f"geometric:factor={factor},replay=all,restart=0.1,stop=0.2" for factor in (1.6, 5)]
    plain = "geometric:factor=1.6,replay=all,stop=0.2"
    page = (ROOT / "docs" / "waiting.md").read_text()
    better = []
    for rule in rules:
        words = ["--subject", rule, "--pass-price", "0", "10", "40", "100", "--rival", plain]
        assert main(["policy", "judge", "--recorded", "--json", *words]) == 0
        rows = json.loads(capsys.readouterr().out)["rivalries"]
        beside = [row for row in rows if row["rival"] == "the rule"]
        free, dear = ([row for row in beside if row["pass_price"] == price] for price in (0, 10))
        assert len(free) == len(dear) == 7
        for row, at_ten in zip(free, dear, strict=True):
            numbers = [
                (row[one]["mean"], (at_ten[one]["mean"] - row[one]["mean"]) / 10) for one in ("rival_cost", "cost")
            ]
            (theirs, own) = (f"{cer:.2f}, {passes:.2f}" for cer, passes in numbers)
            difference = f"{row['difference']['mean']:+.2f} ± {row['difference']['half']:.2f}".replace("-", "−")
            assert any(f"| {theirs} |" in line and f"| {own} | {difference} |" in line for line in page.splitlines())
        priced = [row for row in beside if row["pass_price"]]
        cheaper = [row for row in priced if row["difference"]["mean"] < 0]
        better.append((len(priced), len(cheaper), sum(row["p"] < 0.05 for row in cheaper)))
        without = [row["difference"] for row in rows if row["rival"] == plain and "MNIST" in row["runs"]]
        if rule == rules[0]:
            assert all(f"{one['mean']:+.2f} ± {one['half']:.2f}".replace("-", "−") in page for one in without)
    assert better == [(21, 21, 18), (21, 21, 19)]
    assert main(["policy", "judge", "--recorded", "--json", "--rival", *rules]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rivalries"] if row["pass_price"]]
    lowest = {}
    for row in rows:
        if row["rival"] in rules:
            cell = row["runs"], row["pass_price"]
            lowest[cell] = min(lowest.get(cell, np.inf), row["rival_cost"]["mean"])
    learned = {(row["runs"], row["pass_price"]): row["cost"]["mean"] for row in rows}
    assert sum(cost <= 1.02 * lowest[cell] for cell, cost in learned.items()) == 21
