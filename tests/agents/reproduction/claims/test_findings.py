"""The paper's findings are judged by runs that have, or contradict, its orderings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import pytest

from agents.experiments.spec import RunSpec
from agents.finished import FinishedRun
from agents.reproduction import plan
from agents.reproduction.expected import expected
from agents.reproduction.findings import DOES_NOT_HOLD, FINDINGS, HOLDS_WHERE_RUN, Judged, judge
from agents.reproduction.perplexities import perplexities
from agents.reproduction.published import published
from agents.reproduction.setting import setting
from agents.reproduction.verdicts import CONTRADICTED, HOLDS, NONE_OF_ITS_SIZE, NOT_RUN, UNDECIDED

from .synthetic import constant, run_of

SEEDS = (0, 1, 2)
SMOKE = setting("mnist", "smoke")


def _judged(id: str, runs: Sequence[FinishedRun], scale: str = "smoke") -> Judged:
    return next(one for one in judge({id: runs}, scale) if one.finding.id == id)


def _grid(name: str, error: Callable[[RunSpec], float], scale: str = "smoke") -> list[FinishedRun]:
    """The runs of a plan, each with a constant error that a seed shifts a little."""
    specs = plan.read(name).specs(scale, SEEDS)
    return [constant(spec, error(spec) + 0.001 * (spec.seed + len(spec.agent)) ** 2) for spec in specs]


def test_the_findings_of_every_plan_exist_and_every_finding_has_a_plan():
    listed = {id for name in plan.NAMES for id in plan.read(name).findings}
    assert listed == {finding.id for finding in FINDINGS}


@pytest.mark.parametrize("name", plan.NAMES)
@pytest.mark.parametrize("scale", plan.SCALES)
def test_a_plans_runs_decide_about_each_of_its_findings(name, scale):
    runs = [constant(spec, 0.5) for spec in plan.read(name).specs(scale, [0, 1])]
    for one in judge(dict.fromkeys(plan.read(name).findings, runs), scale):
        if one.finding.id in plan.read(name).findings:
            missing = {"text-large", "cifar-e"} if scale != "gpu" else set()
            assert (one.verdict == NOT_RUN) <= (one.finding.id in missing), one.finding.id
            if scale == "gpu":
                apart = [c.what for c in one.comparisons if c.interval is None and "its" not in c.what]
                widths = [what for what in apart if name not in ("fig3", "fig8", "tab1")]
                assert widths == [], one.finding.id


def test_nothing_is_said_of_what_was_not_run():
    assert {one.verdict for one in judge({}, "cpu")} == {NOT_RUN}


def test_a_tardy_learner_that_is_worst_is_found_and_its_opposite_is_contradicted():
    worst = _grid("fig7", lambda spec: 0.9 if spec.wait == SMOKE.tardy else 0.5)
    assert _judged("mnist-tardy", worst).verdict == HOLDS
    assert _judged("mnist-final", worst).verdict == DOES_NOT_HOLD
    best = _grid("fig7", lambda spec: 0.1 if spec.wait == SMOKE.tardy else 0.5)
    judged = _judged("mnist-tardy", best)
    assert judged.verdict == DOES_NOT_HOLD
    assert judged.weakest.interval.mean == pytest.approx(-0.4 * 11)
    assert _judged("mnist-final", best).verdict == HOLDS


def test_one_comparison_that_is_open_leaves_a_finding_open():
    runs = _grid("fig7", lambda spec: 0.9 if spec.wait == SMOKE.tardy else 0.5)
    single = [run for run in runs if run.seed == 0 or run.config["agent"]["id"] == "sm"]
    assert _judged("mnist-tardy", single).verdict == UNDECIDED


def test_close_is_within_a_tenth():
    def near(spec: RunSpec) -> float:
        return 0.52 if spec.wait == SMOKE.greedy else 0.5

    assert _judged("mnist-large", _grid("fig7", near)).verdict == HOLDS
    assert _judged("mnist-large", _grid("fig7", lambda spec: 0.5 + 0.3 * (spec.wait == 1))).verdict == DOES_NOT_HOLD


def test_an_intermediate_wait_is_compared_with_both_others_at_each_width():
    judged = _judged("cifar-a", _grid("fig2", lambda spec: 0.2 if spec.wait == 5 else 0.4))
    assert judged.verdict == HOLDS
    assert [one.what for one in judged.comparisons[:2]] == ["sm 4: w=5 − w=1", "sm 4: w=5 − w=10"]
    assert len(judged.comparisons) == 8


def test_the_beginning_of_the_stream_is_judged_before_the_patient_learner_trains():
    def errors(spec: RunSpec) -> list[float]:
        early = 0.3 if spec.wait == 1 else 0.9
        return [0.9, *[early + 0.01 * spec.seed] * 4, *[0.1 if spec.wait == 5 else 0.3] * 6]

    specs = plan.read("fig3").specs("smoke", SEEDS)
    runs = [run_of(spec, errors(spec)) for spec in specs]
    assert _judged("cifar-c", runs).verdict == HOLDS
    assert _judged("cifar-b", runs).verdict == DOES_NOT_HOLD


def test_what_grows_is_held_beside_a_single_model_of_its_average_size():
    """At 200 parameters, between 100 (error 0.6) and 400 (0.4), the single model is taken to have 0.5."""
    runs = []
    for spec in plan.read("fig2").specs("smoke", SEEDS):
        sizes = {"sm": {4: 100, 16: 400}, "gmoe": {4: 200, 16: 5_000}}.get(spec.agent, {4: 1, 16: 2})
        error = {"sm": {4: 0.6, 16: 0.4}, "gmoe": {4: 0.55, 16: 0.35}}.get(spec.agent, {4: 0.5, 16: 0.5})
        shift = 0.001 * spec.seed * (2 if spec.agent == "gmoe" else 1)
        runs.append(constant(spec, error[spec.width] + shift, parameters=sizes[spec.width]))
    judged = _judged("cifar-h", runs)
    assert judged.verdict == HOLDS_WHERE_RUN  # the plan has no Firefly
    beside = {one.what: one for one in judged.comparisons}
    assert beside["gmoe 4, w=1 − sm of its average size"].interval.mean == pytest.approx(11 * 0.051)
    assert beside["gmoe 16, w=1 − sm of its average size"].verdict == NONE_OF_ITS_SIZE
    narrow = [run for run in runs if (run.config["agent"]["id"], run.config["agent"]["width"]) != ("sm", 16)]
    beside = {one.what: one for one in _judged("cifar-h", narrow).comparisons}
    assert beside["gmoe 16, w=1 − sm of its average size"].verdict == NOT_RUN  # a wider one was not run


def test_replay_is_judged_by_what_it_brings_and_what_it_costs():
    runs = []
    for spec in plan.read("fig4").specs("smoke", SEEDS):
        gain = (0.1 if spec.agent == "gens" else 0.3) + 0.01 * spec.seed
        error = 0.8 - gain * spec.replay
        runs.append(constant(spec, error, flops=1_500 if spec.replay else 1_000))
    judged = _judged("cifar-j", runs)
    assert judged.verdict == HOLDS_WHERE_RUN, judged.weakest
    assert "Comp, replay / none − 1.5" in " ".join(one.what for one in judged.comparisons)
    assert _judged("cifar-j", [run for run in runs if not run.config["agent"]["policy"]["replay"]]).verdict == NOT_RUN


def _as_published() -> list[FinishedRun]:
    """Table 2 of the paper as runs, whose seeds differ by next to nothing."""
    lines = {(t.size, t.agent, t.experts, t.members, t.wait, t.times): t.perplexities for t in published()}
    runs = []
    for spec in plan.read("tab2").specs("gpu", SEEDS, {"train": "t", "valid": "v"}):
        agent, stage = expected(spec).agent, expected(spec).stage
        times = stage.updates // setting("text", "gpu").updates
        values = lines.pop((agent["size"], spec.agent, spec.width, agent.get("members", 1), spec.wait, times), None)
        shift = 0.0001 * (len(spec.agent) + spec.width)
        if values is not None:
            for seed in SEEDS:
                own = dataclasses.replace(spec, seed=seed)
                runs.append(run_of(own, [50_257.0, *((value or 9_999.0) + seed * shift for value in values)]))
    assert lines == {}  # the plan has every line of the table
    return runs


def test_the_papers_own_table_has_its_findings_on_text_with_the_exceptions_that_it_has():
    runs = _as_published()
    found = judge(dict.fromkeys([finding.id for finding in FINDINGS], runs), "gpu")
    verdicts = {one.finding.id: one.verdict for one in found if one.finding.family == "text"}
    against = {c.what for one in found for c in one.comparisons if c.verdict == CONTRADICTED}
    assert set(verdicts.values()) == {HOLDS}, (verdicts, against)


def test_the_large_model_is_held_beside_every_base_row_of_the_last_tick():
    (judged,) = [one for one in judge({"text-large": _as_published()}, "gpu") if one.finding.id == "text-large"]
    base = {one.what.partition("− ")[2] for one in judged.run}
    lines = [line for line in published() if line.size == "base" and line.perplexities[-1] is not None]
    assert len(base) == len(lines)
    assert judged.weakest.what == "large sm 4 at t=1 − base sm 12, w=4, 4× updates at t=4"  # 22.47 − 22.87


def test_the_table_of_perplexities_shows_the_papers_beside_a_papers_setting():
    lines = perplexities(_as_published(), 120_000).splitlines()
    assert "| ens (large) | 4@2 | 3 | 360,000 | 3 | 0.00 | \\* | \\* | 18.04 ± 0.00 (18.04) | 9999.00 ± 0.00 |" in lines
    tiny = perplexities([constant(spec, 9.0) for spec in plan.read("tab1").specs("smoke")], 2)
    assert "(" not in tiny.replace("(tiny)", "")


def test_the_table_of_perplexities_has_as_many_headings_as_columns():
    heading, ruler, first, *_ = perplexities(_as_published(), 120_000).splitlines()
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in (heading, ruler, first)]
    assert len(set(columns)) == 1, heading
