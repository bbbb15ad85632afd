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

    It is measured: a throw-away agent trains for one epoch on D_1, or on text for one update. With patience, it trains
    on D_1 until the training ends.

    Args:
        learner: id of the agent.
        env: the environment, after its first ``reset``.
        settings: hyper-parameters of the agent, all fields of ``StageSettings`` among them.
    """
    repeated = "epochs" if settings["updates"] is None else "updates"
    repeats = 1 if settings["patience"] is not None else int(settings[repeated])
    trial = make(learner, env, **{**settings, repeated: int(settings[repeated]) // repeats})
    trial.gather(env.megabatch(1))
    meter = Meter()
    with meter:
        trial.carry_out(Decision(train=True))
    return int(meter.total) * repeats * env.ticks
