"""Each kind of figure draws the numbers of its runs, and refuses runs that it cannot show."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import t

from agents import figures
from agents.analysis.schedules.waiting_comparison import compare
from agents.analysis.seed_groups import find_seed_groups
from agents.figures import style, waiting
from agents.figures.panels import arrange
from agents.runs.load import FinishedRun
from alma_env import Ledger

from ..fake_runs import fake_run, finished_run
from ..grid_of_runs import GRID, NO_REPLAY, TEXT, group


def test_the_error_at_a_tick_has_the_interval_of_its_seeds() -> None:
    drawing = figures.draw("errors", GRID)
    assert len(drawing.figure.axes) == 4  # one panel per width and waiting time
    errors = [run.ledger[7].error for run in group(GRID, "ens", 16, 5).runs.values()]
    (row,) = (row for row in drawing.rows if (row["panel"], row["line"], row["tick"]) == ("width 16, w = 5", "Ens", 7))
    low, high = t.interval(0.95, 2, np.mean(errors), np.std(errors, ddof=1) / np.sqrt(3))
    assert (row["error"], row["low"], row["high"]) == pytest.approx((np.mean(errors), low, high))


def test_panels_can_be_chosen_and_every_line_is_in_the_legend() -> None:
    drawing = figures.draw("errors", NO_REPLAY, panels="width")
    assert [axes.get_title(loc="left") for axes in drawing.figure.axes] == ["width 4", "width 16"]
    (legend,) = drawing.figure.legends
    expected = [f"{name}, w = {wait}" for name in ("SM", "Ens", "gMoE") for wait in (1, 5)]
    assert [text.get_text() for text in legend.get_texts()] == expected
    with pytest.raises(ValueError, match="panels='seed': choose one of auto, width"):
        figures.draw("errors", GRID, panels="seed")


def test_curves_of_alma_run_may_differ_in_length() -> None:
    groups = {"short": [run.ledger for run in GRID[:2]], "long": [fake_run(ticks=30).ledger]}
    drawing = figures.draw_error_curves(groups, "two")
    assert sum(row["line"].startswith("long: CER ") for row in drawing.rows) == 31
    assert {row["seeds"] for row in drawing.rows} == {1, 2}


def test_the_tradeoff_has_one_point_per_setting() -> None:
    rows = figures.draw("tradeoff", GRID).rows
    assert len(rows) == len(GRID) / 3
    (row,) = (
        row for row in rows if (row["method"], row["width"], row["when"], row["replay"]) == ("SM", 4, "w = 5", True)
    )
    runs = group(GRID, "sm", 4, 5, replay=True).runs.values()
    assert row["cer"] == pytest.approx(np.mean([run.ledger.score().cer for run in runs]))
    assert row["training_flops"] == np.mean([run.ledger.score().paper_flops for run in runs])
    assert row["parameters"] == 400


def test_replay_is_compared_seed_by_seed() -> None:
    rows = figures.draw("replay", GRID).rows
    assert len(rows) == 12
    without, with_ = (group(GRID, "gmoe", 16, 5, replay) for replay in (False, True))
    differences = [with_.runs[seed].score.comp - without.runs[seed].score.comp for seed in range(3)]
    (row,) = (row for row in rows if row["setting"] == "gMoE-16, w = 5")
    assert row["comp_difference"] == pytest.approx(np.mean(differences))
    assert row["comp_with"] > row["comp_without"]


def test_the_front_holds_the_settings_that_no_other_beats_in_both() -> None:
    rows = figures.draw("pareto", GRID, flops_price=0.5, parameter_price=2.0).rows
    for row in rows:
        beaten = any(
            other["cer"] <= row["cer"]
            and other["comp"] <= row["comp"]
            and (other["cer"], other["comp"]) != (row["cer"], row["comp"])
            for other in rows
        )
        assert row["front"] is not beaten
        assert row["cost"] == pytest.approx(row["cer"] + 0.5 * row["comp"] / 1e12 + 2 * row["mem"] / 1e6)
    legend = figures.draw("pareto", GRID, flops_price=0.5).figure.legends[0]
    assert legend.get_title().get_text().endswith("price in errors: 0.5 of a teraFLOP (dotted)")
    with pytest.raises(ValueError, match="flops_price=-1"):
        figures.draw("pareto", GRID, flops_price=-1)


def test_regret_is_measured_from_the_oracle_of_the_width_or_the_best_in_hindsight() -> None:
    best = min(find_seed_groups(GRID)[0], key=lambda one: one.interval(lambda score: score.cer).mean)
    rows = figures.draw("regret", GRID).rows
    assert {row["above"] for row in rows} == {best.name}
    panel, line = f"width {best.width}, {best.when}", best.method + ", replay" * best.replay
    assert all(row["regret"] == 0 for row in rows if (row["panel"], row["line"]) == (panel, line))
    oracle = [fake_run("oracle", 4, 1, seed, replay=True) for seed in (0, 1, 2)]
    rows = figures.draw("regret", [*GRID, *oracle]).rows
    assert {row["above"] for row in rows if row["panel"].startswith("width 4")} == {"oracle-4, w = 1, replay"}
    assert {row["above"] for row in rows if row["panel"].startswith("width 16")} == {best.name}
    found = [row["regret"] for row in rows if (row["panel"], row["line"]) == ("width 4, w = 5", "Ens")]
    runs = group(GRID, "ens", 4, 5).runs
    assert found == pytest.approx(
        np.mean([runs[seed].columns.errors - oracle[seed].columns.errors for seed in range(3)], axis=0)
    )


def test_regret_names_its_seeds_and_its_reference() -> None:
    oracle = [fake_run("oracle", 4, 1, 0, replay=True), fake_run("oracle", 16, 1, 0, replay=True)]
    drawing = figures.draw("regret", [*NO_REPLAY, *(fake_run(width=8, seed=seed) for seed in range(3)), *oracle])
    assert "Ens-4, w = 5: 1 of 3 seeds, those of oracle-4, w = 1, replay" in drawing.notes
    assert {row["seeds"] for row in drawing.rows if row["above"].startswith("oracle")} == {1}
    (above,) = {row["above"] for row in drawing.rows if row["panel"].startswith("width 8")}
    assert not above.startswith("oracle")
    caption = drawing.figure.legends[0].get_title().get_text()
    assert f"the oracle of the same width, or {above} without an oracle" in caption


def test_a_setting_without_a_seed_of_the_best_has_no_regret() -> None:
    others = [fake_run("umix", 4, 5, seed) for seed in (8, 9)]
    drawing = figures.draw("regret", [*NO_REPLAY, *others])
    assert any("UMix-4, w = 5: left out, because it shares no seed" in note for note in drawing.notes)
    with pytest.raises(ValueError, match="run them with the same seeds"):
        figures.draw("regret", [NO_REPLAY[0], others[0]])


def test_the_best_wait_at_the_end_has_the_lowest_cer() -> None:
    rows = figures.draw("best-wait", NO_REPLAY).rows
    for method, width in (("sm", 4), ("gmoe", 16)):
        cers = {wait: group(NO_REPLAY, method, width, wait).interval(lambda score: score.cer).mean for wait in (1, 5)}
        name = {"sm": "SM", "gmoe": "gMoE"}[method]
        (row,) = (row for row in rows if (row["method"], row["width"], row["ticks"]) == (name, width, 20))
        assert row["best_wait"] == min(cers, key=lambda wait: cers[wait])
        assert row["cer"] == pytest.approx(min(cers.values()))


def test_different_seeds_of_the_waiting_times_are_reported() -> None:
    runs = [fake_run("gmoe", 4, wait, seed) for wait in (1, 5) for seed in range(3)][:-1]
    drawing = figures.draw("best-wait", [*runs, *(fake_run(wait=wait) for wait in (1, 5))])
    assert drawing.notes == ("gMoE, width 4: the waiting times have different seeds, 3 at w = 1, 2 at w = 5",)
    rows = [row for row in drawing.rows if row["method"] == "gMoE"]
    assert {row["seeds"] for row in rows} == {2}
    shared = figures.draw("best-wait", [run for run in runs if run.seed < 2]).rows
    assert [(row["best_wait"], row["cer"]) for row in rows] == [(row["best_wait"], row["cer"]) for row in shared]


def test_before_the_first_training_there_is_no_best_wait() -> None:
    rows = figures.draw("best-wait", [fake_run(wait=wait, seed=seed) for wait in (3, 5) for seed in (0, 1)]).rows
    assert [row["best_wait"] for row in rows[:3]] == [None, None, 3]


def test_a_radar_has_the_best_value_at_the_rim_and_the_worst_near_the_centre() -> None:
    drawing = figures.draw("radar", NO_REPLAY)
    radii = [float(radius) for axes in drawing.figure.axes for line in axes.get_lines() for radius in line.get_ydata()]
    assert max(radii) == pytest.approx(1)
    assert min(radii) == pytest.approx(0.12)
    row = next(row for row in drawing.rows if row["setting"] == "Ens-16, w = 5")
    assert row["Mem"] == group(NO_REPLAY, "ens", 16, 5).interval(lambda score: float(score.mem)).mean


def test_text_has_its_own_figure_and_the_figures_of_all_streams() -> None:
    rows = figures.draw("perplexity", TEXT).rows
    assert len(rows) == 6
    row = next(row for row in rows if (row["method"], row["when"]) == ("SM", "w = 1"))
    scores = [run.ledger.score().mean_error_from_1 for run in group(TEXT, "sm", 4, 1).runs.values()]
    assert row["average_perplexity"] == pytest.approx(np.mean(scores))
    assert "perplexity" in figures.draw("errors", TEXT).rows[0]
    with pytest.raises(
        ValueError, match="tradeoff of Text-ALMA-v0: .*average perplexity; draw one of errors, perplexity"
    ):
        figures.draw("tradeoff", TEXT)
    with pytest.raises(ValueError, match="perplexity of Digits-ALMA-v0: .*CER; draw one of"):
        figures.draw("perplexity", GRID)


@pytest.mark.parametrize("kind", ["errors", "tradeoff", "replay", "pareto", "regret", "radar"])
def test_one_seed_is_drawn_without_an_interval(kind: str) -> None:
    runs = [run for run in GRID if run.seed == 1]
    drawing = figures.draw(kind, runs)
    (legend,) = drawing.figure.legends
    if kind != "radar":  # it shows only means
        assert "one seed each: no intervals" in legend.get_title().get_text().replace("\n", " ")
        assert all(
            value is None for row in drawing.rows for name, value in row.items() if "half" in name or name == "low"
        )


@pytest.mark.parametrize(
    ("kind", "runs", "message"),
    [
        ("errrors", GRID, "kind 'errrors': unknown; the kinds of figures are errors, tradeoff"),
        ("errors", [], "errors of 0 runs: .* finish a run first"),
        ("errors", [GRID[0], fake_run(ticks=5)], "errors of runs on 2 streams .*ticks=20.*; draw one stream at a time"),
        ("replay", NO_REPLAY, "none was run with and without replay"),
        ("best-wait", [fake_run(), fake_run("ens")], "several waiting times; run several, for example --wait 1 10 50"),
        ("regret", [fake_run()], "there is no reference; run other settings"),
        ("radar", [fake_run()], "give at least two"),
        ("gating", GRID, "gating of 8 settings with gates .*--where agent=gmoe"),
        ("gating", [fake_run("gmoe")], "checkpoint.pt: missing; .* give the run folder"),
    ],
)
def test_runs_that_a_kind_cannot_show_are_refused_with_a_remedy(
    kind: str, runs: list[FinishedRun], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        figures.draw(kind, runs)


def test_runs_without_flops_are_drawn_without_prices() -> None:
    rows = [dataclasses.replace(row, flops={}, paper_flops=0) for row in GRID[0].ledger]
    free = [finished_run(GRID[0].folder, GRID[0].config, Ledger(rows))]
    assert figures.draw("pareto", free).notes == ("no run spent FLOPs, so the figure has no prices",)
    (row,) = figures.draw("tradeoff", free).rows
    assert row["training_flops"] == 0


def test_an_option_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"panels='width': tradeoff has no such option; its options are none"):
        figures.draw("tradeoff", GRID, panels="width")


def test_policies_share_a_panel_with_few_waiting_times_and_have_their_own_beside_many() -> None:
    policy = fake_run(policy={"name": "Doubling", "first": 1, "replay": False})
    few, _ = arrange(find_seed_groups([policy, *(fake_run(agent, wait=5) for agent in ("sm", "ens"))])[0])
    assert [len(panel.lines) for panel in few] == [3]
    names = ("sm", "ens", "umix", "gens", "gmoe")
    many, _ = arrange(
        find_seed_groups([policy, *(fake_run(agent, wait=wait) for agent in names for wait in (1, 5, 10))])[0]
    )
    assert [len(panel.lines) for panel in many] == [5, 5, 5, 1]


def test_the_first_49_strokes_are_distinct() -> None:
    strokes = style.strokes(range(49))
    assert len({(stroke.colour, str(stroke.dashes)) for stroke in strokes.values()}) == 49
    both = [(strokes[n], strokes[n + 1]) for n in range(20)]
    assert all(one.colour != other.colour and one.dashes != other.dashes for one, other in both)


def test_of_several_oracles_the_one_of_the_method_is_the_reference() -> None:
    oracles = [fake_run("oracle", 4, 1, seed, replay=True, of=of) for of in ("sm", "ens") for seed in range(3)]
    runs = [*NO_REPLAY, *oracles]
    with pytest.raises(ValueError, match=r"regret of gMoE-4, .*2 oracles have its width, oracle-4, of=.* with --where"):
        figures.draw("regret", runs)
    rows = figures.draw("regret", [run for run in runs if run.config["agent"]["id"] in ("sm", "ens", "oracle")]).rows
    above = {(row["line"], row["above"]) for row in rows if row["panel"].startswith("width 4")}
    assert above == {(name, f"oracle-4, of={name.lower()}, w = 1, replay") for name in ("SM", "Ens")}


def test_waiting_times_with_and_without_replay_are_two_lines_of_costs(tmp_path: Path, monkeypatch) -> None:
    runs = [
        fake_run(wait=wait, seed=seed, replay=replay) for wait in (1, 5) for seed in (0, 1) for replay in (False, True)
    ]
    drawn = []
    monkeypatch.setattr(waiting.style, "blank", lambda *size: drawn.append(Figure(size)) or drawn[-1])
    waiting.draw(compare(runs), tmp_path / "waiting.png")
    lines = dict(zip(*reversed(drawn[0].axes[0].get_legend_handles_labels()), strict=True))
    assert {name: list(bars.lines[0].get_xdata()) for name, bars in lines.items()} == {
        "fixed waiting time": [1, 5],
        "fixed waiting time, replay": [1, 5],
    }


def test_a_fixed_waiting_time_is_on_the_line_of_its_replay_also_alone_with_its_wait(
    tmp_path: Path,
) -> None:
    settings = [(1, True), (1, False), (5, False)]
    runs = [fake_run(wait=wait, seed=seed, replay=replay) for wait, replay in settings for seed in (0, 1)]
    (comparison,) = compare(runs)
    kinds = {(schedule.wait, schedule.kind) for schedule in comparison.schedules}
    assert kinds == {(1, "replay"), (1, ""), (5, "")}
