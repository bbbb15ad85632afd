"""What is known beforehand of a run's trainings is what the run then does."""

from itertools import pairwise

import pytest

import agents
import alma_env
from agents.trainings import times_the_size, trainings


@pytest.mark.parametrize(
    ("keywords", "known"),
    [
        ({"wait": 2}, [(2, 2, 0), (4, 2, 0), (5, 1, 0)]),
        ({"wait": 2, "replay": True, "growth": "every"}, [(2, 2, 0), (4, 4, 1), (5, 5, 2)]),
        ({"wait": 5, "growth": "at:1,2"}, [(5, 5, 0)]),
        ({"wait": 1, "growth": "at:2,4"}, [(1, 1, 0), (2, 1, 1), (3, 1, 1), (4, 1, 2), (5, 1, 2)]),
        ({"wait": 4, "growth": "stall"}, [(4, 4, 0), (5, 1, 0)]),
    ],
)
def test_trainings_come_at_the_waiting_time_and_at_the_end(keywords, known):
    made = trainings(5, **keywords)
    assert [(one.tick, one.mega_batches, one.grown) for one in made] == known
    assert [one.grows for one in made] == [b > a for a, b in pairwise([0, *(grown for _, _, grown in known)])]


@pytest.mark.parametrize(("grow_by", "sizes"), [(2, [1, 2, 3]), ((1, 3), [1, 1.5, 3]), ((2,), [1, 2, 3])])
def test_a_mixture_grows_as_is_known_beforehand(grow_by, sizes):
    env = alma_env.make("Digits-ALMA-v0", ticks=5)
    agent = agents.make("gmoe", env, width=32, wait=2, init_experts=2, grow_by=grow_by, epochs=1)
    ledger = agents.run(env, agent, 0)
    made = trainings(5, 2, growth="every")
    held = [ledger[one.tick].parameters for one in made]
    expected = [times_the_size(agent.config, "mlp", one.grown) for one in made]
    assert [size / held[0] for size in held] == pytest.approx(expected, rel=0.1)
    assert expected == sizes
