"""The witness outside: how many FLOPs the CPU seconds of a sandbox could have computed.

The contestant reports its FLOPs, and the kernel counts its CPU seconds. An honest run needs seconds to start, to trace
its predictors and to send them, and computes in all other seconds at a rate far above the *floor rate*. The floor rate
is a twentieth of the rate at which this machine trains a tiny network in a plain loop, one example at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache

import torch
from torch import nn

from alma_env.metering.dispatch_mode import CountingMode
from alma_env.metering.tally import Tally
from leaderboard.verification.evidence import Evidence

FLOOR_SHARE = 0.05
STEPS = 200
START_SECONDS = 20.0  # libraries that are imported late, and compilers that an agent starts
TICK_SECONDS = 0.25  # messages, copies, fingerprints
NODE_SECONDS = 0.01  # tracing, for each operation of a new graph
SCALARS_PER_SECOND = 1e8  # writing a program


@cache
def floor_rate() -> float:
    """Return FLOPs per CPU second that every honest run reaches: measured once, on this machine."""
    network = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    x, y = torch.zeros(1, 64), torch.zeros(1, dtype=torch.int64)

    def step() -> None:
        network.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)  # type: ignore[arg-type]

    tally = Tally("training")
    with CountingMode(tally):
        step()
    start = time.thread_time()
    for _ in range(STEPS):
        step()
    return FLOOR_SHARE * STEPS * tally.total() / (time.thread_time() - start)


def overhead_seconds(evidence: Sequence[Evidence]) -> float:
    """Return the CPU seconds that a run may take without FLOPs."""
    nodes = sum(tick.traced for tick in evidence)
    sent = sum(tick.stored for tick in evidence if tick.deployed)
    return START_SECONDS + TICK_SECONDS * len(evidence) + NODE_SECONDS * nodes + sent / SCALARS_PER_SECOND


def unexplained_seconds(evidence: Sequence[Evidence], cpu_seconds: float) -> float:
    """Return the CPU seconds that neither the overhead nor the reported FLOPs explain; negative if there are none."""
    flops = sum(tick.reported_flops for tick in evidence)
    return cpu_seconds - overhead_seconds(evidence) - flops / floor_rate()
