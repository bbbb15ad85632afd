"""Run a program on shapes: on PyTorch's `meta` device, whose tensors have a shape and no values.

No kernel of an operation runs, and no value of a tensor is read. The judge derives in this way what a program costs and
how many numbers it makes out of what it stores, without believing another process. A program comes from a stranger, so
sizes, lists and time are limited.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental import _config
from torch.utils import _pytree as pytree

from alma_env.errors import UnknownCostError
from alma_env.metering.dispatch_mode import CountingMode
from alma_env.metering.tally import Tally
from leaderboard.errors import ProgramError
from leaderboard.program.checked_arguments import check_sizes
from leaderboard.program.free_elements import FreeElements
from leaderboard.program.graph import Node, Program, Reference
from leaderboard.program.operations import operation

SECONDS = 60.0  # of one run
ELEMENTS = 2**33  # of one result: more do not fit into the evaluator's memory
RESULTS = 2**17  # tensors of all nodes; a run keeps them, about 600 bytes each
LONGEST = 2**16  # dimension from which an operation makes a list or a loop
_META = torch.device("meta")
_LOOPS = {f"aten::{name}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "block_diag", "cartesian_prod", "diff")}
_COPIES = {f"aten::{name}" for name in ("clone", "_to_copy", "to", "contiguous", "copy", "lift_fresh_copy", "reshape")}


@dataclass
class ShapeRun:
    """What a program does with ``n`` examples.

    Attributes:
        flops: FLOPs of all examples, by the meter's costs.
        free_elements: elements that pass through operations without FLOPs; see `FreeElements`.
        data_dependent: whether the cost depends on values; then ``flops`` is an upper bound.
        shapes: of the results, by name.
        made: scalars of the tensors that do not depend on the input and meet one that does, by storage; of a tensor
            with a part for each example, the scalars of one part.
        met: the stored tensors that meet a tensor which depends on the input, each with the dtype that shortened it.
    """

    n: int
    flops: int = 0
    free_elements: int = 0
    data_dependent: bool = False
    shapes: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    made: dict[int, float] = field(default_factory=dict)
    met: set[tuple[str, torch.dtype | None]] = field(default_factory=set)


def run_shapes(
    program: Program, shape: tuple[int, ...], dtype: torch.dtype, n: int, fixed: frozenset[str] = frozenset()
) -> ShapeRun:
    """Run a program on ``n`` examples of a shape and dtype.

    Args:
        program: its tensors may be on any device; only their shapes and dtypes are used.
        shape: of one raw input.
        dtype: of the raw inputs.
        n: number of examples.
        fixed: results that count as independent of the input, and have no part for each example.

    Raises:
        ProgramError: an operation raises on these shapes, a value decides about a shape, or a limit is exceeded.
    """
    runner = _Runner(program, ShapeRun(n), fixed)
    x = torch.empty((n, *shape), dtype=dtype, device=_META)
    runner.run(x)
    return runner.found


class _Runner:
    def __init__(self, program: Program, found: ShapeRun, fixed: frozenset[str]) -> None:
        self.program, self.found, self.fixed = program, found, fixed
        self.values: dict[str, Any] = {}
        self.results = 0  # tensors in `values` that nodes made
        self.depends: set[str] = {program.input}  # names of results that depend on the values of the input
        self.tainted: set[int] = set()  # storages to which such values were written
        # storage → stored tensor, or the storage of which it is a copy, and the dtype that shortened its numbers
        self.origin: dict[int, tuple[str | int, torch.dtype | None]] = {}

    def run(self, x: Tensor) -> None:
        program, found = self.program, self.found
        for name, tensor in program.tensors.items():
            self.values[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device=_META)
            self.origin[_storage(self.values[name])] = name, None
        self.values |= {name: self.values[other] for name, other in program.aliases.items()}
        self.values[program.input] = x
        tally, elements, deadline = Tally("inference"), FreeElements(), time.monotonic() + SECONDS
        every = _config.patch(meta_nonzero_assume_all_nonzero=True)  # type: ignore[attr-defined]
        with torch.no_grad(), every, elements, CountingMode(tally):
            for node in program.nodes:
                if time.monotonic() > deadline:
                    raise ProgramError(f"the shapes of {len(program.nodes):,} nodes take more than {SECONDS:.0f} s")
                self._step(node)
        self._meets(program.output)
        found.flops, found.free_elements, found.data_dependent = tally.total(), elements.count, tally.data_dependent

    def _step(self, node: Node) -> None:
        function = operation(node.target)
        args = [_resolve(value, self.values) for value in node.args]
        kwargs = {name: _resolve(value, self.values) for name, value in node.kwargs.items()}
        schema = function._schema if isinstance(function, OpOverload) else None
        if schema is not None:
            _limit(node, schema, args, kwargs)
            check_sizes(function, args)
            if any(argument.name == "device" and argument.kwarg_only for argument in schema.arguments):
                kwargs["device"] = _META
        try:
            out = function(*args, **kwargs)
        except UnknownCostError:
            raise
        except Exception as error:
            raise ProgramError(
                f"node {node.name!r} ({node.target}) cannot be derived from shapes: {type(error).__name__}: "
                f"{str(error)[:300]}; deploy a predictor whose shapes do not depend on values"
            ) from error
        results = _tensors(out)
        _limit_results(node, out, results)
        self.results += len(results)
        if self.results > RESULTS:
            raise ProgramError(
                f"node {node.name!r} ({node.target}): with its {len(results):,} tensors, the program has more than "
                f"{RESULTS:,} results; deploy a program with fewer"
            )
        self.values[node.name] = out
        self.found.shapes[node.name] = [tuple(tensor.shape) for tensor in results]
        depending = [name for name in node.references if self._depends(name)]
        if depending and results and node.name not in self.fixed:  # a size does not depend on values
            self.depends.add(node.name)
            for name in set(node.references) - set(depending):
                self._meets(name)
        if schema is not None:
            written = {_storage(tensor) for tensor in _written(schema, args, kwargs)}
            if depending:
                self.tainted |= written
            for storage in written:
                self.origin.pop(storage, None)  # what was a copy holds other numbers now
            if schema.name in _COPIES and args and isinstance(args[0], Tensor) and results:
                copied = _storage(args[0])
                origin, short = self.origin.get(copied, (copied, None))
                if _shortens(args[0].dtype, results[0].dtype):
                    short = results[0].dtype
                self.origin.setdefault(_storage(results[0]), (origin, short))

    def _depends(self, name: str) -> bool:
        if name in self.fixed:
            return False
        return name in self.depends or any(_storage(t) in self.tainted for t in _tensors(self.values[name]))

    def _meets(self, name: str) -> None:
        """Note a result that does not depend on the input, and is used together with one that does."""
        if self._depends(name):
            return
        for tensor in _tensors(self.values[name]):
            origin, short = self.origin.get(_storage(tensor), (_storage(tensor), None))
            if isinstance(origin, str):
                # Some bits of a number can be one number, and all of its bits another one.
                self.found.met.add((origin, short))
            else:
                elements = tensor.untyped_storage().nbytes() // tensor.dtype.itemsize
                held = scalars(elements, tensor.dtype) / (1 if name in self.fixed else self.found.n)
                self.found.made[origin] = max(held, self.found.made.get(origin, 0.0))


def scalars(elements: int, dtype: torch.dtype) -> float:
    """Return how many scalars of 32 bits so many elements are; a shorter number counts as one, a bit as a bit."""
    return elements / 32 if dtype is torch.bool else elements * max(1.0, dtype.itemsize / 4)


def _shortens(before: torch.dtype, after: torch.dtype) -> bool:
    """Return whether a conversion drops bits of a number."""
    dropped = torch.promote_types(before, after) != after
    return dropped or (not before.is_floating_point and after.is_floating_point and before.itemsize >= after.itemsize)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def _resolve(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Reference):
        return values[value.name]
    if isinstance(value, list):
        return [_resolve(part, values) for part in value]
    return _META if isinstance(value, torch.device) else value


def _written(schema: Any, args: list[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from _tensors(value)


def _limit(node: Node, schema: Any, args: list[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments without elements, for which some operations divide by zero, and loops over large dimensions."""
    given = _tensors((args, kwargs))
    lists = [value for value in (*args, *kwargs.values()) if isinstance(value, list)]
    takes_lists = any("Tensor[]" in str(a.type) or "List[Tensor]" in str(a.type) for a in schema.arguments)
    if takes_lists and any(not value for value in lists):
        raise ProgramError(f"node {node.name!r} ({node.target}): a list without tensors; must have at least one")
    loops = schema.name in _LOOPS or any("List" in str(result.type) for result in schema.returns)
    if loops and max((max(tensor.shape, default=1) for tensor in given), default=1) > LONGEST:
        raise ProgramError(f"node {node.name!r} ({node.target}): a dimension is longer than {LONGEST:,}")


def _limit_results(node: Node, out: Any, results: Iterable[Tensor]) -> None:
    for tensor in results:
        if not 0 < tensor.numel() <= ELEMENTS or not tensor.is_meta:
            raise ProgramError(
                f"node {node.name!r} ({node.target}): a result of shape {tuple(tensor.shape)}; must have 1 to "
                f"{ELEMENTS:,} elements"
            )
    if isinstance(out, int) and abs(out) >= 2**63:
        raise ProgramError(f"node {node.name!r} ({node.target}): a size of {out.bit_length()} bits; must fit into 64")
