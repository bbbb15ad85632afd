"""The costs and the error of a learner after each quarter of its stream."""

from __future__ import annotations

import dataclasses

import pytest

from agents.analysis.seed_groups import find_seed_groups
from agents.analysis.trajectories import quarters
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.effort import networks
from alma_env import Ledger

from ..fake_runs import fake_run, finished_run
from ..grid_of_runs import GRID, TEXT, group


def test_the_quarters_have_the_costs_and_the_error_of_their_ticks() -> None:
    runs = group(GRID, "gmoe", 4, 1)
    found = quarters(runs)
    assert [quarter.tick for quarter in found] == [5, 10, 15, 20]
    ledger = runs.runs[1].ledger
    second = found[1]
    assert second.training_flops == sum(row.paper_flops for row in ledger.rows[:11])
    assert second.parameters == ledger[10].parameters
    assert second.error.mean == pytest.approx(sum(run.ledger[10].error for run in runs.runs.values()) / 3)
    # The fake run records no growth steps in its stages.
    assert [quarter.experts for quarter in found] == [1, 1, 1, 1]


def test_quarters_before_the_first_training_are_left_out() -> None:
    runs = [fake_run("sm", 4, 8, seed) for seed in (0, 1)]
    assert [quarter.tick for quarter in quarters(find_seed_groups(runs)[0][0])] == [10, 15, 20]


def test_a_learner_without_flops_of_the_paper_is_trained_by_its_stages() -> None:
    run = fake_run("sm", 4, 8, 0)
    columns = dataclasses.replace(run.columns, paper_flops=[0] * len(run.columns))
    assert run.stages
    free = dataclasses.replace(run, columns=columns)
    assert [quarter.tick for quarter in quarters(find_seed_groups([free])[0][0])] == [10, 15, 20]


@pytest.mark.parametrize(("first", "shown"), [(10, [5, 10, 15, 20]), (1, [])])
def test_what_a_budget_refused_is_neither_trained_nor_grown(first: int, shown: list[int]) -> None:
    run = fake_run("gens", 4, 5, 0)
    stages = [dataclasses.replace(stage, grow=int(stage.tick > 5)) for stage in run.stages]
    rows = [dataclasses.replace(row, refused=row.tick >= first) for row in run.ledger]
    limited = finished_run(run.folder, run.config, Ledger(rows), stages)
    found = quarters(find_seed_groups([limited])[0][0])
    assert [(quarter.tick, quarter.experts) for quarter in found] == [(tick, 1) for tick in shown]


def test_a_text_of_four_mega_batches_has_a_quarter_for_each() -> None:
    assert [quarter.tick for quarter in quarters(group(TEXT, "ens", 4, 1))] == [1, 2, 3, 4]
    assert [quarter.tick for quarter in quarters(group(TEXT, "ens", 4, 2))] == [2, 3, 4]


def test_members_and_experts_are_counted_after_growth_steps() -> None:
    def counted(growth_steps: int, **record: object) -> int:
        return networks(AgentConfig({"backbone": "mlp", **record}), growth_steps)

    assert counted(0, id="sm") == 1
    assert counted(0, id="ens", members=5) == 5
    assert counted(3, id="gens", members=1) == 4
    assert counted(3, id="gmoe", grow_by=1, init_experts=1) == 4
    assert counted(0, id="moe", init_experts=8) == 8
    assert networks(AgentConfig({"backbone": "switch", "id": "ens", "members": 2, "width": 4}), 0) == 8
    assert networks(AgentConfig({"backbone": "switch", "id": "gmoe", "grow_by": [2, 2, 4], "width": 4}), 3) == 12
