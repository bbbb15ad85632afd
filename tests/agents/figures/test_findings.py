"""Figures of the project's own findings, and figure 5: they draw the numbers of their runs and write their tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents import figures
from agents.runs.load import FinishedRun

from ..fake_runs import fake_run
from ..grid_of_runs import GRID, NO_REPLAY, TEXT, group

OTHER_STREAM = [fake_run("sm", 4, wait, seed, ticks=40) for wait in (1, 5, 20) for seed in (0, 1, 2)]


def test_the_best_wait_by_width_has_a_panel_for_each_stream_and_for_replay() -> None:
    drawing = figures.draw("best-wait-by-width", [*GRID, *OTHER_STREAM])
    titles = [axes.get_title(loc="left").replace("\n", " ") for axes in drawing.figure.axes]
    assert titles == [
        "Digits-ALMA-v0, ticks=20, B = 20",
        "Digits-ALMA-v0, ticks=20, B = 20, replay",
        "Digits-ALMA-v0, ticks=40, B = 40",
    ]
    (row,) = (row for row in drawing.rows if (row["method"], row["width"], row["replay"]) == ("Ens", 16, True))
    cers = {wait: group(GRID, "ens", 16, wait, replay=True).interval(lambda score: score.cer).mean for wait in (1, 5)}
    assert row["best_wait"] == min(cers, key=lambda wait: cers[wait])
    assert row["cer"] == pytest.approx(min(cers.values()))
    assert row["shortest_minus_next"] == pytest.approx(cers[1] - cers[5])
    assert str(row["best_wait"]) in row["not_excluded"].split()
    # A line for each stream and method with each choice of replay, in each of the two tables.
    assert drawing.table.count("\n| Digits-ALMA-v0") == 2 * (3 * 2 + 1)
    assert f"**{row['best_wait']}**" in drawing.table


def test_a_wait_without_a_test_is_marked() -> None:
    runs = [*(fake_run("gmoe", 4, 1, seed) for seed in (0, 1)), fake_run("gmoe", 4, 5, 0)]
    drawing = figures.draw("best-wait-by-width", runs)
    (row,) = drawing.rows
    assert {row["best_wait"], int(row["untested"])} == {1, 5}
    assert rf"{row['untested']}\*" in drawing.table


def test_one_seed_is_not_called_a_test() -> None:
    one = [run for run in NO_REPLAY if run.seed == 0]
    texts = [text.get_text() for text in figures.draw("best-wait-by-width", one).figure.legends[-1].get_texts()]
    assert "not tested: fewer than two common seeds" in texts
    assert "not excluded" not in texts
    tables = figures.draw("equal-flops", one).table
    (line,) = [line for line in tables.splitlines() if line.startswith("| paper_flops |")]
    assert [cell.strip() for cell in line.split("|")][4:6] == ["–", "–"]


def test_savings_have_the_cer_of_each_width_and_the_slope_between_widths() -> None:
    drawing = figures.draw("savings", NO_REPLAY)
    rows = {(row["method"], row["width"]): row for row in drawing.rows}
    assert rows.keys() == {(method, width) for method in ("SM", "Ens", "gMoE") for width in (4, 16)}
    for row in rows.values():
        agent = {"SM": "sm", "Ens": "ens", "gMoE": "gmoe"}[row["method"]]
        runs = group(NO_REPLAY, agent, row["width"], row["wait"])
        assert row["cer"] == pytest.approx(runs.interval(lambda score: score.cer).mean)
        assert row["training_flops"] == pytest.approx(runs.interval(lambda score: score.paper_flops).mean)
    wide = rows["SM", 16]
    assert wide["step_mean"] == pytest.approx(wide["saved_mean"])  # two widths have one step
    assert rows["SM", 4]["step_mean"] is None
    (legend,) = figures.draw("savings", GRID).figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["SM", "Ens", "gMoE", "without replay", "with replay"]
    assert "| SM | " in drawing.table


def test_equal_flops_show_both_differences_and_the_shares_of_the_counts() -> None:
    drawing = figures.draw("equal-flops", NO_REPLAY)
    (row,) = (row for row in drawing.rows if (row["setting"], row["other"]) == ("SM-16, w = 5", "Ens"))
    cers = {agent: group(NO_REPLAY, agent, 16, 5).interval(lambda score: score.cer).mean for agent in ("sm", "ens")}
    assert row["at_comp"] == pytest.approx(cers["sm"] - cers["ens"])  # both cost the same here
    assert row["at_paper_flops"] == pytest.approx(row["at_comp"])
    assert "The winner is the same by all counts in every cell." in drawing.table


def test_trajectories_have_a_point_for_each_quarter_at_the_best_wait() -> None:
    drawing = figures.draw("trajectories", NO_REPLAY)
    own = [row for row in drawing.rows if (row["method"], row["width"]) == ("gMoE", 16)]
    assert [row["tick"] for row in own] == [5, 10, 15, 20]
    assert len({row["when"] for row in own}) == 1
    assert [axes.get_ylabel() for axes in drawing.figure.axes] == ["test error", "", ""]
    assert {row["name"] for row in drawing.rows} == {row["method"] for row in drawing.rows}
    perplexities = figures.draw("trajectories", TEXT).rows
    assert "perplexity" in perplexities[0]


def test_trajectories_of_several_policies_have_names_of_their_own() -> None:
    policies = [{"name": "doubling", "factor": factor} for factor in (1.5, 2.0)]
    runs = [fake_run("sm", 4, None, seed, policy=policy) for policy in policies for seed in (0, 1)]
    drawing = figures.draw("trajectories", [*runs, fake_run("sm", 4, 5, 0), fake_run("ens", 4, 5, 0)])
    assert [name.partition("(")[0] for name in dict.fromkeys(row["name"] for row in drawing.rows)] == [
        "SM", "Ens", "SM, doubling", "SM, doubling"
    ]  # fmt: skip


def test_the_kinds_that_promise_a_table_have_one() -> None:
    with_table = [name for name, kind in figures.KINDS.items() if kind.has_table]
    assert with_table == ["best-wait-by-width", "savings", "equal-flops"]
    assert all(figures.draw(kind, NO_REPLAY).table.startswith("| ") for kind in with_table)
    assert not figures.draw("errors", NO_REPLAY).table


def test_a_table_is_written_beside_the_figure(tmp_path: Path) -> None:
    files = figures.save(figures.draw("savings", NO_REPLAY), tmp_path / "savings", ["csv"])
    assert [file.name for file in files] == ["savings.csv", "savings.md"]
    assert files[1].read_text(encoding="utf-8").startswith("| method | ")


@pytest.mark.parametrize(
    ("kind", "runs", "message"),
    [
        ("best-wait-by-width", [fake_run()], "several waiting times; run several, for example --wait 1 10 50"),
        ("best-wait-by-width", [*NO_REPLAY, *TEXT], "best-wait-by-width of Text-ALMA-v0: .*average perplexity"),
        ("savings", [fake_run(policy={"name": "doubling", "first": 1, "replay": False})], "--agent sm --width 4 16"),
        ("equal-flops", [fake_run()], "no two methods with one schedule have equal FLOPs; run several methods"),
        ("trajectories", [fake_run(wait=30)], "no run has a training; train a learner"),
    ],
)
def test_runs_without_a_finding_are_refused_with_a_remedy(kind: str, runs: list[FinishedRun], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figures.draw(kind, runs)
