"""The effort that is known before a run equals the effort of the run."""

import dataclasses
import math
from itertools import pairwise

import pytest

import agents
import alma_env
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.data_facts import facts_of
from agents.catalogue.effort import effort_of, networks, planned_stages, size_ratio, training_examples
from agents.catalogue.spec import RunSpec, resolve
from agents.networks.firefly_network import firefly_parameter_count

SPEC = RunSpec("Digits-ALMA-v0", "sm", 4, wait=2, settings={"epochs": 2, "ticks": 4})


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({"wait": 2}, [(2, 2, 0), (4, 2, 0), (5, 1, 0)]),
        ({"wait": 2, "replay": True, "growth": "every"}, [(2, 2, 0), (4, 4, 1), (5, 5, 2)]),
        ({"wait": 5, "growth": "at:1,2"}, [(5, 5, 0)]),
        ({"wait": 1, "growth": "at:2,4"}, [(1, 1, 0), (2, 1, 1), (3, 1, 1), (4, 1, 2), (5, 1, 2)]),
        ({"wait": 4, "growth": "stall"}, [(4, 4, 0), (5, 1, 0)]),
    ],
)
def test_stages_are_planned_at_every_waiting_time_and_at_the_last_tick(keywords, expected):
    stages = planned_stages(5, **keywords)
    assert [(stage.tick, stage.mega_batches, stage.growth_steps) for stage in stages] == expected
    assert [stage.steps for stage in stages] == [b - a for a, b in pairwise([0, *(steps for _, _, steps in expected)])]


@pytest.mark.parametrize(("grow_by", "sizes"), [(2, [1, 2, 3]), ((1, 3), [1, 1.5, 3]), ((2,), [1, 2, 3])])
def test_a_mixture_grows_by_the_expected_ratio(grow_by, sizes):
    env = alma_env.make("Digits-ALMA-v0", ticks=5)
    agent = agents.make("gmoe", env, width=32, wait=2, init_experts=2, grow_by=grow_by, epochs=1)
    ledger = agents.run(env, agent, 0)
    stages = planned_stages(5, 2, growth="every")
    parameters = [ledger[stage.tick].parameters for stage in stages]
    expected = [size_ratio(AgentConfig(agent.config), stage.growth_steps) for stage in stages]
    assert [size / parameters[0] for size in parameters] == pytest.approx(expected, rel=0.1)
    assert expected == sizes


@pytest.mark.parametrize("id", ["ff", "gmoe", "gens", "moe"])
def test_an_agent_of_own_code_is_no_method_of_the_same_name(id):
    own = AgentConfig({"id": id, "code": {"file": f"{id}.py"}, "members": "all", "init_experts": 3})
    assert (size_ratio(own, 2), networks(own, 2)) == (1, 1)


def test_own_code_that_makes_an_agent_of_the_paper_has_its_method():
    env = alma_env.make("Digits-ALMA-v0", ticks=5)
    agent = AgentConfig({**agents.make("gmoe", env, width=4).config, "code": {"file": "mine.py"}})
    assert size_ratio(agent, 2) == networks(agent, 2) == 3


FLAT = {"tree": False, "init_experts": 2}


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        dataclasses.replace(SPEC, settings={**SPEC.settings, "valid_fraction": 0.29}),
        dataclasses.replace(SPEC, agent="gmoe", settings={**SPEC.settings, **FLAT, "growth": "never"}),
        dataclasses.replace(SPEC, agent="moe", settings={**SPEC.settings, **FLAT, "init_experts": 3}),
    ],
    ids=str,
)
def test_the_effort_of_a_fixed_waiting_time_equals_the_effort_of_the_run(spec):
    env = spec.make_env()
    facts = facts_of(env)
    config = resolve(spec, facts)
    effort = effort_of(config, facts)
    agent = spec.make_agent(env)
    ledger = agents.run(env, agent, 0)
    assert effort.training_flops == ledger.score().paper_flops
    assert [stage.tick for stage in effort.stages] == [stage.tick for stage in agent.history]
    examples = 2 * sum(stage.examples for stage in agent.history)
    assert effort.examples == training_examples(env, config.agent) == examples
    assert effort.steps == sum(2 * math.ceil(stage.examples / 128) for stage in agent.history)
    assert effort.parameters == ledger[-1].parameters


@pytest.mark.parametrize(
    "settings", [{"init_experts": 1, "tree": False}, {"init_experts": 2, "tree": False}, {}], ids=str
)
def test_the_parameters_and_training_of_a_grown_mixture_are_known(settings):
    spec = dataclasses.replace(SPEC, agent="gmoe", settings={**SPEC.settings, **settings, "grow_by": 1, "ticks": 8})
    env = spec.make_env()
    facts = facts_of(env)
    effort = effort_of(resolve(spec, facts), facts)
    ledger = agents.run(env, spec.make_agent(env), 0)
    assert effort.parameters == ledger[-1].parameters
    assert effort.training_flops == pytest.approx(ledger.score().paper_flops, rel=0.01)


FIREFLY = RunSpec("CIFAR10-ALMA-v0", "ff", 4, wait=10, settings={"growth": "every"})


def effort_with(spec: RunSpec, **settings):
    facts = spec.known_facts()
    return effort_of(resolve(dataclasses.replace(spec, settings={**spec.settings, **settings}), facts), facts)


@pytest.mark.parametrize("budget", ["neurons", "parameters"])
def test_firefly_grows_by_neurons_or_by_parameters(budget):
    effort = effort_with(FIREFLY, budget=budget)
    sizes = {
        "neurons": firefly_parameter_count([13] * 16, 10),
        "parameters": 3.25 * firefly_parameter_count([4] * 16, 10),
    }
    assert effort.parameters == pytest.approx(sizes[budget])
    assert effort.training_flops > effort_with(FIREFLY, growth="never").training_flops


def test_each_growth_step_of_firefly_and_each_point_of_its_score_is_counted():
    spec = dataclasses.replace(FIREFLY, wait=50)
    one, two = (effort_with(spec, growth=growth).growth_flops for growth in ("at:60", "at:60,70"))
    assert two > 2 * one > 0
    assert effort_with(spec, growth="at:60", score_points=4).growth_flops == pytest.approx(2.5 * one)


def test_the_parameters_of_a_text_model_have_the_positions_of_its_sequences():
    spec = RunSpec("Text-ALMA-v0", "sm", 4, wait=1, settings={"ticks": 2, "sequence_length": 32})
    env = spec.make_env()
    facts = facts_of(env)
    predictor = spec.make_agent(env).predictor
    sizes = [parameter.numel() for parameter in predictor.parameters()]
    assert effort_of(resolve(spec, facts), facts).parameters == sum(sizes)


@pytest.mark.parametrize("of", ["sm", "ens", "umix"])
def test_the_effort_of_an_oracle_is_that_of_the_method_that_it_trains(of):
    spec = RunSpec("Digits-ALMA-v0", "oracle", 4, settings={"epochs": 1, "ticks": 4, "of": of})
    env = spec.make_env()
    facts = facts_of(env)
    effort = effort_of(resolve(spec, facts), facts)
    ledger = agents.run(env, spec.make_agent(env), 0)
    assert effort.training_flops == ledger.score().paper_flops
    members = 1 if of == "sm" else 5
    assert effort.parameters * members == ledger[-1].parameters


def test_the_effort_of_another_policy_is_unknown():
    spec = RunSpec("Digits-ALMA-v0", "gens", 4, policy="doubling:first=2")
    facts = spec.known_facts()
    with pytest.raises(ValueError, match="policy=.*only for a fixed waiting time"):
        effort_of(resolve(spec, facts), facts)
