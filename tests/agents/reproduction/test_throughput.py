"""Measured rates of this machine."""

from __future__ import annotations

import pytest

import agents
from agents.catalogue.spec import RunSpec
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
    assert len(measure(RunSpec("Digits-ALMA-v0", "sm", 4, 1, settings={"epochs": 1}), 0).stages) == 2


@pytest.mark.parametrize("measured", [measure, measure_long])
def test_a_run_of_one_stage_cannot_be_measured(measured):
    with pytest.raises(ValueError, match=r"wait=20 of 20 ticks: .* choose a shorter waiting time"):
        measured(RunSpec("Digits-ALMA-v0", "sm", 4, 20, settings={"epochs": 1}), 2)


def test_a_long_stage_has_several_epochs():
    with pytest.raises(ValueError, match="epochs=1: two stages of different lengths are compared"):
        measure_long(RunSpec("Digits-ALMA-v0", "sm", 4, 1), 1)


def test_growth_that_is_as_fast_as_training_is_not_measured_apart():
    found = measure_long(RunSpec("Digits-ALMA-v0", "gmoe", 4, 1), 20)
    assert len(found.stages) == 2
    assert found.growth is None
