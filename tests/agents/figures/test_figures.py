"""Each kind of figure shows what its runs say, and refuses what it cannot show."""

from __future__ import annotations

import csv
import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from agents import cli, figures, packed
from agents.cells import Cell, cells_of, streams
from agents.figures import look
from agents.figures.gating import _tree
from agents.figures.panels import arrange
from agents.finished import FinishedRun
from agents.tree import leaf_paths
from alma_env import Ledger

from .made_runs import made_run, write

METHODS = ("sm", "ens", "gmoe")
GRID = [
    made_run(agent, width, wait, seed, replay=replay)
    for agent in METHODS
    for width in (4, 16)
    for wait in (1, 5)
    for replay in (False, True)
    for seed in (0, 1, 2)
]
NO_REPLAY = [run for run in GRID if not run.config["agent"]["policy"]["replay"]]
TEXT = [
    made_run(agent, 4, wait, seed, text=True, env="Text-ALMA-v0", ticks=4)
    for agent in METHODS
    for wait in (1, 2)
    for seed in (0, 1)
]


def cell(runs: list[FinishedRun], agent: str, width: int, wait: int, replay: bool = False) -> Cell:
    (found,) = (
        one for one in cells_of(runs)[0] if (one.agent, one.width, one.wait, one.replay) == (agent, width, wait, replay)
    )
    return found


def test_runs_of_a_cell_differ_in_seeds_and_rounding_alone() -> None:
    other = dataclasses.replace(GRID[0], config={**GRID[0].config, "threads": 2, "versions": {"torch": "3"}})
    cells, notes = cells_of([*GRID, other])
    assert len(cells) == len(METHODS) * 2 * 2 * 2
    assert all(list(one.runs) == [0, 1, 2] for one in cells)
    assert len(notes) == 1
    assert "with other rounding" in notes[0]
    assert len({one.name for one in cells}) == len(cells)


def test_a_method_is_named_with_what_its_settings_differ_in() -> None:
    runs = [made_run("ens", members=2), made_run("ens", members=5), made_run("gmoe")]
    assert [one.method for one in cells_of(runs)[0]] == ["Ens, members=2", "Ens, members=5", "gMoE"]


def test_random_schedules_are_settings_where_a_stream_has_several_of_them() -> None:
    def drawn(lots: int, seed: int) -> FinishedRun:
        return made_run(policy={"name": "random", "probability": 0.1, "replay": False, "seed": lots}, seed=seed)

    cells, notes = cells_of([drawn(seed, seed) for seed in range(3)])
    assert [len(one.runs) for one in cells] == [3]
    cells, more = cells_of([drawn(lots, seed) for lots in range(2) for seed in range(3)])
    assert [len(one.runs) for one in cells] == [3, 3]
    assert len({one.name for one in cells}) == 2
    assert notes == more == []


def test_no_two_settings_have_one_name() -> None:
    policies = [{"name": "Doubling", "factor": 2.0, "growth": growth, "replay": False} for growth in ("every", "never")]
    policies += [{"name": "Mine", "replay": False, "growth": "never"}]
    runs = [made_run("gmoe", policy=policy) for policy in policies]
    runs += [made_run("gmoe", policy=f"{module}.Mine(3)") for module in ("ours", "theirs")]
    names = [one.name for one in cells_of(runs)[0]]
    assert len(set(names)) == len(runs)
    assert "gMoE-4, growth=never, Doubling(factor=2.0)" in names
    assert "gMoE-4, agent.policy=ours.Mine(3), Mine(3)" in names


def test_streams_are_named_by_what_differs() -> None:
    runs = [made_run(ticks=20), made_run(ticks=10), made_run(env="MNIST-ALMA-v0")]
    assert list(streams(runs)) == ["Digits-ALMA-v0, ticks=20", "Digits-ALMA-v0, ticks=10", "MNIST-ALMA-v0"]


