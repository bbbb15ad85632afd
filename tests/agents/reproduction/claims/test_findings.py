"""The findings are judged by runs that agree with the paper or contradict it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import pytest

from agents.analysis.statistics import holm
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, resolve
from agents.networks.switch_size import SIZES, parameter_count
from agents.reproduction import plans
from agents.reproduction.claims.combined import seeds_to_decide
from agents.reproduction.claims.findings import DOES_NOT_HOLD, FINDINGS, HOLDS_WHERE_RUN, MIXED, JudgedFinding, judge
from agents.reproduction.claims.setups import read_setup
from agents.reproduction.claims.verdicts import CONTRADICTED, HOLDS, NO_EQUAL, NOT_RUN, UNDECIDED, PairedComparison
from agents.reproduction.findings_report import comparisons_table
from agents.reproduction.tables import perplexities, published
from agents.runs.load import FinishedRun

from ..synthetic import constant, grid, run_of

SEEDS = (0, 1, 2)
UPDATES = 120_000  # of a stage on one mega-batch in the paper
SMOKE = read_setup("mnist", "smoke")


def _judged(id: str, runs: Sequence[FinishedRun], scale: str = "smoke") -> JudgedFinding:
    (judged,) = judge({id: runs}, scale)
    return judged


def test_each_finding_has_a_plan_and_plans_name_no_other_findings():
    listed = {id for name in plans.NAMES for id in plans.read(name).findings}
    assert listed == {finding.id for finding in FINDINGS}


@pytest.mark.parametrize("name", plans.NAMES)
@pytest.mark.parametrize("scale", plans.SCALES)
def test_the_runs_of_a_plan_decide_each_of_its_findings(name, scale):
    runs = [constant(spec, 0.5) for spec in plans.read(name).specs(scale, [0, 1])]
    for one in judge(dict.fromkeys(plans.read(name).findings, runs), scale):
        missing = {"text-large", "text-gap", "cifar-e"} if scale != "gpu" else set()
        assert (one.verdict == NOT_RUN) <= (one.finding.id in missing), one.finding.id
        if scale == "gpu":
            without_runs = [c.label for c in one.comparisons if c.interval is None and "equal" not in c.label]
            assert without_runs == [] or name in ("fig1", "fig3", "fig3-mnist", "fig8", "tab1"), one.finding.id


def test_findings_without_runs_are_not_run():
    judged = judge({finding.id: () for finding in FINDINGS}, "cpu")
    assert [one.verdict for one in judged] == [NOT_RUN] * len(FINDINGS)


def test_each_comparison_of_a_finding_has_its_own_name():
    for one in judge({finding.id: () for finding in FINDINGS}, "gpu"):
        names = [(comparison.label, comparison.quantity) for comparison in one.comparisons]
        assert len(set(names)) == len(names), one.finding.id


def test_a_worst_tardy_learner_holds_and_a_best_tardy_learner_is_contradicted():
    worst = grid("fig7", lambda spec: 0.9 if spec.wait == SMOKE.tardy else 0.5)
    assert _judged("mnist-tardy", worst).verdict == HOLDS
    assert _judged("mnist-final", worst).verdict == DOES_NOT_HOLD
    best = grid("fig7", lambda spec: 0.1 if spec.wait == SMOKE.tardy else 0.5)
    judged = _judged("mnist-tardy", best)
    assert judged.verdict == DOES_NOT_HOLD
    assert judged.weakest.interval.mean == pytest.approx(-0.4 * 11)
    assert _judged("mnist-final", best).verdict == HOLDS


def test_a_finding_holds_on_average_if_no_comparison_is_contradicted():
    """One comparison has one seed, so it is undecided; the combined test has the others."""
    runs = grid("fig7", lambda spec: 0.9 if spec.wait == SMOKE.tardy else 0.5)
    single = [
        run for run in runs if run.seed == 0 or run.run_config.get("agent") != "ens" or run.run_config.agent.width == 4
    ]
    judged = _judged("mnist-tardy", single)
    assert (judged.verdict, judged.count(UNDECIDED), judged.count(CONTRADICTED)) == (HOLDS_WHERE_RUN, 3, 0)
    alone = _judged("mnist-tardy", [run for run in runs if run.seed == 0])
    assert (alone.verdict, alone.combined) == (UNDECIDED, None)


def test_a_finding_that_depends_on_the_width_is_mixed():
    def error(spec: RunSpec) -> float:
        return {"sm": 0.5, "ens": 0.4 if spec.width == 4 else 0.6}.get(spec.agent, 0.5)

    judged = _judged("mnist-ens", grid("fig7", error))
    assert judged.verdict == MIXED
    assert [one.label for one in judged.having(CONTRADICTED)] == [f"16, w={wait}: ens − sm" for wait in SMOKE.waits]


def test_comparisons_are_corrected_for_their_number():
    """Of many comparisons, only those with a p-value below 5 % divided by their number are decided at first."""
    runs = grid("fig7", lambda spec: 0.4 if spec.agent == "ens" else 0.5)
    judged = _judged("mnist-ens", runs)
    tested = [one for one in judged.comparisons if one.p_value is not None]
    assert [judged.p_of(one) for one in tested] == holm([one.p_value for one in tested])


def test_the_last_undecided_comparison_needs_the_seeds_of_one_test():
    """The last step of Holm's procedure has the whole 5 %."""
    decided = [PairedComparison(str(number), "CER", {0: -1.0, 1: -1.01, 2: -1.02}) for number in range(9)]
    undecided = PairedComparison("last", "CER", {0: 1.0, 1: -0.4, 2: 0.6})
    judged = JudgedFinding(FINDINGS[0], [*decided, undecided])
    assert judged.having(UNDECIDED) == [undecided]
    assert judged.tests_to_decide == 1
    needed = str(seeds_to_decide(undecided.distance, undecided.deviation))
    assert comparisons_table(judged).splitlines()[-1].endswith(f"| undecided | {needed} |")
    several = [dataclasses.replace(undecided, label=str(number)) for number in range(3)]
    assert JudgedFinding(FINDINGS[0], several).tests_to_decide == 3


