"""What a sweep costs, known before it runs: training FLOPs in closed form, and what they take here in hours and bytes.

Training FLOPs are the paper's, 6 per forward multiply-add of a training example, a growth's own passes included; for
Firefly the widths that a growth will choose are not known, and are taken to be the same in every layer. Hours come from
FLOPs per second that were measured for each method on one core (``throughput.toml``, whose head says where); validation
and the test set are part of them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from agents.experiments.spec import RunSpec
from agents.reproduction.expected import Expected, expected
from agents.switch_size import SIZES, forward_flops, parameter_count
from agents.trainings import Training, experts_after, trainings

VALIDATED = 0.1  # part of each mega-batch that validates
ROW_BYTES = 245  # of a tick in a ledger; a checkpoint holds them once more, beside the parameters
FILE_BYTES = 25_000  # of everything else


@dataclass(frozen=True)
class Data:
    """Sizes of a data set, which a cost is known from without loading it.

    Attributes:
        train: examples of the stream, validation parts included; of text sequences per mega-batch.
        test: examples of the test set.
        features: numbers in one example.
        valid: of text the sequences of the validation set.
        vocabulary: of text.
        tokens: of text, in a sequence.
    """

    train: int
    test: int
    features: int = 0
    valid: int = 0
    vocabulary: int = 0
    tokens: int = 0


DATA = {
    "MNIST": Data(60_000, 10_000, 784),
    "CIFAR10": Data(50_000, 10_000, 3_072),
    "Digits": Data(1_400, 397, 64),
    # The text that comes with the package; 440 million words of the paper are about 580 million tokens.
    "Text": Data(411, 411, valid=217, vocabulary=1_000, tokens=64),
    "Text of one's own": Data(1_130_000, 1_130_000, valid=1_300, vocabulary=50_257, tokens=512),
}


@dataclass(frozen=True)
class Cost:
    """Of one run, or of many.

    Attributes:
        runs: how many.
        training: training FLOPs by the paper's rule.
        seconds: of one core, where they were measured.
        bytes: on disk.
    """

    runs: int = 0
    training: float = 0.0
    seconds: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.runs + other.runs,
            self.training + other.training,
            self.seconds + other.seconds,
            self.bytes + other.bytes,
        )


def cost_of(specs: Iterable[RunSpec]) -> Cost:
    """Of runs together.

    Raises:
        ValueError: a spec has a policy, whose trainings are not known beforehand.
    """
    total = Cost()
    for spec in specs:
        total += _cost(expected(spec))
    return total


def trainings_of(run: Expected) -> tuple[Training, ...]:
    """The trainings of a run with a fixed waiting time.

    Raises:
        ValueError: it has another policy.
    """
    policy = run.agent["policy"]
    if not isinstance(policy, Mapping) or "wait" not in policy:
        raise ValueError(f"policy={policy!r}: the cost is known beforehand of fixed waiting times alone")
    growth = policy["growth"] if run.grows else "never"
    return trainings(run.ticks, policy["wait"], replay=policy["replay"], growth=growth)


def macs(run: Expected, grown: int) -> float:
    """Multiply-adds of one forward pass of what is trained after so many growth steps."""
    width: float = run.agent["width"]
    data = _data(run)
    experts = experts_after(run.agent, run.backbone, grown)
    if run.backbone == "mlp":
        gates = 2 * data.features + 2 * width
        return experts * (data.features * width + width**2) + 10 * width + (experts - 1) * gates
    if run.backbone == "switch":
        size = SIZES[run.agent["size"]]
        return forward_flops(data.vocabulary, size, experts, data.tokens) / 2
    if run.agent["id"] == "ff":
        # Parameters are all but quadratic in the width, which therefore grows as their root.
        width *= math.sqrt(1 + run.agent["growth_rate"] * grown)
    return 16_848 * width**2 + 27_658 * width + (experts - 1) * (7_632 * width**2 + 128 * width)


def parameters(run: Expected, grown: int) -> float:
    """Parameters of what is trained after so many growth steps."""
    width: float = run.agent["width"]
    data = _data(run)
    experts = experts_after(run.agent, run.backbone, grown)
    if run.backbone == "mlp":
        one = width**2 + (data.features + 12) * width + 10
        return one + (experts - 1) * (width**2 + (data.features + 4) * width + 2 * data.features + 4)
    if run.backbone == "switch":
        return parameter_count(data.vocabulary, SIZES[run.agent["size"]], experts)
    if run.agent["id"] == "ff":
        rate: float = run.agent["growth_rate"]
        return (135 * width**2 + 69 * width + 10) * (1 + rate * grown)
    return 135 * width**2 + 85 * width + 10 + (experts - 1) * (126 * width**2 + 170 * width + 8)


def _cost(run: Expected) -> Cost:
    data = _data(run)
    text = run.backbone == "switch"
    per_tick = data.train if text else data.train // run.ticks
    valid = 0 if text else math.floor(VALIDATED * per_tick)
    trained_flops = other = 0.0
    trained = int(run.agent.get("members", 1))
    grown = 0
    for training in trainings_of(run):
        grown = training.grown
        examples = training.mega_batches * (per_tick - valid)
        passed = examples * run.stage.epochs
        if run.stage.updates is not None:
            passed = run.stage.updates * run.stage.batch_size
        one = macs(run, grown)
        trained_flops += 6 * trained * one * passed
        validated = data.valid if text else training.mega_batches * valid
        trained_flops += _growth(run, training, examples, validated)
        other += 2 * trained * one * (validated * run.stage.epochs + data.test)
    work = trained_flops + other
    rate, start = _throughput(run)
    members = trained * (1 + grown if run.agent["id"] in ("gens", "gens-moe") else 1)
    size = FILE_BYTES + 2 * ROW_BYTES * (run.ticks + 1) + 4 * parameters(run, grown) * members
    return Cost(1, trained_flops, start + work / rate, size)


def _growth(run: Expected, training: Training, examples: int, valid: int) -> float:
    """The passes that a growth makes of its own.

    gMoE looks at V once; Firefly goes twice through the overgrown network, forward and backward.
    """
    if not training.grows:
        return 0.0
    if run.agent["id"] == "gmoe":
        return 2 * valid * macs(run, training.grown - 1)
    if run.agent["id"] != "ff":
        return 0.0
    width: float = run.agent["width"] * math.sqrt(1 + run.agent["growth_rate"] * (training.grown - 1))
    wide: float = width + run.agent["candidates"]
    return 2 * 6 * examples * (9 * wide**2 * 1_872 + 27 * wide * 1_024 + 10 * wide)


def _data(run: Expected) -> Data:
    own = run.data == "Text" and run.protocol["sequence_length"] > DATA["Text"].tokens
    return DATA["Text of one's own" if own else run.data]


def _throughput(run: Expected) -> tuple[float, float]:
    """FLOPs per second on one core, and the seconds that a run takes beside them."""
    table = _measured()[run.data]
    agent = {"moe": "gmoe", "gens-moe": "gmoe", "oracle": "sm"}.get(run.agent["id"], run.agent["id"])
    widths, rates = zip(*((int(width), rate) for width, rate in table[agent].items()), strict=True)
    # Between widths along a line of logarithms; beyond the outermost as there.
    log = np.interp(math.log(run.agent["width"]), np.log(widths), np.log(rates))
    return 1e9 * math.exp(log), float(table["start"])


@cache
def _measured() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "throughput.toml").read_text(encoding="utf-8"))