def test_the_error_at_a_tick_has_the_interval_of_its_seeds() -> None:
    drawing = figures.draw("errors", GRID)
    assert len(drawing.figure.axes) == 4  # a panel for each width and waiting time
    errors = [run.ledger[7].error for run in cell(GRID, "ens", 16, 5).runs.values()]
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


def test_the_curves_of_alma_run_are_the_same_and_may_differ_in_length() -> None:
    groups = {"short": [run.ledger for run in GRID[:2]], "long": [made_run(ticks=30).ledger]}
    drawing = figures.error_curves(groups, "two")
    assert sum(row["line"].startswith("long: CER ") for row in drawing.rows) == 31
    assert {row["seeds"] for row in drawing.rows} == {1, 2}


def test_the_tradeoff_has_a_point_for_each_setting_with_its_own_numbers() -> None:
    rows = figures.draw("tradeoff", GRID).rows
    assert len(rows) == len(GRID) / 3
    (row,) = (
        row for row in rows if (row["method"], row["width"], row["when"], row["replay"]) == ("SM", 4, "w = 5", True)
    )
    runs = cell(GRID, "sm", 4, 5, replay=True).runs.values()
    assert row["cer"] == pytest.approx(np.mean([run.ledger.score().cer for run in runs]))
    assert row["training_flops"] == np.mean([run.ledger.score().paper_flops for run in runs])
    assert row["parameters"] == 400


def test_replay_is_compared_seed_by_seed() -> None:
    rows = figures.draw("replay", GRID).rows
    assert len(rows) == 12
    without, with_ = (cell(GRID, "gmoe", 16, 5, replay) for replay in (False, True))
    differences = [with_.runs[seed].score.comp - without.runs[seed].score.comp for seed in range(3)]
    (row,) = (row for row in rows if row["setting"] == "gMoE-16, w = 5")
    assert row["comp_difference"] == pytest.approx(np.mean(differences))
    assert row["comp_with"] > row["comp_without"]


def test_the_front_holds_what_nothing_beats_in_both() -> None:
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


def test_regret_is_above_the_oracle_of_the_width_or_else_the_best_in_hindsight() -> None:
    best = min(cells_of(GRID)[0], key=lambda one: one.interval(lambda score: score.cer).mean)
    rows = figures.draw("regret", GRID).rows
    assert {row["above"] for row in rows} == {best.name}
    panel, line = f"width {best.width}, {best.when}", best.method + ", replay" * best.replay
    assert all(row["regret"] == 0 for row in rows if (row["panel"], row["line"]) == (panel, line))
    oracle = [made_run("oracle", 4, 1, seed, replay=True) for seed in (0, 1, 2)]
    rows = figures.draw("regret", [*GRID, *oracle]).rows
    assert {row["above"] for row in rows if row["panel"].startswith("width 4")} == {"oracle-4, w = 1, replay"}
    assert {row["above"] for row in rows if row["panel"].startswith("width 16")} == {best.name}
    found = [row["regret"] for row in rows if (row["panel"], row["line"]) == ("width 4, w = 5", "Ens")]
    runs = cell(GRID, "ens", 4, 5).runs
    assert found == pytest.approx(
        np.mean([runs[seed].columns.errors - oracle[seed].columns.errors for seed in range(3)], axis=0)
    )


def test_regret_says_over_which_seeds_it_is_and_above_what() -> None:
    oracle = [made_run("oracle", 4, 1, 0, replay=True), made_run("oracle", 16, 1, 0, replay=True)]
    drawing = figures.draw("regret", [*NO_REPLAY, *(made_run(width=8, seed=seed) for seed in range(3)), *oracle])
    assert "Ens-4, w = 5: 1 of 3 seeds, those that oracle-4, w = 1, replay has, too" in drawing.notes
    assert {row["seeds"] for row in drawing.rows if row["above"].startswith("oracle")} == {1}
    (above,) = {row["above"] for row in drawing.rows if row["panel"].startswith("width 8")}
    assert not above.startswith("oracle")
    caption = drawing.figure.legends[0].get_title().get_text()
    assert f"the oracle of the same width, or {above} where there is none" in caption


