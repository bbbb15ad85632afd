"""A step or a reset that is refused changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import data_equivalence

from alma_env import PredictorError, UnmeteredTrainingError
from alma_env.errors import DivergedError

from ..predictors import Returning
from .arenas import Linear, make, rows

NAN = Returning(lambda x: torch.full((len(x), 10), torch.nan))


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (3, TypeError, "agent 'b'.*must be a torch.nn.Module, or None"),
        (NAN, PredictorError, "agent 'b'.*NaN"),
        (Linear(9), UnmeteredTrainingError, "agent 'b'.*while the meter was not running"),
    ],
)
def test_a_refused_action_does_not_change_the_arena(bad, error, message):
    env = make(["a", "b", "c"])
    env.reset(seed=0)
    env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    before, ledgers = env.state_dict(), {agent: rows(ledger) for agent, ledger in env.ledgers.items()}
    fine = {agent: env.action_space(agent).sample() for agent in ("a", "c")}
    with pytest.raises(error, match=message):
        env.step(fine | {"b": bad})
    assert env.state_dict() == before
    assert {agent: rows(ledger) for agent, ledger in env.ledgers.items()} == ledgers
    env.step(fine | {"b": None})
    assert env.tick == 2


def test_step_needs_the_actions_of_exactly_the_remaining_agents():
    env = make(parameter_budget={"b": 10})
    with pytest.raises(RuntimeError, match=r"the episode has not started; call reset\(\) first"):
        env.step({"a": None, "b": None})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="no action of agent 'b'"):
        env.step({"a": None})
    with pytest.raises(ValueError, match="agent 'd', which is unknown"):
        env.step({"a": None, "b": None, "d": None})
    env.step({"a": None, "b": env.action_space("b").sample()})
    with pytest.raises(ValueError, match="agent 'b', which has left the arena"):
        env.step({"a": None, "b": None})
    while env.agents:
        env.step({"a": None})
    with pytest.raises(RuntimeError, match=r"the episode is over; call reset\(\) first"):
        env.step({})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"options": {"predictors": {"a": Linear(), "b": NAN}}}, PredictorError, "agent 'b'.*NaN"),
        ({"options": {"predictors": {"a": Linear(), "b": 3}}}, TypeError, "agent 'b'.*torch.nn.Module"),
        ({"options": {"predictors": {"c": Linear()}}}, ValueError, "predictors of agent 'c': unknown agent"),
        ({"options": {"predictors": Linear()}}, TypeError, "must be a dictionary by agent"),
        ({"options": [1]}, TypeError, r"options=\[1\]: must be a dict, for example {'predictors'"),
        ({"options": {"bids": {"a": 1}}}, ValueError, "only with a shared budget"),
        ({"seed": -1, "options": {"predictors": {"a": Linear()}}}, ValueError, "seed=-1"),
    ],
)
def test_a_refused_reset_does_not_change_the_episode(arguments, error, message):
    env = make()
    env.reset(seed=0, options={"predictors": {"a": Linear(5)}})
    env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    before = env.state_dict()
    with pytest.raises(error, match=message):
        env.reset(**arguments)
    assert env.state_dict() == before


def test_a_predictor_that_diverged_is_named_with_one_remedy():
    env = make()
    env.reset(seed=0)
    with pytest.raises(DivergedError, match="agent 'b'.*NaN") as caught:
        env.step({"a": None, "b": NAN})
    assert str(caught.value).count("deploy another predictor") == 1
    assert "deploy" not in caught.value.what


def test_a_numpy_integer_is_a_seed_and_another_type_is_refused():
    env = make()
    found, _ = env.reset(seed=np.int64(3))
    again, _ = env.reset(seed=3)
    assert data_equivalence(found, again)
    with pytest.raises(TypeError, match="seed"):
        env.reset(seed="3")


def test_a_megabatch_or_a_state_that_does_not_exist_is_refused():
    env = make()
    with pytest.raises(ValueError, match=r"tick=1: no mega-batch has arrived yet; call reset\(\) first"):
        env.megabatch(1)
    env.reset(seed=0)
    with pytest.raises(TypeError, match="tick"):
        env.megabatch("1")
    with pytest.raises(ValueError, match=r"state={}: must be what state_dict\(\) returned, of an arena"):
        env.load_state_dict({})


def test_unknown_options_are_ignored_with_a_warning():
    with pytest.warns(UserWarning, match=r"\['predictor'\] are ignored.*'predictors' and 'bids'"):
        make().reset(seed=0, options={"predictor": Linear()})
