"""The FLOPs of a full pass: the unit in which the second decision environments price FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.catalogue.build import make
from agents.policies import Decision
from alma_env import AlmaEnv
from alma_env.metering.meter import Meter


def full_pass_flops(learner: str, env: AlmaEnv, settings: Mapping[str, Any]) -> int:
    """Return the FLOPs of training the untrained network once on each mega-batch, validation included.

    It is measured: a throw-away agent trains on D_1 of the stream of seed 0. With patience, the length of a training
    depends on the stream, and the unit of a price must not.

    Args:
        learner: id of the agent.
        env: the environment; it does not change.
        settings: hyper-parameters of the agent.
    """
    trial = make(learner, env, **settings)
    stream = AlmaEnv(env.data, env.ticks, valid_fraction=env.valid_fraction, partition=env.partition)
    first, _ = stream.reset(seed=0)
    trial.gather(first)
    meter = Meter()
    with meter:
        trial.carry_out(Decision(train=True))
    return int(meter.total) * env.ticks