def test_the_settings_without_runs_are_named():
    runs = grid("fig7", lambda spec: 0.5)
    of_sm = [run for run in runs if run.run_config.get("agent") == "sm"]
    missing = _judged("mnist-large", of_sm).missing
    assert missing == [{"replay": False, "agent": "ens", "width": 16, "wait": wait} for wait in (1, 2)]


def test_close_means_within_a_tenth():
    def near(spec: RunSpec) -> float:
        return 0.52 if spec.wait == SMOKE.greedy else 0.5

    assert _judged("mnist-large", grid("fig7", near)).verdict == HOLDS
    assert _judged("mnist-large", grid("fig7", lambda spec: 0.5 + 0.3 * (spec.wait == 1))).verdict == DOES_NOT_HOLD


def test_the_intermediate_wait_is_compared_with_the_two_others_at_each_width():
    judged = _judged("cifar-a", grid("fig2", lambda spec: 0.2 if spec.wait == 5 else 0.4))
    assert judged.verdict == HOLDS
    assert [one.label for one in judged.comparisons[:2]] == ["sm 4: w=5 − w=1", "sm 4: w=5 − w=10"]
    assert len(judged.comparisons) == 8


def test_the_start_of_the_stream_ends_when_the_patient_learner_trains():
    def errors(spec: RunSpec) -> list[float]:
        early = 0.3 if spec.wait == 1 else 0.9
        return [0.9, *[early + 0.01 * spec.seed] * 4, *[0.1 if spec.wait == 5 else 0.3] * 6]

    specs = plans.read("fig3").specs("smoke", SEEDS)
    runs = [run_of(spec, errors(spec)) for spec in specs]
    assert _judged("cifar-c", runs).verdict == HOLDS
    judged = _judged("cifar-b", runs)  # the patient learner ends better than the greedy one and than the tardy one
    assert judged.verdict == MIXED
    assert {one.label.partition(": ")[2] for one in judged.having(CONTRADICTED)} == {"w=10 − w=5"}


def test_a_grown_network_is_compared_with_a_single_model_of_its_average_size():
    """The error of the single model is 0.6 at 100 parameters and 0.4 at 400, so 0.5 at 200 parameters."""
    runs = []
    for spec in plans.read("fig2").specs("smoke", SEEDS):
        sizes = {"sm": {4: 100, 16: 400}, "gmoe": {4: 200, 16: 5_000}}.get(spec.agent, {4: 1, 16: 2})
        error = {"sm": {4: 0.6, 16: 0.4}, "gmoe": {4: 0.55, 16: 0.35}}.get(spec.agent, {4: 0.5, 16: 0.5})
        shift = 0.001 * spec.seed * (2 if spec.agent == "gmoe" else 1)
        size = sizes[spec.width]
        runs.append(constant(spec, error[spec.width] + shift, parameters=size, flops=10 * size))
    assert _judged("cifar-h", runs).verdict == HOLDS_WHERE_RUN  # the plan has no runs of Firefly
    for id, kind in (("cifar-size", "of equal average size"), ("cifar-compute", "at equal training FLOPs")):
        judged = _judged(id, runs)
        assert judged.verdict == HOLDS_WHERE_RUN
        by_label = {one.label: one for one in judged.comparisons}
        assert by_label[f"gmoe 4, w=1 − sm {kind}"].interval.mean == pytest.approx(11 * 0.051)
        assert judged.verdict_of(by_label[f"gmoe 16, w=1 − sm {kind}"]) == NO_EQUAL
        narrow = [run for run in runs if (run.config["agent"]["id"], run.config["agent"]["width"]) != ("sm", 16)]
        judged = _judged(id, narrow)
        by_label = {one.label: one for one in judged.comparisons}
        # A wider single model was not run.
        assert judged.verdict_of(by_label[f"gmoe 16, w=1 − sm {kind}"]) == NOT_RUN


