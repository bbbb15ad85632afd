"""What schedules cost in recorded runs of real streams: no surrogate is involved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from agents.analysis.schedules.costs import ScheduleCosts, size_of
from agents.analysis.schedules.names import schedule_name
from agents.rl.recorded.costs import full_pass_of
from agents.rl.recorded.recording import Recording


def recorded_schedules(recordings: Sequence[Recording]) -> list[ScheduleCosts]:
    """Return the schedules with runs of two seeds or more; the recordings differ only in schedule and seed.

    Raises:
        ValueError: no run trains, or a schedule has two runs of one seed.
    """
    full_pass = full_pass_of(recordings)
    found: dict[str, list[Recording]] = defaultdict(list)
    for one in recordings:
        if one.seed in {other.seed for other in found[one.schedule]}:
            raise ValueError(
                f"schedule={one.schedule!r}, seed={one.seed}: two runs of {one.learner!r} on {one.env}, of which a "
                "comparison by seed counts one; write the file again with `alma surrogate fit`, which names the "
                "growth, and leave one of them out if they differ only in computation, such as the engine"
            )
        found[one.schedule].append(one)
    return [
        ScheduleCosts(
            schedule_name(schedule),
            {one.seed: one.cer for one in runs},
            {one.seed: float(one.column("flops").sum()) / full_pass for one in runs},
            {one.seed: size_of(one.at_ticks("parameters", one.parameters).tolist()) for one in runs},
        )
        for schedule, runs in found.items()
        if len({one.seed for one in runs}) > 1
    ]
