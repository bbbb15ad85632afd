"""Runs are selected by their configuration."""

from __future__ import annotations

import dataclasses

import pytest

from agents.catalogue.spec import RunSpec
from agents.reproduction import outcome, plans
from agents.reproduction.claims.findings import judge
from agents.reproduction.missing import missing_runs
from agents.reproduction.outcome import Outcome, judge_outcomes, split
from agents.reproduction.plans import Request
from agents.runs import load
from agents.runs.load import FinishedRun
from alma_env.errors import DataUnavailableError

from .synthetic import constant

SPEC = RunSpec("MNIST-ALMA-v0", "ens", 4, wait=10, seed=1)


@pytest.mark.parametrize(
    "other",
    [
        {"agent": "umix"},
        {"width": 8},
        {"wait": 50},
        {"replay": True},
        {"seed": 2},
        {"settings": {"epochs": 5}},
        {"settings": {"members": 2}},
        {"settings": {"ticks": 50}},
        {"settings": {"valid_fraction": 0.2}},
        {"settings": {"learning_rate": 0.5}},
        {"wait": None, "policy": "doubling"},
    ],
    ids=str,
)
def test_a_run_with_another_identity_is_not_selected(other):
    run = constant(SPEC, 0.5)
    assert split([SPEC], [run]) == ([run], [])
    requested = dataclasses.replace(SPEC, **other)
    assert split([requested], [run]) == ([], [requested])


@pytest.mark.parametrize(
    ("env", "settings", "others"),
    [
        ("Text-ALMA-v0", {}, [{"vocabulary_size": 2_000}]),
        ("Text-ALMA-v0", {"vocabulary_size": 2_000}, [{}, {"vocabulary_size": 4_000}]),
        ("EMNIST-ALMA-v0", {}, [{"split": "letters"}]),
        ("EMNIST-ALMA-v0", {"split": "letters"}, [{}, {"split": "digits"}]),
    ],
)
def test_a_run_with_other_settings_of_its_data_is_not_selected(env, settings, others):
    spec = RunSpec(env, "sm", 4, wait=2, settings=settings)
    run = constant(spec, 0.5)
    assert split([spec], [run]) == ([run], [])
    for other in others:
        requested = dataclasses.replace(spec, settings=other)
        assert split([requested], [run]) == ([], [requested])


def test_only_runs_on_the_given_text_are_selected(tmp_path):
    pytest.importorskip("tokenizers")
    for name in ("train", "valid", "other"):
        (tmp_path / f"{name}.txt").write_text(f"The text of {name}.", encoding="utf-8")
    train, valid, other = (str(tmp_path / f"{name}.txt") for name in ("train", "valid", "other"))
    settings = {"sequence_length": 128, "vocabulary_size": 2_000}
    unnamed = RunSpec("Text-ALMA-v0", "sm", 4, settings=settings)
    requested = dataclasses.replace(unnamed, settings={**settings, "train": train, "valid": valid})
    run, recorded = constant(requested, 0.5), constant(unnamed, 0.5)
    run.config["protocol"] = requested.make_env().protocol()
    recorded.config["protocol"] = {**run.config["protocol"], "digest": "of another text"}
    assert split([requested], [recorded, run]) == ([run], [])
    assert split([unnamed], [recorded, run]) == ([recorded], [])
    elsewhere = dataclasses.replace(unnamed, settings={**settings, "train": train, "valid": other})
    assert split([elsewhere], [recorded, run]) == ([], [elsewhere])
    missing = dataclasses.replace(unnamed, settings={**settings, "train": train, "valid": str(tmp_path / "none.txt")})
    with pytest.raises(DataUnavailableError, match=r"none\.txt"):
        split([missing], [recorded, run])


@pytest.mark.parametrize("other", [{"threads": 2}, {"engine": "plain"}, {"settings": {"validation_batch": 64}}])
def test_engine_threads_and_validation_batch_do_not_change_the_selection(other):
    run = constant(SPEC, 0.5)
    assert split([dataclasses.replace(SPEC, **other)], [run]) == ([run], [])


def test_a_value_that_an_old_run_did_not_record_is_ignored():
    run = constant(SPEC, 0.5)
    del run.config["agent"]["stage"]["balance"]
    assert split([SPEC], [run]) == ([run], [])


