"""What a verified run looks like from outside, against what its submission says of itself.

The FLOPs of training are metered inside the sandbox, by code that a cheater can patch. They are held against what
cannot be patched: the parameters that crossed, the inference FLOPs of the programs, and the CPU time that the kernel
accounted. A finding is a reason for a person to look, with its numbers; it is no proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from alma_env import Ledger
from leaderboard.play import Played
from leaderboard.verification import Finding

# One core's floating-point operations per second, far above what any core does: FLOPs that take less CPU time than this
# were not executed.
FASTEST_CORE = 1e12
# An honest learner reaches at least this many FLOPs per CPU second while it trains: the smallest networks of the paper
# (some thousand multiply-adds per example), trained by the plain loop, are at 30 million or more.
SLOWEST_TRAINING = 3e6
# CPU seconds per run that no FLOPs explain: imports, compiling, tracing.
OVERHEAD_SECONDS = 300.0


def audit(played: Played) -> list[Finding]:
    """All findings about one run, the gravest first."""
    found = [*_failure(played), *_free_changes(played), *_time(played), *_memory_hidden(played), *_declared(played)]
    order = {"fatal": 0, "suspicious": 1, "info": 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def claims(claimed: Mapping[int, Ledger], verified: Mapping[int, Ledger]) -> list[Finding]:
    """Ledgers that came with the submission, against those of its verification.

    Another machine may round otherwise, so that scores differ a little; what is shown is the verified one in any case.
    """
    found = []
    for seed, mine in claimed.items():
        if seed not in verified:
            continue
        said, seen = mine.score(), verified[seed].score()
        for name, allowed in (("cer", 0.05), ("mem", 0.0), ("comp", 0.02)):
            a, b = float(getattr(said, name)), float(getattr(seen, name))
            if abs(a - b) > allowed * max(abs(b), 1e-12):
                found.append(
                    Finding(
                        "suspicious",
                        "claim",
                        f"the submission claims {name} {a:.6g}; running it again gave {b:.6g}",
                        seed,
                    )
                )
    return found


def _failure(played: Played) -> Iterator[Finding]:
    if played.failure is not None:
        yield Finding("fatal", "failed", played.failure)


def _free_changes(played: Played) -> Iterator[Finding]:
    """Parameters that changed for less than the cheapest step that could have changed them."""
    for row, seen in zip(played.ledger, played.observed, strict=True):
        if not (seen.tick and seen.deployed and seen.changed):
            continue
        # A step on one example is a forward and at least one backward product of the same size.
        cheapest = 2 * row.inference_flops
        spent = _spent_since_last_deployment(played, seen.tick)
        if spent < cheapest:
            yield Finding(
                "suspicious",
                "free-training",
                f"tick {seen.tick}: {seen.changed:,} values of the predictor changed for {spent:,} "
                f"FLOPs, and a training step on one example would cost at least {cheapest:,.0f}",
            )
            return  # one is enough to have it looked at


def _spent_since_last_deployment(played: Played, tick: int) -> int:
    spent = 0
    for seen in reversed(played.observed[: tick + 1]):
        spent += seen.declared
        if seen.deployed and seen.tick < tick:
            return spent - seen.declared
    return spent


def _time(played: Played) -> Iterator[Finding]:
    """FLOPs that were said to be spent, against the CPU time that was."""
    known = [seen.cpu_seconds for seen in played.observed if seen.cpu_seconds is not None]
    if len(known) < len(played.observed) - 1:
        yield Finding("info", "no-cpu-time", "CPU time is not accounted on this machine")
        return
    cpu, said = math.fsum(known), sum(seen.declared for seen in played.observed)
    if said > FASTEST_CORE * cpu:
        yield Finding(
            "suspicious",
            "too-fast",
            f"{said:,} FLOPs in {cpu:.1f} CPU seconds, which no core can do",
        )
    most = OVERHEAD_SECONDS + said / SLOWEST_TRAINING
    if cpu > most:
        yield Finding(
            "suspicious",
            "too-slow",
            f"{cpu:.0f} CPU seconds for {said:,} FLOPs; an honest run of so many takes at most "
            f"{most:.0f}: something may have been computed beside the meter",
        )


def _memory_hidden(played: Played) -> Iterator[Finding]:
    """More in buffers, which Mem does not count, than in parameters."""
    worst = max(played.ledger, key=lambda row: row.buffers - row.parameters, default=None)
    if worst is not None and worst.buffers > max(worst.parameters, 1000):
        yield Finding(
            "suspicious",
            "buffers",
            f"tick {worst.tick}: {worst.buffers:,} scalars in buffers beside {worst.parameters:,} "
            "parameters: Mem counts parameters alone",
        )


def _declared(played: Played) -> Iterator[Finding]:
    """FLOPs that the meter could not count and the learner declared."""
    reasons = {reason for row in played.ledger for reason in row.declared}
    if reasons:
        yield Finding("info", "declared", f"FLOPs declared by hand: {'; '.join(sorted(reasons))[:500]}")
