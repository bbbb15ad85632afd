"""Rates of this machine, and how many times as long it takes as the rates of the package say."""

from __future__ import annotations

import pytest

import agents
from agents.catalogue.spec import RunSpec
from agents.reproduction.calibration import Calibration, calibrate, slowness
from agents.reproduction.cost import cost_of
from agents.reproduction.throughput import measure, measure_long


@pytest.mark.parametrize("agent", ["sm", "gens", "gmoe"])
def test_the_flops_of_measured_stages_are_those_that_the_meter_counts(agent):
    """Of three stages, the last two are measured; the meter also counts what the first stage and tick 0 cost."""
    spec = RunSpec("Digits-ALMA-v0", agent, 4, wait=2, settings={"ticks": 6, "epochs": 100})
    found = measure(spec, 1e9)
    assert len(found.stages) == 3
    assert found.growth is None
    env = spec.make_env()
    rows = agents.run(env, spec.make_agent(env), seed=0).rows
    metered = sum(row.paper_flops for row in rows[3:])
    measured = found.rate * sum(found.stages[1:])
    assert metered < measured < 1.2 * metered  # validation and answers are not training


def test_a_measurement_ends_after_the_given_seconds():
    assert len(measure(RunSpec("Digits-ALMA-v0", "sm", 4, 1, settings={"epochs": 1}), 1e-9).stages) == 2


def test_a_run_of_one_stage_cannot_be_measured():
    with pytest.raises(ValueError, match=r"wait=20 of 20 ticks: .* choose a shorter waiting time"):
        measure(RunSpec("Digits-ALMA-v0", "sm", 4, 20, settings={"epochs": 1}), 1.0)


def test_growth_that_is_as_fast_as_training_is_not_measured_apart():
    found = measure_long(RunSpec("Digits-ALMA-v0", "gmoe", 4, 1), 20)
    assert len(found.stages) == 2
    assert found.growth is None


def test_calibration_measures_data_of_equal_images_once_and_with_each_process():
    found = calibrate(["Digits", "Text"], workers=2)
    assert [(one.data, len(one.factors)) for one in found] == [("Digits", 4)]
    assert all(factor > 0 for factor in found[0].factors)


def test_hours_are_those_of_a_slower_machine():
    specs = [RunSpec(f"{data}-ALMA-v0", "sm", 4, 10) for data in ("MNIST", "FashionMNIST", "CIFAR10")]
    found = [Calibration("MNIST", (2.0, 8.0))]
    expected = [4, 4, 1]  # the geometric mean; Fashion-MNIST has images of the same size; CIFAR-10 was not measured
    assert [cost_of([spec], slowness(found)).seconds / cost_of([spec]).seconds for spec in specs] == pytest.approx(
        expected
    )
