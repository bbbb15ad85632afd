"""The audit: compare what a submission reports about a run with measurements that it cannot influence.

The meter that counts training FLOPs runs in the sandbox, where a cheater can patch it. The audit compares the reported
FLOPs with three measurements outside: the parameters that the judge received, the inference FLOPs of the programs, and
the CPU time that the kernel counted. A finding states a reason for a review, with its numbers; it is not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from alma_env import Ledger
from leaderboard.verification.one_run import SandboxedRun
from leaderboard.verification.result import Finding

# FLOPs per second far above those of any CPU core: FLOPs that took less CPU time were not executed.
FASTEST_CORE = 1e12
# An honest learner executes at least this many FLOPs per CPU second of training. The smallest networks of the paper
# (some thousand multiply-adds per example) reach 30 million or more in the plain training loop.
SLOWEST_TRAINING = 3e6
# CPU seconds without FLOPs, per run and per tick: building the native engine, tracing. Imports happen before the first
# tick.
OVERHEAD_SECONDS, OVERHEAD_OF_A_TICK = 30.0, 0.5
# As a share of the error of the uniform guess: an untrained network is not better than this.
LUCK = 0.7
# Numbers among a program's arguments that are not parameters: shapes, axes, constants of normalization.
FEW_LITERALS = 500

CodeAndText = tuple[str, str]  # of a finding


def run_findings(run: SandboxedRun) -> list[Finding]:
    """Return all findings about one run, the most severe first."""
    found = [] if run.failure is None else [Finding("fatal", "failed", run.failure)]
    suspicions: dict[str, str] = {}  # by code; the first text is enough for a review
    for check in _CHECKS:
        for code, text in check(run):
            suspicions.setdefault(code, text)
    found += [Finding("suspicious", code, text) for code, text in suspicions.items()]
    return found + [Finding("info", code, text) for code, text in _notes(run)]


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


def _free_training(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find parameters that changed for fewer FLOPs than the cheapest training step costs."""
    spent = 0  # since the last deployment
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        spent += evidence.reported_flops
        # A step on one example is a forward pass and at least one backward product of the same size.
        cheapest = 2 * row.inference_flops
        if evidence.tick and evidence.deployed and evidence.changed and spent < cheapest:
            text = (
                f"tick {evidence.tick}: {evidence.changed:,} values of the predictor changed for {spent:,} FLOPs, but "
                f"a training step on one example costs at least {cheapest:,.0f}"
            )
            yield "free-training", text
        if evidence.deployed:
            spent = 0


def _known_before(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find correct answers before enough was computed on data."""
    classes = round(1 / max(1 - run.guess, 1e-9))
    spent = 0
    for row in run.ledger:
        spent += row.comp
        # A learner that distinguishes the classes has seen an example of each. Untrained networks do not reach this.
        least = 2 * row.inference_flops * classes
        if row.digest and row.error < LUCK * run.guess and spent <= least:
            text = (
                f"tick {row.tick}: error {row.error:.3f} after {spent:,} FLOPs (uniform guess: {run.guess:.3f}), but a "
                f"training step on an example of each class costs {least:,.0f}; the submission may contain trained "
                "weights"
            )
            yield "known-before", text


def _free_inference(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find answers that operations without FLOPs compute."""
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        # In an honest network, scaling of inputs, activations and sums need far fewer elements.
        if evidence.free_elements > row.inference_flops + 10 * run.input_size:
            text = (
                f"tick {row.tick}: {evidence.free_elements:,.0f} elements per example pass through operations without "
                f"FLOPs, and only {row.inference_flops:,.0f} FLOPs are counted; such operations can compute products"
            )
            yield "free-inference", text


def _batch_dependent(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find predictors that learn from the other test inputs in a batch."""
    worst = max(run.evidence, key=lambda evidence: evidence.batch_dependent, default=None)
    if worst is not None and worst.batch_dependent > 0.01:
        text = (
            f"tick {worst.tick}: {worst.batch_dependent:.0%} of the test examples have another answer in another batch"
            "; a predictor must treat each example separately, without random numbers"
        )
        yield "batch-dependent", text


def _cpu_seconds(run: SandboxedRun) -> list[float] | None:
    """Return the CPU time of the ticks, except for the first tick; None if this machine does not count it."""
    known = [evidence.cpu_seconds for evidence in run.evidence if evidence.cpu_seconds is not None]
    return known if len(known) >= len(run.evidence) - 1 else None


def _time(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Compare the reported FLOPs with the CPU time."""
    known = _cpu_seconds(run)
    if known is None:
        return
    cpu, flops = math.fsum(known), sum(evidence.reported_flops for evidence in run.evidence)
    if flops > FASTEST_CORE * cpu:
        yield "too-fast", f"{flops:,} FLOPs in {cpu:.1f} CPU seconds: no core is that fast"
    most = OVERHEAD_SECONDS + OVERHEAD_OF_A_TICK * len(known) + flops / SLOWEST_TRAINING
    if cpu > most:
        text = (
            f"{cpu:.0f} CPU seconds for {flops:,} FLOPs: an honest run takes at most {most:.0f}; the submission may "
            "have computed outside the meter"
        )
        yield "too-slow", text


def _paper_flops(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Compare the paper's count, which only the contestant reports, with the executed FLOPs of training."""
    paper, executed = (sum(getattr(row, name) for row in run.ledger) for name in ("paper_flops", "comp"))
    if paper < executed / 10:
        text = f"{paper:,} FLOPs by the paper's rule of thumb, but {executed:,} executed: the two must be similar"
        yield "paper-flops", text


def _buffers(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find numbers in a program that are not parameters, so that Mem does not count them."""
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        hidden = row.buffers + evidence.wide + max(evidence.literals - FEW_LITERALS, 0)
        # Honest programs scale the inputs and keep statistics of their layers.
        if hidden > max(row.parameters / 4, min(row.parameters, 2 * run.input_size + 100)):
            text = (
                f"tick {row.tick}: {row.buffers:,} scalars in buffers, {evidence.literals:,} numbers in the graph and "
                f"{evidence.wide:,} scalars of more than 32 bits, but {row.parameters:,} parameters; Mem counts only "
                "parameters"
            )
            yield "buffers", text


def _own_costs(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find operations whose cost the submission itself registered."""
    registered = {text for row in run.ledger for text in row.registered}
    if registered:
        text = (
            f"the submission counts operations by costs of its own: {'; '.join(sorted(registered))[:500]}; a review "
            "compares these costs with what the operations compute"
        )
        yield "own-costs", text


def _notes(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Note a machine without CPU time, and FLOPs that the learner declared by hand."""
    if _cpu_seconds(run) is None:
        yield "no-cpu-time", "this machine does not count CPU time per sandbox"
    reasons = {reason for row in run.ledger for reason in row.declared}
    if reasons:
        yield "declared", f"FLOPs declared by hand: {'; '.join(sorted(reasons))[:500]}"


_CHECKS = (_free_training, _known_before, _free_inference, _batch_dependent, _time, _paper_flops, _buffers, _own_costs)
