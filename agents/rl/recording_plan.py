"""The runs from which a surrogate learns: exploring runs, and the schedules that a policy is compared with.

Each seed of the stream has runs of its own, so no schedule occurs with all seeds, and none with one seed only.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from agents.catalogue.spec import RunSpec

SEEDS = range(100, 120)  # the seeds 0 to 99 are for comparisons
RUNS_PER_SEED = 10
STRUCTURED_PER_SEED = 3  # the others explore
WAITS = (1, 1 / 100, 1 / 50, 1 / 20, 1 / 10, 1 / 4, 1.0)  # mega-batches; below 1 and as 1.0 shares of the stream
FACTORS = (1.2, 1.6, 2.0, 3.0)
STOPS = (1.0, 0.8)


def recording_specs(
    stream: str,
    learner: str = "sm",
    widths: Sequence[int | None] = (None,),
    *,
    seeds: Sequence[int] = SEEDS,
    runs_per_seed: int = RUNS_PER_SEED,
    **settings: object,
) -> list[RunSpec]:
    """Return the runs to record, for each width those of the first seed first.

    Args:
        stream: id of the environment.
        learner: id of the agent. If it grows, exploring runs grow at random, and schedules at every stage.
        widths: widths of the agent; None is that of the recipe.
        seeds: seeds of streams and agents.
        runs_per_seed: at least 1. Of ten runs, three have a schedule, and seven explore.
        settings: hyper-parameters of the agent and keywords of the environment.

    Raises:
        ValueError: a number of runs is out of range.
    """
    if runs_per_seed < 1:
        raise ValueError(f"runs_per_seed={runs_per_seed}: must be at least 1; use {RUNS_PER_SEED}")
    schedules = structured(RunSpec(stream, learner, settings=settings).known_facts().ticks)
    specs = []
    for width in widths:
        rotation = itertools.cycle(schedules)
        for seed in seeds:
            exploring = (f"exploring:seed={seed * 1_000 + number}" for number in itertools.count())
            for number in range(runs_per_seed):
                policy = next(rotation if number % RUNS_PER_SEED < STRUCTURED_PER_SEED else exploring)
                specs.append(RunSpec(stream, learner, width, policy=policy, seed=seed, settings=settings, record=True))
    return specs


def structured(ticks: int) -> list[str]:
    """Return schedules for a stream of this length, in the form of ``--policy``.

    They alternate between kinds, so that a part of them has all kinds.
    """
    waits = dict.fromkeys(wait if wait is WAITS[0] else max(round(wait * ticks), 1) for wait in WAITS)
    fixed = [f"fixed:wait={wait}" for wait in waits]
    fixed += [f"fixed:wait={wait},replay=all" for wait in waits if wait >= ticks / 20]
    replays = ("none", "all", f"last:{max(ticks // 10, 1)}")
    geometric = [
        f"geometric:factor={factor},replay={replay},stop={stop}"
        for stop, replay, factor in itertools.product(STOPS, replays, FACTORS)
    ]
    pairs = itertools.zip_longest(fixed, geometric[::2], geometric[1::2])
    return [schedule for group in pairs for schedule in group if schedule is not None]
