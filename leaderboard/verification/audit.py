"""The audit: compare what a submission reports about a run with measurements that it cannot influence.

The meter that counts training FLOPs runs in the sandbox, where a cheater can patch it. The audit compares the reported
FLOPs with three measurements outside: the parameters that the judge received, the inference FLOPs of the programs, and
the CPU time that the kernel counted. A finding states a reason for a review, with its numbers; it is not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from alma_env import Ledger
from alma_env.metering.shared_work import SHARED
from leaderboard.verification.one_run import SandboxedRun
from leaderboard.verification.result import SEVERITIES, Finding

# FLOPs per second far above those of any CPU core: FLOPs that took less CPU time were not executed.
FASTEST_CORE = 1e12
# An honest learner executes at least this many FLOPs per CPU second of training. The smallest networks of the paper
# (some thousand multiply-adds per example) reach 30 million or more in the plain training loop.
SLOWEST_TRAINING = 3e6
# CPU seconds without FLOPs, per run and per tick: compiling, tracing. Imports happen before the first tick.
OVERHEAD_SECONDS, OVERHEAD_OF_A_TICK = 30.0, 0.5
# As a share of the error of the uniform guess: an untrained network is not better than this.
LUCK = 0.7
# Numbers among a program's arguments that are not parameters: shapes, axes, constants of normalization.
FEW_LITERALS = 500


def run_findings(run: SandboxedRun) -> list[Finding]:
    """Return all findings about one run, the most severe first."""
    found = [
        *_failure(run),
        *_free_training(run),
        *_known_before(run),
        *_free_inference(run),
        *_batch_dependent(run),
        *_time(run),
        *_paper_flops(run),
        *_memory_hidden(run),
        *_declared(run),
    ]
    return sorted(found, key=lambda finding: -SEVERITIES.index(finding.severity))


def claim_findings(claimed: Mapping[int, Ledger], verified: Mapping[int, Ledger]) -> list[Finding]:
    """Compare the ledgers of a submission with those of its verification, by seed.

    Scores can differ slightly, because machines round differently. The board always shows the verified scores.
    """
    found = []
    for seed, ledger in claimed.items():
        if seed not in verified:
            continue
        claimed_score, verified_score = ledger.score(), verified[seed].score()
        for name, tolerance in (("cer", 0.05), ("mem", 0.0), ("comp", 0.02)):
            a, b = float(getattr(claimed_score, name)), float(getattr(verified_score, name))
            if abs(a - b) > tolerance * max(abs(b), 1e-12):
                text = f"the submission claims {name} {a:.6g}; the verified run has {b:.6g}"
                found.append(Finding("suspicious", "claim", text, seed))
    return found


def _failure(run: SandboxedRun) -> Iterator[Finding]:
    if run.failure is not None:
        yield Finding("fatal", "failed", run.failure)


def _free_training(run: SandboxedRun) -> Iterator[Finding]:
    """Find parameters that changed for fewer FLOPs than the cheapest training step costs."""
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        if not (evidence.tick and evidence.deployed and evidence.changed):
            continue
        # A step on one example is a forward pass and at least one backward product of the same size.
        cheapest = 2 * row.inference_flops
        spent = _spent_since_last_deployment(run, evidence.tick)
        if spent < cheapest:
            yield Finding(
                "suspicious",
                "free-training",
                f"tick {evidence.tick}: {evidence.changed:,} values of the predictor changed for {spent:,} FLOPs, but "
                f"a training step on one example costs at least {cheapest:,.0f}",
            )
            return  # one finding is enough for a review


def _spent_since_last_deployment(run: SandboxedRun, tick: int) -> int:
    spent = 0
    for evidence in reversed(run.evidence[: tick + 1]):
        if evidence.deployed and evidence.tick < tick:
            return spent
        spent += evidence.reported_flops
    return spent


def _time(run: SandboxedRun) -> Iterator[Finding]:
    """Compare the reported FLOPs with the CPU time."""
    known = [evidence.cpu_seconds for evidence in run.evidence if evidence.cpu_seconds is not None]
    if len(known) < len(run.evidence) - 1:
        yield Finding("info", "no-cpu-time", "this machine does not count CPU time per sandbox")
        return
    cpu, flops = math.fsum(known), sum(evidence.reported_flops for evidence in run.evidence)
    if flops > FASTEST_CORE * cpu:
        text = f"{flops:,} FLOPs in {cpu:.1f} CPU seconds: no core is that fast"
        yield Finding("suspicious", "too-fast", text)
    most = OVERHEAD_SECONDS + OVERHEAD_OF_A_TICK * len(known) + flops / SLOWEST_TRAINING
    if cpu > most:
        yield Finding(
            "suspicious",
            "too-slow",
            f"{cpu:.0f} CPU seconds for {flops:,} FLOPs: an honest run takes at most {most:.0f}; the submission may "
            "have computed outside the meter",
        )


def _known_before(run: SandboxedRun) -> Iterator[Finding]:
    """Find correct answers before enough was computed on data."""
    classes = round(1 / max(1 - run.guess, 1e-9))
    spent = 0
    for row in run.ledger:
        spent += row.comp
        # A learner that distinguishes the classes has seen an example of each. Untrained networks do not reach this.
        least = 2 * row.inference_flops * classes
        if row.digest and row.error < LUCK * run.guess and spent <= least:
            yield Finding(
                "suspicious",
                "known-before",
                f"tick {row.tick}: error {row.error:.3f} after {spent:,} FLOPs (uniform guess: {run.guess:.3f}), but a "
                f"training step on an example of each class costs {least:,.0f}; the submission may contain trained "
                "weights",
            )
            return


def _free_inference(run: SandboxedRun) -> Iterator[Finding]:
    """Find answers that operations without FLOPs compute."""
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        # In an honest network, scaling of inputs, activations and sums need far fewer elements.
        if evidence.free_elements > row.inference_flops + 10 * run.input_size:
            yield Finding(
                "suspicious",
                "free-inference",
                f"tick {row.tick}: {evidence.free_elements:,.0f} elements per example pass through operations without "
                f"FLOPs, and only {row.inference_flops:,.0f} FLOPs are counted; such operations can compute products",
            )
            return


def _batch_dependent(run: SandboxedRun) -> Iterator[Finding]:
    """Find predictors that learn from the other test inputs in a batch."""
    worst = max(run.evidence, key=lambda evidence: evidence.batch_dependent, default=None)
    if worst is not None and worst.batch_dependent > 0.01:
        yield Finding(
            "suspicious",
            "batch-dependent",
            f"tick {worst.tick}: {worst.batch_dependent:.0%} of the test examples have another answer in another batch"
            "; a predictor must treat each example separately, without random numbers",
        )


def _paper_flops(run: SandboxedRun) -> Iterator[Finding]:
    """Compare the paper's count, which only the contestant reports, with the executed FLOPs of training."""
    paper, executed = (sum(getattr(row, name) for row in run.ledger) for name in ("paper_flops", "comp"))
    if paper < executed / 10:
        text = f"{paper:,} FLOPs by the paper's rule of thumb, but {executed:,} executed: the two must be similar"
        yield Finding("suspicious", "paper-flops", text)


