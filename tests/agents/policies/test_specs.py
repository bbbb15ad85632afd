"""Policies as text on a command line."""

from __future__ import annotations

import pytest

from agents import Doubling, RandomWait
from agents.policies import SCHEDULES
from agents.policies.specs import policy_from


def test_every_schedule_has_a_name_and_its_fields_can_be_given():
    assert {type(policy_from(name)) for name in SCHEDULES} == set(SCHEDULES.values())
    assert policy_from("random:probability=0.5,seed=3,replay=true") == RandomWait(probability=0.5, seed=3, replay=True)
    assert policy_from("doubling", grows=True) == Doubling(growth="every")
    assert policy_from("doubling:growth=every:2", grows=True) == Doubling(growth="every:2")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sometimes", "--policy sometimes.*fixed, geometric, doubling, validation, budget, random.*zip"),
        ("doubling:by=2", "'by=2'.*NAME:field=value.*replay, growth, stop, restart, factor, first"),
        ("doubling:factor", "--policy doubling:factor: the field factor has no value; write factor=VALUE"),
        ("doubling:first=5,first=6", "the field first is given twice"),
        ("own.py:Mine", "own.py:Mine: a policy of your own belongs to an agent.*--agent FILE.py:FUNCTION"),
        ("nowhere.zip", r"policy='nowhere.zip'.*not found.*model\.save"),
    ],
)
def test_an_unknown_policy_or_field_raises_with_the_choices(spec, message):
    with pytest.raises(ValueError, match=message):
        policy_from(spec)


def test_growth_at_several_ticks_is_one_field():
    policy = policy_from("doubling:growth=at:5,10,first=2", grows=True)
    assert (policy.growth, policy.first) == ("at:5,10", 2)
    assert policy_from("doubling:first=2,growth=at:5,10", grows=True) == policy
