"""Tables show which settings are better, and whether the differences are significant."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from agents.analysis import tables, tables_text
from agents.analysis.statistics import Interval, band, holm, paired_p_value
from agents.analysis.tables import HIGHER, LOWER, UNTESTED
from agents.cli import main
from agents.runs import load
from agents.runs.load import FinishedRun
from alma_env import Ledger

from ..fake_runs import fake_run, finished_run, write


def run(agent: str, errors: float, seed: int, **changes: object) -> FinishedRun:
    """Return a run with a constant error."""
    made = fake_run(agent, seed=seed, **changes)
    ledger = Ledger([dataclasses.replace(row, error=errors) for row in made.ledger])
    return finished_run(made.folder, made.config, ledger)


NOISE = (0.00, 0.03, 0.01, -0.02)  # effect of each stream
OWN = {"sm": (0.000, 0.001, 0.002, 0.004), "ens": (0.001, 0.000, 0.004, 0.002), "umix": (0.003, 0.004, 0.000, 0.001)}
RUNS = [
    run(agent, level + noise + own, seed)
    for agent, level in (("sm", 0.5), ("ens", 0.4), ("umix", 0.402))
    for seed, (noise, own) in enumerate(zip(NOISE, OWN[agent], strict=True))
]


def entries(comparison: tables.Comparison, heading: str = "CER") -> dict[str, tables.Entry]:
    return {line.name: line.entries[heading] for line in comparison.lines}


def test_a_paired_test_removes_the_effect_of_the_streams() -> None:
    (found,) = tables.compare(RUNS)
    by_name = entries(found)
    assert by_name["SM"].mark == HIGHER
    assert by_name["Ens"].best
    assert by_name["UMix"].mark == ""  # not significant
    cers = {name: [one.score.cer for one in RUNS if one.config["agent"]["id"] == name] for name in OWN}
    # With the best of three lines, three pairs could be compared.
    p_values = holm([ttest_rel(cers[name], cers["ens"]).pvalue for name in ("sm", "umix")], tests=3)
    assert [by_name[name].p for name in ("SM", "UMix")] == pytest.approx(p_values)
    interval = by_name["SM"].interval
    assert interval.half > 0.5 - 0.4  # too wide to show the difference without pairing


def test_against_a_named_line_lower_lines_are_marked() -> None:
    for name in ("sm", "SM"):
        (found,) = tables.compare(RUNS, against=name)
        assert entries(found)["SM"].mark == ""
        assert entries(found)["Ens"].mark == entries(found)["UMix"].mark == LOWER
        assert entries(found)["Ens"].difference.n == 4


def test_lines_without_common_seeds_are_marked_as_not_tested() -> None:
    (found,) = tables.compare([*RUNS, run("gens", 0.45, 7), run("gens", 0.46, 8)])
    assert entries(found)["gEns"].mark == UNTESTED
    assert f"{UNTESTED}: not tested" in tables_text.caption(found)


def test_one_seed_has_no_interval_and_no_test() -> None:
    (found,) = tables.compare([one for one in RUNS if one.seed == 0])
    assert {entry.mark for entry in entries(found).values()} == {""}
    assert "One seed each: no interval, and no test." in tables_text.caption(found)
    assert "±" not in tables_text.markdown(found)


def test_runs_that_exceeded_a_budget_or_declared_flops_are_marked_in_every_table(tmp_path: Path, capsys) -> None:
    made = {"refused": fake_run(wait=2), "declared": fake_run(wait=5), "": fake_run(wait=10)}
    changes = {"refused": {"refused": True}, "declared": {"declared": ("scikit-learn",)}, "": {}}
    for what, one in made.items():
        rows = [dataclasses.replace(row, **changes[what]) if row.tick > 15 else row for row in one.ledger]
        write(finished_run(one.folder, one.config, Ledger(rows)), tmp_path)
    (found,) = tables.compare(load.find(tmp_path)[0])
    text = tables_text.markdown(found)
    assert re.findall(r"(?m)^\| (w = \d+.*?) \|", text) == ["w = 2 †", "w = 5 §", "w = 10"]
    assert "†: a run exceeded its budget" in text
    assert "§: a run declared a part of Comp" in text
    rows = csv.DictReader(io.StringIO(tables_text.comma_separated(found)))
    marks = {row["setting"]: (row["over_budget"], row["declared"]) for row in rows}
    assert marks == {"w = 2": ("True", "False"), "w = 5": ("False", "True"), "w = 10": ("False", "False")}
    for command in (["show", str(tmp_path)], ["policy", "compare", str(tmp_path)]):
        assert main(command) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "wait 2 †" in printed
        assert "wait 5 §" in printed
        assert "wait 10 1" in printed
        assert "†: a run exceeded its budget" in printed


def test_lines_are_compared_within_groups_that_share_values() -> None:
    runs = [*RUNS, *(run("sm", 0.2 + noise, seed, width=16) for seed, noise in enumerate(NOISE))]
    (found,) = tables.compare(runs, by=("env", "width"), against="sm")
    assert [line.group for line in found.lines].count("Digits-ALMA-v0, width 4, w = 5") == 3
    assert any("no line ens" in note for note in tables.compare(runs, by=("width",), against="ens")[0].notes)
    with pytest.raises(ValueError, match="--against sm: 2 lines of .*SM-4; SM-16 .*--by env width when"):
        tables.compare(runs, against="sm")
    assert entries(tables.compare(runs, against="SM-16")[0])["SM-16"].best


def test_unknown_keys_and_lines_are_refused() -> None:
    with pytest.raises(ValueError, match="--by seed: .*env, agent, width, when, replay"):
        tables.compare(RUNS, by=("seed",))
    with pytest.raises(ValueError, match="--against ff: no line has this name"):
        tables.compare(RUNS, against="ff")


def test_perplexities_have_a_separate_table() -> None:
    text = [fake_run("sm", seed=seed, text=True, env="Text-ALMA-v0", ticks=4) for seed in (0, 1)]
    found = tables.compare([*RUNS, *text])
    assert [one.measure.heading for one in found] == ["CER", "average perplexity"]
    rows = list(csv.DictReader(io.StringIO(tables_text.joined(found, "csv"))))
    assert len(rows) == (3 + 1) * 4
    assert {row["measure"] for row in rows} == {
        "CER",
        "final error",
        "average perplexity",
        "final perplexity",
        "Mem",
        "Comp",
    }


def test_the_three_formats_hold_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load.pack(RUNS, tmp_path / "some.jsonl.xz")
    words = ["table", str(tmp_path / "some.jsonl.xz"), "--against", "sm"]
    assert main(words) == 0
    assert "| SM | 4 | 10.6" in capsys.readouterr().out
    for form, ending in (("latex", ".tex"), ("markdown", ".md"), ("csv", ".csv")):
        assert main([*words, "--format", form, "--out", str(tmp_path / "table")]) == 0
        text = (tmp_path / f"table{ending}").read_text()
        assert "SM" in text
        assert "8.54" in text
    latex = (tmp_path / "table.tex").read_text()
    assert latex.count(r"\textbf{") == 2 + 3 + 3  # Mem and Comp are equal in all three lines
    assert r"95 \% interval" in latex
    assert "↓" not in latex
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert {row["significant"] for row in rows if row["setting"] == "Ens" and row["measure"] == "CER"} == {"True"}


def test_p_values_equal_those_of_scipy_and_holms_correction_keeps_their_order() -> None:
    these, those = {0: 3.0, 1: 5.5, 2: 4.0, 9: 1.0}, {0: 2.0, 1: 4.0, 2: 4.5}
    assert paired_p_value(these, those) == pytest.approx(ttest_rel([3.0, 5.5, 4.0], [2.0, 4.0, 4.5]).pvalue)
    assert paired_p_value({0: 1.0}, {0: 2.0}) is None
    assert (paired_p_value({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}), paired_p_value({0: 1.0, 1: 2.0}, {0: 0.0, 1: 1.0})) == (
        1.0,
        0.0,
    )
    assert holm([0.01, 0.02, 0.9, 0.04]) == pytest.approx([0.04, 0.06, 0.9, 0.08])
    assert holm([]) == []


def test_a_band_is_the_interval_at_each_tick() -> None:
    middle, half = band(np.array([[1.0, 4.0], [2.0, 4.0], [3.0, 4.0]]))
    assert middle.tolist() == [2.0, 4.0]
    assert half == pytest.approx([2.4841, 0.0], abs=1e-4)
    assert band(np.array([[1.0, 2.0]]))[1] is None


@pytest.mark.parametrize(
    ("flops", "text"),
    [([300e6, 600e6, 450e6], "450 ± 373 M"), ([999.8e6], "1 G"), ([2e3, 2e3], "2 k"), ([11.0, 13.0], "12 ± 13")],
)
def test_an_interval_of_flops_has_one_unit_and_no_exponent(flops, text):
    assert tables_text._with_unit(Interval.of(flops)) == text