def _memory_hidden(run: SandboxedRun) -> Iterator[Finding]:
    """Find numbers in a program that are not parameters, so that Mem does not count them."""
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        hidden = row.buffers + evidence.wide + max(evidence.literals - FEW_LITERALS, 0)
        # Honest programs scale the inputs and keep statistics of their layers.
        if hidden > max(row.parameters / 4, min(row.parameters, 2 * run.input_size + 100)):
            yield Finding(
                "suspicious",
                "buffers",
                f"tick {row.tick}: {row.buffers:,} scalars in buffers, {evidence.literals:,} numbers in the graph and "
                f"{evidence.wide:,} scalars of more than 32 bits, but {row.parameters:,} parameters; Mem counts only "
                "parameters",
            )
            return


def _declared(run: SandboxedRun) -> Iterator[Finding]:
    """List FLOPs that the learner declared by hand, and FLOPs that are charged to other runs."""
    reasons = {reason for row in run.ledger for reason in row.declared}
    shared = {reason for reason in reasons if reason.startswith(SHARED)}
    if shared:
        text = f"a verified run shares no work with other runs, but is charged {'; '.join(shared)}"
        yield Finding("suspicious", "shared", text)
    reasons -= shared
    if reasons:
        yield Finding("info", "declared", f"FLOPs declared by hand: {'; '.join(sorted(reasons))[:500]}")
