"""An episode charges the agent's work to the meter, yields each deployed predictor, and ends with the environment."""

from __future__ import annotations

from functools import partial

import agents
import alma_env
from agents.runs.episode import play, play_tick
from alma_env import AlmaEnv

from ..ledgers import without_seconds


def begin() -> tuple[AlmaEnv, agents.AnytimeAgent, dict]:
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    agent = agents.make("sm", env, width=4, epochs=1, wait=2)
    observation, _ = env.reset(seed=0, options={"predictor": agent.predictor})
    return env, agent, observation


def test_an_episode_has_the_ledger_of_the_loop_that_the_documentation_teaches() -> None:
    env, agent, observation = begin()
    taught, other, arrived = begin()
    predictors = list(play(env, agent, observation))
    assert [predictor is None for predictor in predictors] == [True, False, True, False]
    assert predictors[-1] is agent.predictor
    while not taught.done:
        with taught.meter:
            predictor = other.observe(arrived)
        arrived, *_ = taught.step(predictor)
    assert without_seconds(env.ledger) == without_seconds(taught.ledger)
    assert env.ledger.comp > 0


def test_an_episode_can_be_left_and_continued_between_two_ticks() -> None:
    whole, agent, observation = begin()
    assert len(list(play(whole, agent, observation))) == 4
    env, agent, observation = begin()
    assert next(play(env, agent, observation)) is None
    _, (observation, _, terminated, truncated, _) = play_tick(env, partial(agent.observe, env.observation()))
    assert (env.tick, agent.tick, terminated, truncated) == (2, 2, False, False)
    assert len(list(play(env, agent, observation))) == 2
    assert list(play(env, agent, observation)) == []
    assert without_seconds(env.ledger) == without_seconds(whole.ledger)
