"""The audit: compare what a submission reports about a run with measurements that it cannot influence.

The meter that counts training FLOPs runs in the sandbox, where a cheater can patch it. The audit compares the reported
FLOPs with three measurements outside: the parameters that the judge received, the inference FLOPs of the programs, and
the CPU time that the kernel counted. A finding states a reason for a review, with its numbers; it is not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from alma_env import Ledger, Row
from leaderboard.verification.cpu_witness import floor_rate, overhead_seconds, unexplained_seconds
from leaderboard.verification.evidence import Evidence
from leaderboard.verification.one_run import SandboxedRun
from leaderboard.verification.result import FAILED, Finding
from leaderboard.verification.rounded_parameters import KEPT_BITS

# FLOPs per second far above those of any CPU core: FLOPs that took less CPU time were not executed.
FASTEST_CORE = 1e12
# As a share of the error of the uniform guess: an untrained network is not better than this.
LUCK = 0.7
# Scalars in a compressed graph that is not large beside any number of parameters. A linear classifier has 62, a mixture
# of 20 experts 330, and the classifiers of torchvision 75 to 1,053, next to hundreds of thousands of parameters.
PLAIN_GRAPH = 100
# Cost per example on a random part of the test set, as a multiple of the cost on the test set in its order.
UNEVEN = 1.5
# Share of examples that may get another class by rounded parameters: those between two classes.
PACKED = 0.1

CodeAndText = tuple[str, str]  # of a finding


def run_findings(run: SandboxedRun) -> list[Finding]:
    """Return all findings about one run, the most severe first."""
    found = [] if run.failure is None else [Finding("fatal", FAILED, run.failure)]
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


def authors_ledger(run: SandboxedRun) -> Ledger:
    """Return the ledger as the authors' machine has it.

    The environment counts each parameter once, and the judge counts those of 64 bits twice.
    """
    pairs = zip(run.ledger, run.evidence, strict=True)
    return Ledger([replace(row, parameters=evidence.parameter_elements) for row, evidence in pairs])


def _one_step(row: Row, evidence: Evidence) -> float:
    """Return the FLOPs that a training step on one example costs at least.

    The step is a forward pass and at least one backward product of the same size. The authors of a program can choose
    an inference without FLOPs. So each number that the program holds counts as at least one multiply-add.
    """
    return 2 * max(row.inference_flops, 2.0 * evidence.held)


def _free_training(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find programs that changed for fewer FLOPs than the cheapest training step costs."""
    spent = 0  # since the last deployment
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        spent += evidence.reported_flops
        cheapest = _one_step(row, evidence)
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
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        spent += row.comp
        # A learner that distinguishes the classes has seen an example of each, and to divide its error by ten it needs
        # at least five times as many. Untrained networks do not reach this. Honest learners process far more examples.
        examples = classes * max(1.0, run.guess / (2 * max(row.error, 0.001)))
        least = _one_step(row, evidence) * examples
        if row.digest and row.error < LUCK * run.guess and spent <= least:
            text = (
                f"tick {row.tick}: error {row.error:.3f} after {spent:,} FLOPs (uniform guess: {run.guess:.3f}), but "
                f"training on {examples:,.0f} examples costs {least:,.0f}; the submission may contain trained weights"
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


def _packed(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find parameters that hold several numbers each: the answers then need all of their bits."""
    worst = max(run.evidence, key=lambda evidence: evidence.packed, default=None)
    if worst is not None and worst.packed > PACKED:
        text = (
            f"tick {worst.tick}: {worst.packed:.0%} of the test examples get another class if each parameter is "
            f"rounded to {KEPT_BITS} significant bits; a parameter may hold several numbers, and Mem counts it once"
        )
        yield "packed", text


def _uneven(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find predictors that cost less where their cost is counted than on a random part of the test set."""
    for evidence in run.evidence:
        pairs = {
            "FLOPs": (evidence.answer_flops, evidence.probe_flops),
            "elements in operations without FLOPs": (evidence.answer_elements, evidence.probe_elements),
        }
        for name, (a, b) in pairs.items():
            if max(a, b) > UNEVEN * min(a, b) + 10 * run.input_size:
                text = (
                    f"tick {evidence.tick}: {a:,.0f} {name} per example on the test set in its order, and {b:,.0f} on "
                    "a random part of it; the cost of a predictor must not depend on which examples are together"
                )
                yield "uneven", text


def cpu_seconds(run: SandboxedRun) -> float | None:
    """Return the CPU seconds of the ticks, except for the first tick; None if they are not known."""
    known = [evidence.cpu_seconds for evidence in run.evidence if evidence.cpu_seconds is not None]
    return math.fsum(known) if known and len(known) >= len(run.evidence) - 1 else None


def _time(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Compare the reported FLOPs with the CPU time."""
    cpu = cpu_seconds(run)
    if cpu is None:
        return
    flops = sum(evidence.reported_flops for evidence in run.evidence)
    if flops > FASTEST_CORE * cpu and run.counts_all_cpu:
        yield "too-fast", f"{flops:,} FLOPs in {cpu:.1f} CPU seconds: no core is that fast"
    unexplained = unexplained_seconds(run.evidence, cpu)
    if unexplained > 0:
        text = (
            f"{cpu:.0f} CPU seconds for {flops:,} FLOPs: start and tracing take at most "
            f"{overhead_seconds(run.evidence):.0f} s. At {floor_rate():.2g} FLOPs per second, which honest runs reach, "
            f"the {unexplained:.0f} s that are left are {unexplained * floor_rate():.2g} FLOPs without a charge"
        )
        yield "too-slow", text


def _paper_flops(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Compare the paper's count, which only the contestant reports, with the executed FLOPs of training."""
    paper, executed = (sum(getattr(row, name) for row in run.ledger) for name in ("paper_flops", "comp"))
    # The rule counts three times the forward FLOPs of training, and the growth as executed.
    if paper < executed / 10 or paper > 4 * executed:
        text = f"{paper:,} FLOPs by the paper's rule of thumb, but {executed:,} executed: the two must be similar"
        yield "paper-flops", text


def _buffers(run: SandboxedRun) -> Iterator[CodeAndText]:
    """Find numbers in a program that are not parameters, so that Mem does not count them."""
    for row, evidence in zip(run.ledger, run.evidence, strict=True):
        # Honest programs scale the inputs and keep statistics of their layers.
        most = max(row.parameters / 4, min(row.parameters, 2 * run.input_size + 100))
        if sum(evidence.hidden.values()) > most:
            places = ", ".join(
                f"{number:,} in {_PLACES.get(place, place)}" for place, number in evidence.hidden.items()
            )
            text = (
                f"tick {row.tick}: numbers outside of the parameters, in scalars of 32 bits: {places}; but "
                f"{row.parameters:,} parameters, and Mem counts only parameters"
            )
            yield "buffers", text
        if evidence.graph > PLAIN_GRAPH + row.parameters / 4:
            text = (
                f"tick {row.tick}: the compressed graph of the predictor has {32 * evidence.graph:,} bits, as many as "
                f"{evidence.graph:,} scalars, but there are {row.parameters:,} parameters; a graph can hold numbers"
            )
            yield "graph", text


_PLACES = {
    "buffers": "buffers",
    "constants": "tensors that the graph makes without the input",
    "literals": "arguments of operations",
}


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
    if not run.counts_all_cpu:
        text = "this machine does not count CPU time per sandbox; CPU seconds are those of the processes that were seen"
        yield "no-cpu-time", text
    reasons = {reason for row in run.ledger for reason in row.declared}
    if reasons:
        yield "declared", f"FLOPs declared by hand: {'; '.join(sorted(reasons))[:500]}"


_CHECKS = (
    _free_training,
    _known_before,
    _free_inference,
    _uneven,
    _batch_dependent,
    _packed,
    _time,
    _paper_flops,
    _buffers,
    _own_costs,
)