def test_a_width_that_was_not_run_leaves_a_finding_on_widths_open():
    """Without c = 8, neither 8 − 4 nor 16 − 8 is known; 16 − 4 is no comparison of neighbours."""
    specs = plans.read("fig2").specs("cpu", SEEDS)
    narrow = [spec for spec in specs if spec.agent in ("sm", "ens") and spec.width in (4, 8, 16)]
    runs = [constant(spec, 1 / spec.width + 0.001 * spec.seed) for spec in narrow]
    (judged,) = judge({"cifar-d": runs}, "cpu")
    assert judged.verdict == HOLDS_WHERE_RUN
    assert judged.count(NOT_RUN) == 2 * 3 * (4 + 4) - judged.count(HOLDS)
    (judged,) = judge({"cifar-d": [run for run in runs if run.config["agent"]["width"] != 8]}, "cpu")
    assert judged.verdict == NOT_RUN


def test_ensembles_are_compared_in_memory_compute_and_inference():
    def cost(spec: RunSpec) -> dict[str, int]:
        return {"parameters": 900, "flops": 100} if spec.agent == "gens" else {"parameters": 500, "flops": 500}

    runs = [constant(spec, 0.5, **cost(spec)) for spec in plans.read("fig2").specs("smoke", SEEDS)]
    judged = _judged("cifar-cost", runs)
    assert judged.count(HOLDS) == 2 * len(judged.comparisons) // 3  # all runs have no FLOPs of inference
    assert {one.quantity for one in judged.having(UNDECIDED)} == {"inference FLOPs at the end"}


def test_the_intermediate_wait_ends_close_to_the_tardy_one():
    def errors(spec: RunSpec, end: float) -> list[float]:
        return [0.9] * 10 + [(end if spec.wait == 5 else 0.5) + 0.001 * spec.seed * spec.wait]

    for end, verdict in ((0.52, HOLDS), (0.7, DOES_NOT_HOLD)):
        runs = [run_of(spec, errors(spec, end)) for spec in plans.read("fig3").specs("smoke", SEEDS)]
        assert _judged("cifar-close", runs).verdict == verdict


def _with_replay(gain: Callable[[RunSpec], float], name: str = "fig4") -> list[FinishedRun]:
    """Return runs that gain by replay, which costs 1.5 times the training FLOPs; wide ones cost 16 times as much."""
    runs = []
    for spec in plans.read(name).specs("smoke", SEEDS):
        error = 0.8 - (gain(spec) + 0.001 * spec.seed) * spec.replay - 0.1 * (spec.width == 16)
        runs.append(constant(spec, error, flops=(1_500 if spec.replay else 1_000) * spec.width**2))
    return runs


def test_replay_is_judged_by_its_effect_and_its_cost():
    runs = _with_replay(lambda spec: 0.1 if spec.agent == "gens" else 0.3)
    for id in ("cifar-j", "cifar-replay-least"):
        assert _judged(id, runs).verdict == HOLDS_WHERE_RUN, id  # the plan has no runs of Firefly
    cost = _judged("cifar-replay-cost", runs)
    assert cost.verdict == HOLDS
    assert "training FLOPs with replay / without − 1.5" in cost.comparisons[0].label
    without = [run for run in runs if not run.config["agent"]["policy"]["replay"]]
    assert _judged("cifar-j", without).verdict == NOT_RUN


def test_replay_is_compared_with_a_wider_network_at_equal_training_flops():
    assert _judged("cifar-replay-trade", _with_replay(lambda spec: 0.3)).verdict == DOES_NOT_HOLD
    assert _judged("cifar-replay-trade", _with_replay(lambda spec: 0.001)).verdict == HOLDS_WHERE_RUN


