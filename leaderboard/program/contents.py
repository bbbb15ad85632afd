"""What a program contains: how many numbers it holds, wherever they are, and what an answer costs.

All of it is derived from the graph and from the shapes of the tensors. The unit is a scalar of 32 bits. Parameters are
one place for numbers. Others are buffers, the arguments of operations (*literals*), the structure of the graph, and
tensors that the graph makes out of few numbers (*constants*). Mem counts parameters; the audit compares the other
places with the parameters.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from leaderboard.program.graph import Program, Reference
from leaderboard.program.shape_run import ShapeRun, run_shapes, scalars

PLAIN_BITS = 8  # of an argument: axes, sizes of kernels, and constants such as 0.5


@dataclass(frozen=True)
class Contents:
    """What a program contains.

    Attributes:
        parameters: scalars of 32 bits in parameters: Mem. A number of 64 bits counts as two, a shorter one as one.
        parameter_elements: number of elements of the parameters, whatever their bits.
        buffers: number of elements of all other tensors.
        stored: scalars of 32 bits in all tensors.
        hidden: scalars of 32 bits outside of the parameters, by place: ``buffers``, ``constants`` and ``literals``.
        nodes: number of operations.
        graph: scalars of 32 bits in the graph after compression, with the shapes of the tensors.
        flops: FLOPs per example on the test set; an upper bound if ``data_dependent``.
        free_elements: elements per example that pass through operations without FLOPs.
        data_dependent: whether the cost of an answer depends on values.
    """

    parameters: int
    parameter_elements: int
    buffers: int
    stored: int
    hidden: dict[str, int]
    nodes: int
    graph: int
    flops: float
    free_elements: float
    data_dependent: bool


def contents(program: Program, shape: tuple[int, ...], dtype: torch.dtype, examples: int, batch_size: int) -> Contents:
    """Return what a program contains.

    Args:
        program: the values of its tensors are not used.
        shape: of one raw input.
        dtype: of the raw inputs.
        examples: size of the test set.
        batch_size: examples per forward pass.

    Raises:
        ProgramError: the shapes of its results cannot be derived.
        UnknownCostError: the cost of an operation is unknown.
    """
    stored = {name: scalars(tensor.numel(), tensor.dtype) for name, tensor in program.tensors.items()}
    of_parameters = sum(max(stored[name], program.tensors[name].numel()) for name in _parameters(program))
    sizes = [min(batch_size, examples - start) for start in range(0, examples, batch_size)]
    runs = {size: run_shapes(program, shape, dtype, size) for size in set(sizes)}
    costs = [runs[size].flops / size for size in sizes]
    free = sum(runs[size].free_elements for size in sizes) / examples
    return Contents(
        parameters=round(of_parameters),
        parameter_elements=program.parameters,
        buffers=program.buffers,
        stored=math.ceil(sum(stored.values())),
        hidden={
            "buffers": math.ceil(sum(size for name, size in stored.items() if program.kinds[name] == "buffer")),
            "constants": _constants(program, stored, shape, dtype, list(runs.values())),
            "literals": literal_scalars(program),
        },
        nodes=len(program.nodes),
        graph=graph_scalars(program),
        # The same sum as in `alma_env.scoring.evaluation`, so that both agree to the last bit.
        flops=costs[0] if len(set(costs)) == 1 else _mean(costs, sizes),
        free_elements=free,
        data_dependent=any(run.data_dependent for run in runs.values()),
    )


def _mean(costs: Sequence[float], sizes: Sequence[int]) -> float:
    return sum(cost * size for cost, size in zip(costs, sizes, strict=True)) / sum(sizes)


def _parameters(program: Program) -> list[str]:
    return [name for name, kind in program.kinds.items() if kind == "parameter"]


def _constants(
    program: Program, stored: dict[str, float], shape: tuple[int, ...], dtype: torch.dtype, runs: Sequence[ShapeRun]
) -> int:
    """Return how many more scalars the program computes with, independently of its input, than it stores.

    Honest programs treat each example separately, so the size of a result that depends on the input is proportional to
    the number of examples. Every other result counts as independent of the input: adding 0 · x to a constant, or making
    it only for batches of the test set's size, must not make it another thing.
    """
    most = 0.0
    for run in runs:
        others = [run_shapes(program, shape, dtype, n) for n in (run.n + run.n // 2 + 1, 2 * run.n)]
        fixed = frozenset(name for name in run.shapes if not _per_example(name, [run, *others]))
        found = run_shapes(program, shape, dtype, run.n, fixed)
        most = max(most, sum(found.made.values()) + sum(stored[name] for name, _ in found.met))
    return max(0, math.ceil(most - sum(stored.values())))


def _per_example(name: str, runs: Sequence[ShapeRun]) -> bool:
    """Return whether the size of a result is proportional to the number of examples, but for rounding."""
    rates = [sum(map(math.prod, run.shapes[name])) / run.n for run in runs]
    return max(rates) <= 1.05 * min(rates) + 1 / runs[0].n


def literal_scalars(program: Program) -> int:
    """Return the scalars of 32 bits in the arguments of the operations, without what plain layers need."""
    bits = sum(_bits([*node.args, *node.kwargs.values()]) for node in program.nodes)
    return math.ceil(bits / 32)


def _bits(value: Any) -> int:
    """Return the bits of the numbers in an argument beyond `PLAIN_BITS` each."""
    if isinstance(value, list | tuple):
        return sum(map(_bits, value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    numerator = Fraction(value).numerator if isinstance(value, float) else value
    odd = abs(numerator) // (numerator & -numerator) if numerator else 0  # without the exponent
    return max(0, odd.bit_length() - PLAIN_BITS)


def graph_scalars(program: Program) -> int:
    """Return the scalars of 32 bits in the compressed graph, with the shapes of the tensors and without names."""
    places = {name: place for place, name in enumerate([program.input, *program.tensors, *program.aliases])}
    lines = [
        [kind, list(program.tensors[name].shape), str(program.tensors[name].dtype)]
        for name, kind in program.kinds.items()
    ]
    lines += [[name, other] for name, other in program.aliases.items()]
    for place, node in enumerate(program.nodes, len(places)):
        lines.append(
            [node.target, _placed(node.args, place, places), _placed(list(node.kwargs.items()), place, places)]
        )
        places[node.name] = place
    text = json.dumps(lines, separators=(",", ":"), default=str)
    return math.ceil(8 * len(zlib.compress(text.encode(), 9)) / 32)


def _placed(value: Any, place: int, places: dict[str, int]) -> Any:
    """Return an argument with references as distances, which repeat in equal parts of a graph."""
    if isinstance(value, Reference):
        return {"of": place - places[value.name]}
    if isinstance(value, list | tuple):
        return [_placed(part, place, places) for part in value]
    return value