def test_what_shares_no_seed_with_the_best_has_no_regret() -> None:
    others = [made_run("umix", 4, 5, seed) for seed in (8, 9)]
    drawing = figures.draw("regret", [*NO_REPLAY, *others])
    assert any("UMix-4, w = 5: left out, since it shares no seed" in note for note in drawing.notes)
    with pytest.raises(ValueError, match="run them with the same seeds"):
        figures.draw("regret", [NO_REPLAY[0], others[0]])


def test_the_best_wait_at_the_end_is_that_of_the_lowest_cer() -> None:
    rows = figures.draw("best-wait", NO_REPLAY).rows
    for method, width in (("sm", 4), ("gmoe", 16)):
        cers = {wait: cell(NO_REPLAY, method, width, wait).interval(lambda score: score.cer).mean for wait in (1, 5)}
        name = {"sm": "SM", "gmoe": "gMoE"}[method]
        (row,) = (row for row in rows if (row["method"], row["width"], row["ticks"]) == (name, width, 20))
        assert row["best_wait"] == min(cers, key=lambda wait: cers[wait])
        assert row["cer"] == pytest.approx(min(cers.values()))


def test_the_best_wait_of_other_seeds_is_told() -> None:
    runs = [made_run("gmoe", 4, wait, seed) for wait in (1, 5) for seed in range(3)][:-1]
    drawing = figures.draw("best-wait", [*runs, *(made_run(wait=wait) for wait in (1, 5))])
    assert drawing.notes == ("gMoE, width 4: means over other seeds at each waiting time, 3 at w = 1, 2 at w = 5",)
    seeds = {row["best_wait"]: row["seeds"] for row in drawing.rows if row["method"] == "gMoE"}
    assert seeds.items() <= {1: 3, 5: 2}.items()


def test_before_anyone_has_trained_no_wait_is_the_best() -> None:
    rows = figures.draw("best-wait", [made_run(wait=wait, seed=seed) for wait in (3, 5) for seed in (0, 1)]).rows
    assert [row["best_wait"] for row in rows[:3]] == [None, None, 3]


def test_the_best_is_at_the_rim_of_a_radar_and_the_worst_at_its_centre() -> None:
    drawing = figures.draw("radar", NO_REPLAY)
    radii = [float(radius) for axes in drawing.figure.axes for line in axes.get_lines() for radius in line.get_ydata()]
    assert max(radii) == pytest.approx(1)
    assert min(radii) == pytest.approx(0.12)
    row = next(row for row in drawing.rows if row["setting"] == "Ens-16, w = 5")
    assert row["Mem"] == cell(NO_REPLAY, "ens", 16, 5).interval(lambda score: float(score.mem)).mean


def test_text_has_a_figure_of_its_own_and_shares_those_of_all_streams() -> None:
    rows = figures.draw("perplexity", TEXT).rows
    assert len(rows) == 6
    row = next(row for row in rows if (row["method"], row["when"]) == ("SM", "w = 1"))
    scores = [run.ledger.score().mean_error_from_1 for run in cell(TEXT, "sm", 4, 1).runs.values()]
    assert row["average_perplexity"] == pytest.approx(np.mean(scores))
    assert "perplexity" in figures.draw("errors", TEXT).rows[0]
    with pytest.raises(
        ValueError, match="tradeoff of Text-ALMA-v0: .*average perplexity; draw one of errors, perplexity"
    ):
        figures.draw("tradeoff", TEXT)
    with pytest.raises(ValueError, match="perplexity of Digits-ALMA-v0: .*CER; draw one of"):
        figures.draw("perplexity", GRID)