def test_runs_are_selected_in_the_order_of_the_specs_and_once_each():
    specs = [dataclasses.replace(SPEC, seed=seed) for seed in (0, 1, 2)]
    runs = [constant(spec, 0.1 * spec.seed) for spec in reversed(specs)]
    assert [run.seed for run in split(specs, [*runs, *runs])[0]] == [0, 1, 2]


def test_runs_on_different_data_are_refused():
    plan = plans.read("fig7")
    specs = [dataclasses.replace(SPEC, seed=seed) for seed in (0, 1)]
    runs = [constant(spec, 0.5) for spec in specs]
    for number, run in enumerate(runs):
        run.config["protocol"]["digest"] = f"d{number}"
    assert len(Outcome.of(plan, "gpu", specs[:1], runs).runs) == 1
    with pytest.raises(ValueError, match="MNIST-ALMA-v0: .* and .* have different data; give --runs of one"):
        Outcome.of(plan, "gpu", specs, runs)


def test_a_finding_is_judged_by_the_runs_of_all_plans_of_its_family():
    """The plan fig3-mnist has fewer widths than fig7."""
    specs = plans.read("fig7").specs("smoke", seeds=(0, 1, 2))
    runs = [constant(spec, 0.5 + 0.1 * (spec.agent == "sm") + 0.01 * spec.seed) for spec in specs]
    request = Request("smoke", (0, 1, 2))
    plan = plans.read("fig3-mnist")
    own = Outcome.of(plan, "smoke", plan.specs("smoke", request.seeds), runs)
    found = {one.finding.id: one for one in judge_outcomes([own], runs, request)}
    assert list(found) == [one for one in plans.read("fig7").findings if one in plan.findings]
    assert len(own.runs) < len(runs)
    assert found["mnist-ens"].comparisons == judge({"mnist-ens": runs}, "smoke")[0].comparisons
    assert not found["mnist-ens"].missing


def test_a_run_of_another_plan_of_the_family_is_not_missing():
    """At the scale cpu, SM with c = 64 and without replay is in the plan fig2, which judges no finding on replay."""
    (spec,) = (one for one in plans.read("fig2").specs("cpu", (0,)) if (one.agent, one.width) == ("sm", 64))
    plan = plans.read("fig4")
    request = Request("cpu", (0,))
    own = Outcome.of(plan, "cpu", (), ())
    setting = {"agent": "sm", "width": 64, "wait": 10, "replay": False}
    for runs in ([], [constant(spec, 0.5)]):
        found = {one.finding.id: one for one in judge_outcomes([own], runs, request)}
        assert (setting in found["cifar-replay-cost"].missing) == (not runs)
        missing = missing_runs(found["cifar-replay-cost"], request)
        assert (spec.digest() in {one.digest() for one in missing}) == (not runs)


def test_a_plan_with_agents_that_lack_a_requested_setting_does_not_stop_the_others():
    """The plan fig2 decides findings of fig3, and has growing ensembles, which have no `from_scratch`."""
    request = Request("smoke", (0,), {"from_scratch": False, "epochs": 1})
    plan = plans.read("fig3")
    specs = plan.specs("smoke", request.seeds, request.settings)
    runs = [constant(spec, 0.5) for spec in specs]
    own = Outcome.of(plan, "smoke", specs, runs)
    assert own.runs == runs
    assert {one.finding.id for one in judge_outcomes([own], runs, request)} == set(plan.findings)


def test_packed_files_of_the_package_are_read(tmp_path, monkeypatch):
    run = constant(SPEC, 0.5)
    load.pack([run], tmp_path / "fig7-cpu.jsonl.xz")
    monkeypatch.setattr(outcome, "recorded_files", lambda: [tmp_path / "fig7-cpu.jsonl.xz"])
    (found,) = outcome.recorded_runs()
    assert isinstance(found, FinishedRun)
    assert split([SPEC], [found]) == ([found], [])


def test_the_recorded_runs_of_the_package_are_small():
    assert 0 < sum(file.stat().st_size for file in outcome.recorded_files()) < 5_000_000
