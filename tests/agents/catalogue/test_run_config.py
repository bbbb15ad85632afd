"""One definition of a run: planned, built, recorded and compared runs have the same configuration."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import agents
import alma_env
from agents.analysis.schedules.waiting_comparison import compare
from agents.analysis.seed_groups import find_seed_groups
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.build import build
from agents.catalogue.data_facts import DataFacts, facts_of, known_facts
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, resolve
from agents.policies.waiting import Doubling
from agents.rl.recorded.recording import Recording
from agents.rl.recorded.recordings import groups, settings_of
from agents.runs.load import FinishedRun
from agents.runs.run import config_of

from ..fake_runs import fake_run

FAST = {"epochs": 2, "ticks": 4}
SPECS = [
    RunSpec("Digits-ALMA-v0", "sm", 4, wait=2, settings=FAST),
    RunSpec(
        "Digits-ALMA-v0", "ens", wait=1, replay=True, seed=3, settings={**FAST, "members": 2, "from_scratch": True}
    ),
    RunSpec("Digits-ALMA-v0", "gens", 4, policy="doubling:first=2", settings=FAST),
    RunSpec("Digits-ALMA-v0", "gmoe", 4, wait=2, settings={**FAST, "grow_by": (1, 2), "growth": "every:2"}),
    RunSpec("Digits-ALMA-v0", "oracle", 4, settings={**FAST, "of": "ens"}),
    RunSpec("Text-ALMA-v0", "sm", 2, wait=2, settings={"updates": 2, "epochs": 1, "warmup": 1}),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_resolved_configuration_equals_the_configuration_of_the_run(spec: RunSpec) -> None:
    env = spec.make_env()
    config, built = resolve(spec, facts_of(env)), config_of(env, spec.make_agent(env), spec.seed)
    assert config.identity == built.identity
    assert config.label == built.label
    assert resolve(spec, spec.known_facts()).agrees(built)


def test_equal_numbers_are_one_setting() -> None:
    whole, real = (
        resolve(RunSpec("Digits-ALMA-v0", "sm", 4, settings={"learning_rate": rate}), known_facts("Digits-ALMA-v0", {}))
        for rate in (1, 1.0)
    )
    assert whole.identity == real.identity
    assert whole.label == real.label


def test_a_learned_schedule_does_not_grow_a_learner_that_cannot() -> None:
    env = alma_env.make("Digits-ALMA-v0")
    growing = agents.LearnedSchedule(pass_price=1.0, grows=True)
    agent = agents.make("sm", env, policy=growing)
    assert agent.policy == agents.LearnedSchedule(pass_price=1.0)
    assert agent.policy.as_plain_data() == agent.config["policy"]
    assert agents.make("gmoe", env, policy=growing).policy == growing


def test_a_learned_schedule_is_told_that_growth_of_gens_needs_no_flops() -> None:
    env = alma_env.make("Digits-ALMA-v0")
    growing = agents.LearnedSchedule(pass_price=1.0, grows=True)
    agent = agents.make("gens", env, policy=growing)
    assert agent.policy == dataclasses.replace(growing, free_growth=True)
    assert agent.policy.as_plain_data() == growing.as_plain_data() | {"free_growth": True} == agent.config["policy"]
    spec = RunSpec("Digits-ALMA-v0", "gens", policy="learned:pass_price=1")
    assert spec.make_agent(env).policy == agent.policy


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_an_agent_is_built_from_its_record(spec: RunSpec) -> None:
    env = spec.make_env()
    agent = spec.make_agent(env)
    record = json.loads(json.dumps(config_of(env, agent, spec.seed).to_dict()))
    again = build(RunConfig.from_dict(record), env)
    assert again.config == agent.config
    assert again.policy == agent.policy
    first, second = (one.predictor.state_dict() for one in (agent, again))
    assert all((first[name] == second[name]).all() for name in first)


def test_numbers_of_numpy_are_those_of_python() -> None:
    settings = {**FAST, "grow_by": (1, 2), "epochs": np.int64(2), "learning_rate": np.float64(0.5)}
    spec = RunSpec("Digits-ALMA-v0", "gmoe", np.int32(4), wait=np.int64(2), seed=np.int64(1), settings=settings)
    same = {**settings, "epochs": 2, "learning_rate": 0.5, "grow_by": tuple(np.array([1, 2]))}
    assert spec == RunSpec("Digits-ALMA-v0", "gmoe", 4, wait=2, seed=1, settings=same)
    assert spec.digest() == RunSpec("Digits-ALMA-v0", "gmoe", 4, wait=2, seed=1, settings=same).digest()
    assert json.loads(json.dumps(spec.as_dict()))["settings"]["grow_by"] == [1, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": "1"}, "seed='1': must be a whole number; use for example seed=0"),
        ({"seed": -1}, "seed=-1: must be 0 or more; use seed=0"),
        ({"wait": 2.5}, "wait=2.5: must be a whole number or None; use for example wait=5"),
        ({"env": None}, "env=None: must be text; use for example env='Digits-ALMA-v0'"),
        ({"replay": 1}, "replay=1: must be True or False; use for example replay=True"),
        ({"settings": {"width": 8}}, r"settings have width=8: .* use RunSpec\(…, width=8\)"),
    ],
)
def test_a_specification_with_a_wrong_value_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunSpec(**{"env": "Digits-ALMA-v0", **values})


@pytest.mark.parametrize("name", ["id", "facts"])
def test_a_setting_with_the_name_of_an_argument_is_an_unknown_hyper_parameter(name: str) -> None:
    spec = RunSpec("Digits-ALMA-v0", settings={name: 3})
    with pytest.raises(ValueError, match=f"'{name}': agent 'sm' has no such hyper-parameter"):
        resolve(spec, spec.known_facts())


def test_the_sizes_of_a_split_of_emnist_are_known_from_the_stream_and_from_its_id() -> None:
    protocol = {"data": "EMNIST-letters", "ticks": 50}
    stream = DataFacts("EMNIST-letters", protocol, 50, (1, 28, 28), False)
    assert stream.sizes == known_facts("EMNIST-ALMA-v0", {"split": "letters"}).sizes
    assert stream.sizes.classes == 26


def test_an_id_with_its_namespace_is_the_same_specification() -> None:
    assert RunSpec("alma_env/Text-ALMA-v0", settings={"ticks": 2}) == RunSpec("Text-ALMA-v0", settings={"ticks": 2})


@pytest.mark.parametrize(
    "policy",
    [
        agents.FixedWait(2),
        agents.Doubling(),
        agents.Geometric(factor=3.0),
        agents.ValidationTriggered(wait=2),
        agents.BudgetPaced(budget=1e9),
        agents.RandomWait(probability=0.5),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_the_fields_of_a_schedule_are_a_fixed_wait_only_if_they_are_those_of_a_fixed_wait(policy: Any) -> None:
    """Custom agents recorded ``dataclasses.asdict`` of their policy, which lacks the name of the schedule."""
    for record in (dataclasses.asdict(policy), agents.policy_record(policy)):
        agent = AgentConfig({"policy": record})
        assert agent.wait == (2 if isinstance(policy, agents.FixedWait) else None)
        assert agent.label.startswith("agent, ")


@pytest.mark.parametrize(
    "record",
    [
        {"policy": {"wait": "5", "replay": [1], "growth": 2}},
        {"policy": {"wait": {"a": 1}}},
        {"policy": ["a"]},
        {"width": [4], "backbone": 7, "stage": 3},
    ],
    ids=str,
)
def test_a_custom_agent_may_record_anything_under_the_known_names(record: dict[str, Any]) -> None:
    made = fake_run()
    other = dataclasses.replace(made, config={**made.config, "agent": record})
    runs = [made, other]
    (config,) = [run.run_config.agent for run in runs[1:]]
    assert (config.wait, config.replay, config.growth, config.width, config.backbone) == (None,) * 5
    groups, _ = find_seed_groups(runs)  # sorts by width and wait
    assert len(groups) == 2


def test_an_agent_with_another_policy_than_a_schedule_is_built_only_with_this_policy() -> None:
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    config = AgentConfig({**agents.make("sm", env, width=4).config, "policy": "mine.Policy(n=3)"})
    with pytest.raises(ValueError, match=r"policy='mine.Policy\(n=3\)'.*give the policy"):
        build(config, env)
    assert build(config, env, policy=Doubling()).policy == Doubling()


COMPUTATION: list[dict[str, Any]] = [
    {"threads": 7},
    {"versions": {"torch": "3"}},
    {"machine": {"processor": "arm64"}},
    {"batched": 8},
]


def changed(run: FinishedRun, values: dict[str, Any], agent: dict[str, Any] | None = None) -> FinishedRun:
    config = {**run.config, **values, "agent": {**run.config["agent"], **(agent or {})}}
    return dataclasses.replace(run, config=config)


@pytest.mark.parametrize(
    ("values", "agent"),
    [
        *((values, {}) for values in COMPUTATION),
        ({}, {"engine": "compiled"}),
        ({}, {"device": "cuda"}),
        ({}, {"together": True}),
    ],
    ids=str,
)
def test_runs_that_differ_only_in_their_computation_are_one_run_everywhere(
    values: dict[str, Any], agent: dict[str, Any]
) -> None:
    run = fake_run("sm", 4, 5, seed=0, together=False)
    again = changed(run, values, agent)
    assert run.run_config.setting == again.run_config.setting
    (group,), (note,) = find_seed_groups([run, again])
    assert list(group.runs) == [0]
    assert "counted once" in note
    (comparison,) = compare([run, again])
    assert [schedule.cost.n for schedule in comparison.schedules] == [1]
    assert len(groups([recording(run), recording(again)])) == 1


@pytest.mark.parametrize(
    "agent",
    [
        {"width": 8},
        {"members": 3},
        {"stage": {"epochs": 7}},
        {"policy": {"wait": 2, "replay": False, "growth": "never"}},
    ],
    ids=str,
)
def test_runs_with_different_settings_are_different_everywhere(agent: dict[str, Any]) -> None:
    run = fake_run("sm", 4, 5, seed=0)
    other = changed(run, {}, agent)
    assert run.run_config.setting != other.run_config.setting
    assert not run.run_config.agrees(other.run_config) or "members" in agent or "stage" in agent
    groups, notes = find_seed_groups([run, other])
    assert (len(groups), notes) == (2, [])
    compared = compare([run, other])
    assert sum(len(comparison.schedules) for comparison in compared) == 2


def test_a_run_of_own_code_agrees_with_no_run_of_a_method_of_its_name() -> None:
    run = fake_run("sm", 4, 5, seed=0)
    own, other = (changed(run, {}, {"code": {"file": "sm.py", "digest": digest}}) for digest in ("1", "2"))
    assert own.run_config.agrees(own.run_config)
    for one, another in ((run, own), (own, run), (own, other)):
        assert not one.run_config.agrees(another.run_config)


def recording(run: FinishedRun) -> Recording:
    config = run.run_config
    return Recording(
        env=config.env,
        learner=config.agent.id,
        width=config.get("width"),
        settings=settings_of(config),
        schedule=config.agent.policy_text,
        seed=config.seed,
        ticks=config.ticks,
        classes=10,
        error=0.9,
        parameters=1,
        trainings=[],  # type: ignore[arg-type]
    )


def test_the_number_of_ranks_belongs_to_the_setting() -> None:
    run = fake_run("sm", 4, 5, seed=0)
    assert changed(run, {"ranks": 2}).run_config.setting != run.run_config.setting


def test_reading_and_writing_a_record_changes_nothing() -> None:
    record = fake_run("gens", 8, None, policy={"name": "random", "seed": 3, "replay": False, "growth": "every"}).config
    config = RunConfig.from_dict(record)
    assert config.to_dict() == record
    assert config.agent.wait is None
    assert config.identity["agent.policy.seed"] == "3"
    assert "agent.policy.seed" not in config.setting


def test_a_policy_in_a_moved_module_is_the_same_policy() -> None:
    before, after = (
        RunConfig.from_dict({"env": "e", "protocol": {"ticks": 4}, "agent": {"policy": policy}, "seed": 0})
        for policy in ("agents.bidder.wait", "agents.arena.bidder.wait")
    )
    assert before == after


@pytest.mark.parametrize("name", ["env", "protocol", "agent", "seed"])
def test_an_incomplete_record_is_refused(name: str) -> None:
    record = {"env": "e", "protocol": {}, "agent": {"id": "sm"}, "seed": 0}
    record.pop(name)
    with pytest.raises(ValueError, match=f"{name}=None"):
        RunConfig.from_dict(record)


@pytest.mark.parametrize(
    ("record", "label"),
    [
        ({"id": "sm", "width": 4, "policy": {"wait": 5, "replay": True, "growth": "never"}}, "sm 4, wait 5, replay"),
        ({"id": "sm", "width": 4, "policy": {"name": "doubling", "factor": 2.0}}, "sm 4, doubling(factor=2.0)"),
        ({"id": "sm", "width": 4, "policy": "mine.Policy(n=3)"}, "sm 4, Policy(n=3)"),
        ({"id": "mine", "policy": "own_mine.at_end"}, "mine, at_end"),
        ({"id": "mine", "policy": {"patience": 3}}, "mine, policy(patience=3)"),
        ({"anything": 1}, "agent"),
    ],
)
def test_the_label_shows_method_width_and_policy(record: dict[str, Any], label: str) -> None:
    assert AgentConfig(record).label == label
