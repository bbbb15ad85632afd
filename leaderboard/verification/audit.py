"""What a verified run looks like from outside, against what its submission says of itself.

The FLOPs of training are metered inside the sandbox, by code that a cheater can patch. They are held against what
cannot be patched: the parameters that crossed, the inference FLOPs of the programs, and the CPU time that the kernel
accounted. A finding is a reason for a person to look, with its numbers; it is no proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from alma_env import Ledger
from alma_env.shared import SHARED
from leaderboard.play import Played
from leaderboard.verification import Finding

# One core's floating-point operations per second, far above what any core does: FLOPs that take less CPU time than this
# were not executed.
FASTEST_CORE = 1e12
# An honest learner reaches at least this many FLOPs per CPU second while it trains: the smallest networks of the paper
# (some thousand multiply-adds per example), trained by the plain loop, are at 30 million or more.
SLOWEST_TRAINING = 3e6
# CPU seconds that no FLOPs explain, in a run and in a tick: compiling, tracing. Imports come before the first tick.
OVERHEAD_SECONDS, OVERHEAD_OF_A_TICK = 30.0, 0.5
# Of the error of the uniform guess: an untrained network is not below that.
LUCK = 0.7
# Numbers that a program has as arguments beside its parameters: shapes, axes, constants of normalisation.
FEW_LITERALS = 500


def audit(played: Played) -> list[Finding]:
    """All findings about one run, the gravest first."""
    found = [
        *_failure(played),
        *_free_changes(played),
        *_known_before(played),
        *_free_inference(played),
        *_mixed(played),
        *_time(played),
        *_paper_flops(played),
        *_memory_hidden(played),
        *_declared(played),
    ]
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
    most = OVERHEAD_SECONDS + OVERHEAD_OF_A_TICK * len(known) + said / SLOWEST_TRAINING
    if cpu > most:
        yield Finding(
            "suspicious",
            "too-slow",
            f"{cpu:.0f} CPU seconds for {said:,} FLOPs; an honest run of so many takes at most "
            f"{most:.0f}: something may have been computed beside the meter",
        )


def _known_before(played: Played) -> Iterator[Finding]:
    """Right answers before anything was computed on the data that they could come from."""
    classes = round(1 / max(1 - played.guess, 1e-9))
    spent = 0
    for row in played.ledger:
        spent += row.comp
        # Whoever tells classes apart has looked at an example of each. Untrained networks come nowhere near.
        least = 2 * row.inference_flops * classes
        if row.digest and row.error < LUCK * played.guess and spent <= least:
            yield Finding(
                "suspicious",
                "known-before",
                f"tick {row.tick}: error {row.error:.3f}, of guessing {played.guess:.3f}, after {spent:,} FLOPs; "
                f"a training step on an example of each class would cost {least:,.0f}: the submission may have "
                "brought what it knows",
            )
            return


def _free_inference(played: Played) -> Iterator[Finding]:
    """Answers that are computed by operations that are free."""
    for row, seen in zip(played.ledger, played.observed, strict=True):
        # Scaling the inputs, activations and sums are far less than that in an honest network.
        if seen.elements > row.inference_flops + 10 * played.input_size:
            yield Finding(
                "suspicious",
                "free-inference",
                f"tick {row.tick}: {seen.elements:,.0f} elements per example go through operations that are free, and "
                f"{row.inference_flops:,.0f} FLOPs are counted: products may be made of the former",
            )
            return


def _mixed(played: Played) -> Iterator[Finding]:
    """Predictors that learn from the test inputs that they are asked about together."""
    worst = max(zip(played.ledger, played.observed, strict=True), key=lambda pair: pair[1].mixed, default=(None, None))[
        1
    ]
    if worst is not None and worst.mixed > 0.01:
        yield Finding(
            "suspicious",
            "batch-dependent",
            f"tick {worst.tick}: {worst.mixed:.0%} of the test examples are answered otherwise in another batch; a "
            "predictor must answer each by itself, without random numbers",
        )


def _paper_flops(played: Played) -> Iterator[Finding]:
    """The paper's count is the contestant's word alone, and within a factor of what was executed in training."""
    said, executed = (sum(getattr(row, name) for row in played.ledger) for name in ("paper_flops", "comp"))
    if said < executed / 10:
        yield Finding(
            "suspicious",
            "paper-flops",
            f"{said:,} FLOPs by the paper's rule of thumb and {executed:,} executed: the rule gives about as many",
        )


def _memory_hidden(played: Played) -> Iterator[Finding]:
    """Numbers of a program that Mem, which counts parameters alone, does not have."""
    for row, seen in zip(played.ledger, played.observed, strict=True):
        hidden = row.buffers + seen.wide + max(seen.literals - FEW_LITERALS, 0)
        # Honest ones scale the inputs, and keep statistics of their layers.
        if hidden > max(row.parameters / 4, min(row.parameters, 2 * played.input_size + 100)):
            yield Finding(
                "suspicious",
                "buffers",
                f"tick {row.tick}: {row.buffers:,} scalars in buffers, {seen.literals:,} numbers in the graph, "
                f"{seen.wide:,} scalars of more than 32 bits, and {row.parameters:,} parameters: Mem counts "
                "parameters alone",
            )
            return


def _declared(played: Played) -> Iterator[Finding]:
    """FLOPs that the meter could not count and the learner declared; those that it left to other runs."""
    reasons = {reason for row in played.ledger for reason in row.declared}
    shared = {reason for reason in reasons if reason.startswith(SHARED)}
    if shared:
        yield Finding("suspicious", "shared", f"a run that is verified is alone, and is charged {'; '.join(shared)}")
    reasons -= shared
    if reasons:
        yield Finding("info", "declared", f"FLOPs declared by hand: {'; '.join(sorted(reasons))[:500]}")
