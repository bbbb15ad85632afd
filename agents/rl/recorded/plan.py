"""The runs from which a surrogate learns, and by which it is judged.

Each structured schedule has a run with every seed of the first half. Runs of one seed have the same initial network and
the same stream, and share most of their luck: schedules are compared seed by seed. The exploring runs all differ: they
try decisions at moments at which no schedule makes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from agents.catalogue.data_facts import facts_for, split_keywords
from agents.catalogue.spec import RunSpec
from agents.policies.choices import window
from agents.rl.recorded.recordings import NO_TEXT

SEEDS = range(100, 120)  # the seeds 0 to 99 are for comparisons
EXPLORING_PER_SEED = 4
FACTORS = (1.2, 1.6, 2.0, 3.0)
STOP = 0.8


def recording_specs(
    stream: str,
    learner: str = "sm",
    widths: Sequence[int | None] = (None,),
    *,
    seeds: Sequence[int] = SEEDS,
    exploring: int = EXPLORING_PER_SEED,
    **settings: object,
) -> list[RunSpec]:
    """Return the runs to record, for each width those of the first seed first.

    Args:
        stream: id of the environment.
        learner: id of the agent. If it grows, exploring runs grow at random, and schedules at every stage.
        widths: widths of the agent; None is that of the recipe.
        seeds: seeds of streams and agents; the first half of them has all structured schedules.
        exploring: number of exploring runs of each seed.
        settings: hyper-parameters of the agent and keywords of the environment, such as ``data`` of your own.

    Raises:
        ValueError: the number of exploring runs is negative, or the stream is text.
        DataUnavailableError: the stream is of data of the user's own, and they are missing.
    """
    if exploring < 0:
        raise ValueError(f"exploring={exploring}: must be 0 or more; the default is {EXPLORING_PER_SEED}")
    facts = facts_for(stream, split_keywords(stream, settings)[0])
    if facts.is_text:
        raise ValueError(f"stream={stream!r}: {NO_TEXT}")
    schedules = structured(facts.ticks)
    return [
        RunSpec(stream, learner, width, policy=policy, seed=seed, settings=settings, record=True)
        for width in widths
        for turn, seed in enumerate(seeds)
        for policy in (
            *(schedules if 2 * turn < len(seeds) else ()),
            *(f"exploring:seed={seed * 1_000 + number}" for number in range(exploring)),
        )
    ]


def structured(ticks: int) -> list[str]:
    """Return 20 schedules for a stream of this length, in the form of ``--policy``; fewer for a short stream.

    They are geometric with and without replay, some with a stop, two of these with restarts at first, and four fixed
    waiting times.
    """
    replays = ("none", "all", f"last:{window(ticks)}")
    geometric = [f"geometric:factor={factor},replay={replay}" for factor, replay in itertools.product(FACTORS, replays)]
    stopped = [f"geometric:factor={FACTORS[1]},replay={replay},stop={STOP}" for replay in replays[:2]]
    restarts = [f"geometric:factor={factor},replay=all,restart=0.1,stop=0.2" for factor in (FACTORS[1], 5)]
    waits = sorted({max(ticks // share, 1) for share in (50, 10, 4, 2)})
    return [*geometric, *stopped, *restarts, *(f"fixed:wait={wait}" for wait in waits)]
