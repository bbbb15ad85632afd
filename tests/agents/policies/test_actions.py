"""Actions stand for decisions."""

from __future__ import annotations

import pytest

from agents.policies.actions import Actions


@pytest.mark.parametrize("kind", ["train", "flat"])
def test_the_truth_value_of_an_action_is_its_number(kind):
    actions = Actions(kind, grows=True)
    for value in (False, True):
        assert actions.decision(value) == actions.decision(int(value))
    assert actions.decision(True).train


@pytest.mark.parametrize("name", ["replay", "grow"])
def test_replay_and_growth_are_truth_values(name):
    with pytest.raises(ValueError, match=f"{name}='no': must be True or False; use for example {name}=False"):
        Actions("train", grows=True, **{name: "no"})
