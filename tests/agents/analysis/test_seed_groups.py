"""Runs are grouped by setting; groups, methods and streams are named by their differences."""

from __future__ import annotations

import dataclasses

from agents.analysis.seed_groups import find_seed_groups, streams
from agents.runs.load import FinishedRun

from ..fake_runs import fake_run
from ..grid_of_runs import GRID, METHODS


def test_runs_of_a_seed_group_differ_only_in_seeds_and_rounding() -> None:
    other = dataclasses.replace(GRID[0], config={**GRID[0].config, "threads": 2, "versions": {"torch": "3"}})
    groups, notes = find_seed_groups([*GRID, other])
    assert len(groups) == len(METHODS) * 2 * 2 * 2
    assert all(list(one.runs) == [0, 1, 2] for one in groups)
    assert len(notes) == 1
    assert "with other rounding" in notes[0]
    assert len({one.name for one in groups}) == len(groups)


def test_a_method_is_named_with_the_settings_that_differ() -> None:
    runs = [fake_run("ens", members=2), fake_run("ens", members=5), fake_run("gmoe")]
    assert [one.method for one in find_seed_groups(runs)[0]] == ["Ens, members=2", "Ens, members=5", "gMoE"]


def test_a_run_of_own_code_is_not_named_like_the_method_with_the_name_of_its_file() -> None:
    runs = [fake_run("sm"), fake_run("sm", code={"file": "sm.py"})]
    assert [one.method for one in find_seed_groups(runs)[0]] == ["SM", "sm"]
    made_by_us = fake_run("sm", code={"file": "sm.py"}, backbone="mlp")
    assert [one.method for one in find_seed_groups([made_by_us])[0]] == ["SM"]


def test_random_schedules_are_settings_if_a_stream_has_several() -> None:
    def random_wait(schedule_seed: int, seed: int) -> FinishedRun:
        return fake_run(
            policy={"name": "random", "probability": 0.1, "replay": False, "seed": schedule_seed}, seed=seed
        )

    groups, notes = find_seed_groups([random_wait(seed, seed) for seed in range(3)])
    assert [len(one.runs) for one in groups] == [3]
    groups, more = find_seed_groups(
        [random_wait(schedule_seed, seed) for schedule_seed in range(2) for seed in range(3)]
    )
    assert [len(one.runs) for one in groups] == [3, 3]
    assert len({one.name for one in groups}) == 2
    assert notes == more == []


def test_settings_have_distinct_names() -> None:
    policies = [{"name": "Doubling", "factor": 2.0, "growth": growth, "replay": False} for growth in ("every", "never")]
    policies += [{"name": "Mine", "replay": False, "growth": "never"}]
    runs = [fake_run("gmoe", policy=policy) for policy in policies]
    runs += [fake_run("gmoe", policy=f"{module}.Mine(3)") for module in ("ours", "theirs")]
    names = [one.name for one in find_seed_groups(runs)[0]]
    assert len(set(names)) == len(runs)
    assert "gMoE-4, growth=never, Doubling(factor=2.0)" in names
    assert "gMoE-4, agent.policy=ours.Mine(3), Mine(3)" in names


def test_a_window_of_replay_is_a_part_of_the_name() -> None:
    policies = [{"name": "fixed", "wait": 2, "replay": replay} for replay in ("last:5", "last:9", True, False)]
    names = [one.name for one in find_seed_groups([fake_run(policy=policy) for policy in policies])[0]]
    assert sorted(names) == [
        "SM-4, fixed(wait=2)",
        "SM-4, fixed(wait=2), replay",
        "SM-4, fixed(wait=2), window 5, replay",
        "SM-4, fixed(wait=2), window 9, replay",
    ]


def test_streams_are_named_by_their_differences() -> None:
    runs = [fake_run(ticks=20), fake_run(ticks=10), fake_run(env="MNIST-ALMA-v0")]
    assert list(streams(runs)) == ["Digits-ALMA-v0, ticks=20", "Digits-ALMA-v0, ticks=10", "MNIST-ALMA-v0"]


def test_seeds_of_the_agent_are_settings_if_a_stream_has_several() -> None:
    def run(agent_seed: int, seed: int) -> FinishedRun:
        one = fake_run(seed=seed)
        return dataclasses.replace(one, config={**one.config, "agent": {**one.config["agent"], "seed": agent_seed}})

    groups, notes = find_seed_groups([run(agent_seed, seed) for agent_seed in (7, 8) for seed in range(3)])
    assert ([one.name for one in groups], notes) == (["SM-4, seed=7, w = 5", "SM-4, seed=8, w = 5"], [])
    assert all(len(one.runs) == 3 for one in groups)