@pytest.mark.parametrize("kind", ["errors", "tradeoff", "replay", "pareto", "regret", "radar"])
def test_one_seed_is_drawn_without_an_interval_and_says_so(kind: str) -> None:
    runs = [run for run in GRID if run.seed == 1]
    drawing = figures.draw(kind, runs)
    (legend,) = drawing.figure.legends
    if kind != "radar":  # it shows means alone
        assert "one seed each: no intervals" in legend.get_title().get_text().replace("\n", " ")
        assert all(
            value is None for row in drawing.rows for name, value in row.items() if "half" in name or name == "low"
        )


@pytest.mark.parametrize(
    ("kind", "runs", "message"),
    [
        ("errrors", GRID, "kind 'errrors': unknown; the kinds of figures are errors, tradeoff"),
        ("errors", [], "errors of 0 runs: .* let a run end first"),
        ("errors", [GRID[0], made_run(ticks=5)], "errors of runs on 2 streams .*ticks=20.*; draw them one by one"),
        ("replay", NO_REPLAY, "none was run with replay and without"),
        ("best-wait", [made_run(), made_run("ens")], "several waiting times; run some, as in --wait 1 10 50"),
        ("regret", [made_run()], "nothing to compare with"),
        ("radar", [made_run()], "give at least two"),
        ("gating", GRID, "gating of 8 settings with gates .*--where agent=gmoe"),
        ("gating", [made_run("gmoe")], "checkpoint.pt: missing; .* give its folder"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_a_remedy(kind: str, runs: list[FinishedRun], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figures.draw(kind, runs)


def test_what_spent_nothing_is_drawn_without_a_price() -> None:
    rows = [dataclasses.replace(row, flops={}, paper_flops=0) for row in GRID[0].ledger]
    free = [FinishedRun.of(GRID[0].folder, GRID[0].config, Ledger(rows))]
    assert figures.draw("pareto", free).notes == ("nothing was spent, so there is nothing to price",)
    (row,) = figures.draw("tradeoff", free).rows
    assert row["training_flops"] == 0


def test_an_option_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"panels='width': tradeoff has no such option; it has none"):
        figures.draw("tradeoff", GRID, panels="width")


def test_policies_stand_beside_few_waiting_times_and_apart_from_many_lines() -> None:
    policy = made_run(policy={"name": "Doubling", "first": 1, "replay": False})
    few, _ = arrange(cells_of([policy, *(made_run(agent, wait=5) for agent in ("sm", "ens"))])[0])
    assert [len(panel.lines) for panel in few] == [3]
    names = ("sm", "ens", "umix", "gens", "gmoe")
    many, _ = arrange(cells_of([policy, *(made_run(agent, wait=wait) for agent in names for wait in (1, 5, 10))])[0])
    assert [len(panel.lines) for panel in many] == [5, 5, 5, 1]


def test_no_two_of_many_lines_look_the_same() -> None:
    styles = look.styles(range(49))
    assert len({(style.colour, str(style.stroke)) for style in styles.values()}) == 49
    both = [(styles[n], styles[n + 1]) for n in range(20)]
    assert all(one.colour != other.colour and one.stroke != other.stroke for one, other in both)


@pytest.mark.parametrize("splits", [(0,), (0, 0, 2, 1), (0, 1, 0, 3, 2, 5, 1, 4, 0, 7)])
def test_the_leaves_of_a_drawn_tree_share_all_experts(splits: tuple[int, ...]) -> None:
    leaves = [node for node in _tree(splits).walk() if node.children is None]
    assert [expert for leaf in leaves for expert in range(leaf.first, leaf.last + 1)] == list(range(len(splits) + 1))
    assert len(leaves) == min(len(splits), 7) + 1
    if len(splits) <= 7:
        assert [leaf.depth for leaf in leaves] == list(map(len, leaf_paths(splits)))


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    words = ["--agent", "gmoe", "--width", "4", "--wait", "1", "--set", "ticks=3", "epochs=1", "--out", str(out)]
    assert cli.main(["run", *words]) == 0
    return out


def test_the_gates_of_a_run_divide_every_example(
    mixture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plot", "gating", str(mixture), "--out", str(tmp_path), "--format", "png", "csv"]
    assert cli.main(words) == 0
    with open(tmp_path / "gating.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[4:] == ["expert 1", "expert 2", "expert 3"]
    for row in rows:
        assert sum(float(row[f"expert {number}"]) for number in (1, 2, 3)) == pytest.approx(1, abs=1e-5)
        assert 0 <= float(row["x"]) <= 1
    assert cli.main([*words, "--layer", "3"]) == 2
    assert "layer=3: the network has mixture layers 1 to 2" in capsys.readouterr().err


def test_alma_plot_draws_each_stream_into_files_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed.write([*NO_REPLAY, *TEXT], tmp_path / "both.jsonl.xz")
    write(made_run("umix", 4, 5), tmp_path / "runs")
    where = ["--out", str(tmp_path / "out"), "--format", "svg", "pdf", "csv"]
    assert cli.main(["plot", "errors", str(tmp_path / "both.jsonl.xz"), str(tmp_path / "runs"), *where]) == 0
    names = {f"errors-{env}-ALMA-v0.{form}" for env in ("Digits", "Text") for form in ("svg", "pdf", "csv")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    first = (tmp_path / "out" / "errors-Text-ALMA-v0.svg").read_bytes()
    assert cli.main(["plot", "errors", str(tmp_path / "both.jsonl.xz"), *where, "--where", "env=Text-ALMA-v0"]) == 0
    assert (tmp_path / "out" / "errors.svg").read_bytes() == first  # the same runs, the same bytes
    assert cli.main(["plot", "perplexity", str(tmp_path / "both.jsonl.xz"), *where]) == 0
    assert "Digits-ALMA-v0: left out, since perplexity is not for its errors" in capsys.readouterr().out


def test_runs_are_chosen_by_one_value_or_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed.write([*GRID, made_run("umix", 5, 2, seed=9, members=2)], tmp_path / "some.jsonl.xz")
    words = ["plot", "errors", str(tmp_path / "some.jsonl.xz"), "--out", str(tmp_path), "--format", "csv", "--where"]
    for where, number in (
        (["agent=sm,ens", "width=4", "replay=false"], 2 * 2 * 3),
        (["wait=1,5", "seed=0"], 3 * 2 * 2 * 2),
        (["agent.policy.growth=every"], 2 * 2 * 2 * 3),
        (["agent.members=2"], 1),  # the others have none
    ):
        assert cli.main([*words, *where]) == 0
        assert f"errors of {number} runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "kind 'nonsense': unknown; the kinds of figures are"),
        (["errors", "--format", "jpg"], "format 'jpg': a figure is written as one or more of png, svg, pdf, csv"),
        (["errors", "--out", "errors.png"], "a folder is meant"),
        (["errors", "--where", "width=5"], "none of 3 finished runs with width=5"),
        (["errors", "--where", "agent.height=5"], "the keys are env, agent, width, wait, replay, seed"),
        (["errors", "--where", "width"], "--where width: write key=value, for example --where width=4,16"),
        (["errors", "--layer", "1"], "--layer with errors: it is an option of gating; leave it out"),
        (["perplexity"], "perplexity of Digits-ALMA-v0"),
    ],
)
def test_alma_plot_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    packed.write(NO_REPLAY[:3], tmp_path / "some.jsonl.xz")
    assert cli.main(["plot", words[0], str(tmp_path / "some.jsonl.xz"), *words[1:]]) == 2
    assert message in capsys.readouterr().err


def test_matplotlib_is_not_imported_before_something_is_drawn() -> None:
    script = (
        "import sys, agents; from agents import cli, figures, report, tables\n"
        "try: cli.main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == 0