def test_with_replay_the_shortest_wait_is_best():
    runs = _with_replay(lambda spec: 0.5 / spec.wait, "fig8")
    assert _judged("cifar-replay-wait", runs).verdict == HOLDS_WHERE_RUN  # the plan has one width
    assert _judged("cifar-replay-wait", _with_replay(lambda spec: 0.02 * spec.wait, "fig8")).verdict == DOES_NOT_HOLD


def test_with_replay_a_growing_ensemble_ends_at_a_single_model():
    assert _judged("cifar-replay-gens", _with_replay(lambda spec: 0.3)).verdict == HOLDS
    ends = _with_replay(lambda spec: 0.1 if spec.agent == "gens" else 0.5)
    assert _judged("cifar-replay-gens", ends).verdict == DOES_NOT_HOLD


def _as_published() -> list[FinishedRun]:
    """Return the rows of table 2 of the paper as runs, with small differences between seeds."""
    rows = dict(published(UPDATES))
    runs = []
    for spec in plans.read("tab2").specs("gpu", SEEDS, {"train": "t", "valid": "v"}):
        config = resolve(spec, spec.known_facts())
        row = config.get("size"), spec.agent, spec.width, config.get("members", 1), spec.wait, config.get("updates")
        values = rows.pop(row, None)
        shift = 0.0001 * (len(spec.agent) + spec.width)
        if values is not None:
            for seed in SEEDS:
                own = dataclasses.replace(spec, seed=seed)
                errors = [50_257.0, *((value or 9_999.0) + seed * shift for value in values)]
                runs.append(run_of(own, errors, parameters=_sizes(config)))
    assert rows == {}  # the plan has every row of the table
    return runs


def _sizes(config: RunConfig) -> list[int]:
    """Return the number of parameters after each tick."""
    experts = [4, 4, 6, 8, 12] if config.agent.id == "gmoe" else [config.agent.width] * 5
    members = [1, 1, 2, 3, 4] if config.agent.id == "gens" else [config.get("members", 1)] * 5
    size = SIZES[config.get("size")]
    return [m * parameter_count(50_257, size, e) for e, m in zip(experts, members, strict=True)]


def test_the_findings_on_text_hold_for_the_published_table():
    runs = _as_published()
    found = judge({finding.id: runs for finding in FINDINGS if finding.family == "text"}, "gpu")
    verdicts = {one.finding.id: one.verdict for one in found}
    contradicted = {c.label for one in found for c in one.having(CONTRADICTED)}
    assert set(verdicts.values()) == {HOLDS}, (verdicts, contradicted)


def test_the_large_model_is_compared_with_every_base_row_at_the_last_tick():
    judged = _judged("text-large", _as_published(), "gpu")
    base = {one.label.partition("− ")[2] for one in judged.with_runs}
    rows = [row for row, values in published(UPDATES).items() if row.size == "base" and values[-1] is not None]
    assert len(base) == len(rows)
    assert judged.weakest.label == "large sm 4 at t=1 − base sm 12, w=4, 4× updates at t=4"  # 22.47 − 22.87


def test_growing_methods_are_compared_with_each_number_of_updates():
    specs = plans.read("tab2").specs("cpu", SEEDS, {"train": "t", "valid": "v"})
    growing = [spec for spec in specs if spec.agent in ("gens", "gmoe")]
    ahead = {300: "gens", 1200: "gmoe"}
    runs = [
        constant(one, 50.0 + 0.1 * one.seed - 10.0 * (one.agent == ahead[one.settings["updates"]])) for one in growing
    ]
    judged = _judged("text-gens", runs, "cpu")
    assert judged.verdict == MIXED
    assert {one.label for one in judged.having(HOLDS)} == {f"tiny, t={tick}: gens − gmoe" for tick in (2, 3, 4)}
    contradicted = {one.label for one in judged.having(CONTRADICTED)}
    assert contradicted == {f"tiny, 1,200 updates, t={tick}: gens − gmoe" for tick in (2, 3, 4)}


def test_the_table_of_perplexities_shows_the_published_values():
    lines = perplexities(_as_published(), UPDATES).splitlines()
    assert (
        "| ens (large) | 4@2 | 3 | 360,000 | 3 | 418.14 | \\* | \\* | 18.04 ± 0.00 (18.04) | 9999.00 ± 0.00 |" in lines
    )
    tiny = perplexities([constant(spec, 9.0) for spec in plans.read("tab1").specs("smoke")], 2)
    assert "(" not in tiny.replace("(tiny)", "")


def test_the_table_of_perplexities_has_one_heading_per_column():
    heading, ruler, first, *_ = perplexities(_as_published(), UPDATES).splitlines()
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in (heading, ruler, first)]
    assert len(set(columns)) == 1, heading
