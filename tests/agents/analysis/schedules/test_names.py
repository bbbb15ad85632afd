"""Names of schedules: what a run records, and what ``--policy`` takes."""

from __future__ import annotations

import pytest

from agents.analysis.schedules.names import DOUBLING, RECOMMENDED, plain_wait, schedule_name
from agents.catalogue.agent_config import AgentConfig
from agents.policies.specs import policy_from, spec_of
from agents.rl.recorded.plan import structured
from agents.rl.recorded.selection import shipped_runs
from agents.rl.surrogates.tuning import candidates

OTHERS = (
    "validation:least=0.02",
    "validation:wait=3,factor=1.5,restart=1",
    "budget:budget=2500000000000",
    "random:probability=0.05,seed=2,replay=all",
    "doubling:first=5",
    "doubling",
)


def recorded(policy: object) -> str:
    return AgentConfig({"policy": policy.as_plain_data()}).policy_text


@pytest.mark.parametrize("ticks", [20, 500])
def test_the_text_of_a_run_and_the_option_name_the_same_schedule(ticks):
    texts = [*structured(ticks), *candidates(ticks, replays=True, restarts=True), *OTHERS]
    for text in texts:
        policy = policy_from(text)
        name = schedule_name(recorded(policy))
        assert name == spec_of(policy)
        assert policy_from(name) == policy
    assert len({schedule_name(recorded(policy_from(text))) for text in texts}) == len({*map(policy_from, texts)})


def test_growth_that_is_not_the_usual_one_is_named():
    for text in candidates(500, replays=True, grows=True):
        policy = policy_from(text, grows=True)
        name = spec_of(policy, usual_growth="every")
        assert policy_from(name, grows=True) == policy
        assert ("growth" in name) == (policy.growth != "every")
        growth = "" if policy.growth == "every" else f", growth {policy.growth}"
        assert schedule_name(recorded(policy) + growth) == name
    assert schedule_name("geometric(factor=2.0, first=1), growth at:5,10") == "geometric:factor=2,growth=at:5,10"


def test_equal_numbers_have_one_text():
    assert {schedule_name(f"geometric(factor={two}, first=1)") for two in ("2", "2.0")} == {DOUBLING[1]}
    assert schedule_name("geometric(factor=1.6, first=1, stop=0.8)") == RECOMMENDED == "geometric:factor=1.6,stop=0.8"
    assert plain_wait(schedule_name("wait 10, growth every:2")) == 10
    assert plain_wait(schedule_name("wait 10, replay")) is None
    assert plain_wait("doubling") is None


@pytest.mark.parametrize(
    "text",
    [
        "learned-schedule(digest=b229c571dc77948e, memory_price=0.0, pass_price=10.0)",
        "exploring(seed=100000)",
        "fixed(patience=3)",  # a policy of the user with the name of a schedule
        "doubling(factor=0.5)",
        "at every tick",
        "every_other_tick",
    ],
)
def test_other_policies_keep_their_text(text):
    assert schedule_name(text) == text


def test_the_recorded_schedules_of_the_package_are_those_of_the_plan():
    runs = [run for run in shipped_runs("MNIST-ALMA-v0", decisions=True) if (run.learner, run.width) == ("sm", 4)]
    names = {schedule_name(run.schedule) for run in runs if not run.schedule.startswith("exploring")}
    assert names == {spec_of(policy_from(text)) for text in structured(500)}
