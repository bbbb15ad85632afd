"""Runs are found again by what they were; what the documentation says of the recorded ones is what they say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agents import packed
from agents.experiments.spec import RunSpec
from agents.finished import FinishedRun
from agents.reproduction import page, plan, recorded

from .synthetic import constant

PAGE = Path(__file__).parents[3] / "docs/reproduction.md"
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
def test_a_run_that_differs_in_anything_but_rounding_is_another(other):
    run = constant(SPEC, 0.5)
    assert recorded.among([SPEC], [run]) == [run]
    assert recorded.among([dataclasses.replace(SPEC, **other)], [run]) == []


@pytest.mark.parametrize("other", [{"threads": 2}, {"engine": "plain"}, {"settings": {"validation_batch": 64}}])
def test_engine_threads_and_batches_of_validation_make_no_other_run(other):
    run = constant(SPEC, 0.5)
    assert recorded.among([dataclasses.replace(SPEC, **other)], [run]) == [run]


def test_a_setting_that_was_added_since_is_left_open():
    run = constant(SPEC, 0.5)
    del run.config["agent"]["stage"]["balance"]
    del run.config["agent"]["together"]
    assert recorded.among([SPEC], [run]) == [run]


def test_what_was_asked_for_is_found_in_its_order_and_each_run_once():
    specs = [dataclasses.replace(SPEC, seed=seed) for seed in (0, 1, 2)]
    runs = [constant(spec, 0.1 * spec.seed) for spec in reversed(specs)]
    assert [run.seed for run in recorded.among(specs, [*runs, *runs])] == [0, 1, 2]


def test_packed_files_are_found_beside_the_package(tmp_path, monkeypatch):
    run = constant(SPEC, 0.5)
    packed.write([run], tmp_path / "fig7-cpu.jsonl.xz")
    monkeypatch.setattr(recorded, "recorded_files", lambda: [tmp_path / "fig7-cpu.jsonl.xz"])
    (found,) = recorded.recorded_runs()
    assert isinstance(found, FinishedRun)
    assert recorded.among([SPEC], [found]) == [found]


def test_what_the_page_computes_is_up_to_date():
    """After a change: ``python -m agents.reproduction.page docs/reproduction.md``."""
    text = PAGE.read_text(encoding="utf-8")
    assert page.COSTS in page.commands(text)
    assert page.fill(text) == text


@pytest.mark.parametrize("file", recorded.recorded_files(), ids=lambda file: file.name)
def test_every_recorded_file_has_its_findings_on_the_page(file):
    name, _, scale = file.name.removesuffix(packed.SUFFIX).partition("-")
    assert name in plan.NAMES
    assert scale in plan.SCALES
    assert f"{name} --scale {scale} --recorded" in page.commands(PAGE.read_text(encoding="utf-8"))


def test_a_block_that_stands_for_nothing_is_refused():
    with pytest.raises(ValueError, match="fig9 --recorded -->: nothing stands for this"):
        page.fill("<!-- alma reproduce fig9 --recorded -->\n<!-- end -->")
