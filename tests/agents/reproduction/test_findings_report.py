"""The report says how many findings hold, why the others do not, and what is missing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from functools import cache

import pytest

from agents.catalogue.spec import RunSpec
from agents.reproduction import findings_report, plans
from agents.reproduction.claims.findings import FINDINGS, JudgedFinding, judge
from agents.reproduction.cost import cost_of
from agents.reproduction.missing import missing_runs
from agents.reproduction.plans import Request
from agents.runs.load import FinishedRun

from .synthetic import constant, grid


def _judged(id: str, error: Callable[[RunSpec], float], seeds: range = range(3)) -> JudgedFinding:
    (judged,) = judge({id: grid("fig7", error, seeds=seeds)}, "smoke")
    return judged


def test_the_summary_counts_the_findings_of_the_paper_and_the_others():
    runs = grid("fig7", lambda spec: 0.9 if spec.wait == 10 else 0.5)
    judged = judge({"mnist-tardy": runs, "mnist-final": runs, "mnist-ens": (), "fashion-tardy": runs}, "smoke")
    assert findings_report.summary(judged) == (
        "Of 3 findings of the paper, 1 holds, 1 does not hold and 1 was not run.\n"
        "Of 1 of these findings repeated on Fashion-MNIST, 1 holds.\n"
    )


def test_a_mixed_verdict_names_the_contradicted_comparisons():
    judged = _judged(
        "mnist-ens", lambda spec: 0.4 + 0.2 * (spec.agent == "sm") + 0.3 * (spec.agent, spec.width).count(16)
    )
    text = findings_report.verdict_text(judged, Request("smoke"))
    assert text == "holds"
    wide = _judged("mnist-ens", lambda spec: 0.4 + (0.1 if (spec.agent == "sm") == (spec.width == 4) else 0))
    text = findings_report.verdict_text(wide, Request("smoke"))
    assert text == "mixed; contradicted: 16, w=1: ens − sm; 16, w=2: ens − sm; 16, w=5: ens − sm and 1 more"


def test_an_undecided_verdict_names_the_seeds_that_would_decide_it():
    noise = {0: 0.05, 1: -0.04, 2: 0.01}
    judged = _judged(
        "mnist-large", lambda spec: 0.5 + 0.04 * (spec.wait == 1) + (noise[spec.seed] if spec.wait == 1 else 0)
    )
    text = findings_report.verdict_text(judged, Request("smoke"))
    assert re.fullmatch(r"undecided; (\d+|more than 100) seeds would decide", text), text
    one = _judged("mnist-large", lambda spec: 0.5, range(1))
    assert findings_report.verdict_text(one, Request("smoke")) == "undecided; one seed"
    assert findings_report.combined_text(one) == ""


def test_missing_runs_have_the_price_of_the_plans_that_have_them():
    (judged,) = judge({"cifar-g": ()}, "cpu")
    specs = [spec for spec in plans.read("fig2").specs("gpu") if spec.agent in ("sm", "ens")]
    assert _digests(missing_runs(judged, Request("cpu"))) == _digests(specs)
    hours = findings_report.hours(cost_of(specs).seconds)
    assert findings_report.verdict_text(judged, Request("cpu")) == f"not run; missing: 90 runs, {hours} hours"
    of_one_width = [constant(spec, 0.5) for spec in plans.read("fig2").specs("cpu") if spec.width == 4]
    (judged,) = judge({"cifar-g": of_one_width}, "cpu")
    assert _digests(missing_runs(judged, Request("cpu"))) == _digests(spec for spec in specs if spec.width != 4)


def test_missing_runs_have_the_requested_seeds_and_settings():
    (judged,) = judge({"cifar-g": ()}, "cpu")
    request = Request("cpu", (5, 6), {"epochs": 5})
    missing = missing_runs(judged, request)
    specs = plans.read("fig2").specs("gpu", (5, 6), {"epochs": 5})
    assert _digests(missing) == _digests(spec for spec in specs if spec.agent in ("sm", "ens"))
    assert request.options == "--scale cpu --seeds 5 6 --set epochs=5"
    assert cost_of(missing).seconds < cost_of(missing_runs(judged, Request("cpu"))).seconds / 10


def test_runs_in_no_plan_have_no_price():
    (judged,) = judge({"cifar-h": [constant(spec, 0.5) for spec in plans.read("fig2").specs("smoke")]}, "smoke")
    only = dataclasses.replace(judged, comparisons=[one for one in judged.comparisons if not one.differences])
    assert findings_report.verdict_text(only, Request("smoke")) == "not run; the missing runs are in no plan"


def test_runs_without_common_seeds_are_not_called_missing():
    specs = plans.read("fig7").specs("smoke", range(4))
    runs = [constant(spec, 0.5) for spec in specs if (spec.agent == "sm") == (spec.seed < 2)]
    (judged,) = judge({"mnist-ens": runs}, "smoke")
    text = findings_report.verdict_text(judged, Request("smoke"))
    assert text == "not run; no common seeds; run the same --seeds for all"


def _digests(specs: Iterable[RunSpec]) -> set[str]:
    return {spec.digest() for spec in specs}


def _missing(id: str) -> list[RunSpec]:
    """Return the runs that a finding without any run misses."""
    (judged,) = judge({id: ()}, "cpu")
    return missing_runs(judged, Request("cpu"))


def test_missing_runs_are_those_of_each_plan_of_the_finding():
    # The plan of figure 4 has no runs of w = 2. That of figure 8 has them, of c = 4 one seed at this scale.
    missing = [spec for spec in _missing("cifar-replay-trade") if spec.wait == 2]
    of_width = {scale: plans.read("fig8").specs(scale) for scale in ("cpu", "gpu")}
    expected = [spec for spec in of_width["cpu"] if spec.width == 4] + [
        spec for spec in of_width["gpu"] if spec.width > 4 and spec.agent in ("sm", "ens")
    ]
    assert _digests(missing) == _digests(spec for spec in expected if spec.wait == 2)


def test_networks_that_no_plan_of_the_scale_has_are_missing_at_the_scale_of_the_paper():
    missing = _missing("text-large")
    large = [spec for spec in missing if spec.settings["size"] == "large"]
    assert {(spec.agent, spec.width, spec.wait) for spec in large} == {("sm", width, 1) for width in (4, 8, 12)}
    assert {spec.settings["updates"] for spec in large} == {120_000}
    tiny = [spec for spec in missing if spec.settings["size"] == "tiny"]
    assert {spec.settings["updates"] for spec in tiny} == {300, 1200}


def test_a_setting_that_is_smaller_at_the_scale_is_missing_once():
    assert {(spec.width, spec.settings["epochs"]) for spec in _missing("ablation-growing")} == {
        (4, 100), (8, 200), (32, 200)
    }  # fmt: skip


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda one: one.id)
def test_the_paper_scale_of_the_plans_of_a_finding_has_every_setting(finding):
    """Otherwise the finding could never be decided: it is judged by the runs of its own plans."""
    own = [name for name in plans.NAMES if finding.id in plans.read(name).findings]
    (judged,) = judge({finding.id: [run for name in own for run in _runs_of_paper_scale(name)]}, "gpu")
    assert judged.missing == []


@cache
def _runs_of_paper_scale(plan: str) -> list[FinishedRun]:
    return [constant(spec, 0.5) for spec in plans.read(plan).specs("gpu", [0])]


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda one: one.id)
def test_every_setting_of_a_finding_is_in_a_plan(finding):
    (judged,) = judge({finding.id: ()}, "cpu")
    for values in judged.missing:
        assert missing_runs(dataclasses.replace(judged, missing=[values]), Request("cpu")), values


def test_every_comparison_with_runs_is_shown_with_its_corrected_p_value():
    judged = _judged("mnist-tardy", lambda spec: 0.9 if spec.wait == 10 else 0.5)
    text = findings_report.comparisons_text([judged], Request("smoke"))
    lines = [line for line in text.splitlines() if line.startswith(("| sm", "| ens"))]
    assert len(lines) == len(judged.comparisons)
    assert all(re.search(r"\| 3 \| (< 0\.001|0\.\d{3}) \| holds \|  \|$", line) for line in lines)
    assert "Command: `alma reproduce fig7 fig3-mnist --scale smoke`." in text
    assert "**holds**. On the paper's side by +" in text


@pytest.mark.parametrize("name", plans.NAMES)
def test_each_family_of_a_plan_has_a_name(name):
    assert {id.partition("-")[0] for id in plans.read(name).findings} <= set(findings_report.DATA)
