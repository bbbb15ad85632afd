"""A predictor as data: a list of PyTorch operations as JSON, and the tensors that they read as safetensors.

A submission sends its predictor from the sandbox to the evaluator in this form. Reading a program executes nothing and
unpickles nothing. Every operation must be in the table of `leaderboard.program.operations`. Every argument is a plain
value or the result of an earlier operation. `leaderboard.program.export` writes programs, and
`leaderboard.program.interpreter` runs them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from leaderboard.errors import ProgramError
from leaderboard.program.checked_arguments import check_types
from leaderboard.program.operations import NAME, SIZES, operation
from leaderboard.program.tensor_header import read_header

VERSION = 1
GRAPH_BYTES = 16 * 2**20
NODES = 50_000  # the judge derives the shapes of all results
DEPTH = 4  # of nested lists; PyTorch's arguments have at most 2
KINDS = ("parameter", "buffer")


def _of_torch(names: str) -> dict[str, Any]:
    return {name: getattr(torch, name) for name in names.split()}


# Argument types that JSON lacks: the names in a program, and their values.
_TYPED: dict[str, dict[str, Any]] = {
    "dtype": _of_torch("bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64"),
    "device": {"cpu": torch.device("cpu")},
    "layout": {"strided": torch.strided},
    "memory_format": _of_torch("contiguous_format preserve_format channels_last channels_last_3d"),
    "float": {"inf": math.inf, "-inf": -math.inf, "nan": math.nan},
}


@dataclass(frozen=True)
class Reference:
    """A reference by name: to the result of an operation, to a tensor or to the input of the program."""

    name: str


@dataclass(frozen=True)
class Node:
    """One operation: the name of its result, its target such as ``aten.linear.default``, and its arguments."""

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def references(self) -> list[str]:
        """Names that the arguments refer to."""
        return list(_references([*self.args, *self.kwargs.values()]))


@dataclass(frozen=True)
class Program:
    """A predictor as data.

    Attributes:
        input: name of the raw inputs (n, ...).
        nodes: operations in the order of execution.
        output: name of the logits.
        kinds: ``parameter`` or ``buffer`` by name of tensor.
        tensors: values by name. Tied tensors are stored once.
        aliases: name of a tied tensor → the name under which it is stored.
    """

    input: str
    nodes: tuple[Node, ...]
    output: str
    kinds: Mapping[str, str]
    tensors: Mapping[str, Tensor]
    aliases: Mapping[str, str]

    @property
    def parameters(self) -> int:
        """Number of scalars in parameters |θ|; tied parameters count once."""
        return sum(self.tensors[name].numel() for name, kind in self.kinds.items() if kind == "parameter")

    @property
    def buffers(self) -> int:
        """Number of scalars in all other tensors."""
        return sum(self.tensors[name].numel() for name, kind in self.kinds.items() if kind == "buffer")

    def graph_bytes(self) -> bytes:
        """Return everything but the values of the tensors, as JSON; equal structures give equal bytes."""
        graph = {
            "version": VERSION,
            "input": self.input,
            "tensors": dict(self.kinds),
            "aliases": dict(self.aliases),
            "nodes": [
                [node.name, node.target, _write(node.args), {key: _write(value) for key, value in node.kwargs.items()}]
                for node in self.nodes
            ],
            "output": self.output,
        }
        return json.dumps(graph, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def tensor_bytes(self) -> bytes:
        """Return the values of the tensors in the safetensors format."""
        return save({name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()})


def read(graph: bytes, tensors: bytes) -> Program:
    """Read the bytes of `Program.graph_bytes` and `Program.tensor_bytes`. Nothing is executed.

    Raises:
        ProgramError: the bytes are malformed or too large, an operation is not allowed, or an argument refers to a
            result that does not come before it.
    """
    try:
        values = load(tensors)
    except (SafetensorError, ValueError, TypeError, OverflowError, RuntimeError, KeyError) as error:
        raise ProgramError(f"the tensors cannot be read: {str(error)[:200]}") from error
    return _program(graph, values)


def read_structure(graph: bytes, tensors: bytes | bytearray | memoryview) -> Program:
    """Read a program without the values of its tensors: they are tensors of the `meta` device.

    Raises:
        ProgramError: as for `read`.
    """
    entries = read_header(tensors)
    return _program(graph, {name: torch.empty(e.shape, dtype=e.dtype, device="meta") for name, e in entries.items()})


def _program(graph: bytes, values: Mapping[str, Tensor]) -> Program:
    if len(graph) > GRAPH_BYTES:
        raise ProgramError(f"a graph of {len(graph):,} bytes: must have at most {GRAPH_BYTES:,}; deploy a smaller one")
    try:
        found = json.loads(graph)
        if not isinstance(found, dict) or found["version"] != VERSION:
            raise ProgramError(f"not a program of version {VERSION}")
        program = Program(
            input=_name(found["input"]),
            nodes=tuple(_nodes(found["nodes"])),
            output=_name(found["output"]),
            kinds={_name(name): _kind(kind) for name, kind in found["tensors"].items()},
            tensors=values,
            aliases={_name(name): _name(other) for name, other in found["aliases"].items()},
        )
    except ProgramError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProgramError(f"the graph cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
    _check(program)
    return program


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Reference):
        yield value.name
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _references(part)


def _check(program: Program) -> None:
    """Check that names are unique and that references point backwards."""
    unpaired = sorted(set(program.kinds) ^ set(program.tensors))
    if unpaired:
        raise ProgramError(f"tensors without a kind, or kinds without a tensor: {', '.join(unpaired[:5])}")
    for name, tensor in program.tensors.items():
        if tensor.dtype not in _TYPED["dtype"].values():
            raise ProgramError(f"tensor {name!r} of {tensor.dtype}: must be one of {', '.join(_TYPED['dtype'])}")
        if not tensor.numel():
            raise ProgramError(
                f"tensor {name!r} of shape {tuple(tensor.shape)}: must have elements, because a shape can hold numbers "
                "that Mem does not count; remove the tensor"
            )
    for name, other in program.aliases.items():
        if other not in program.tensors or name in program.tensors:
            raise ProgramError(f"alias {name!r} of {other!r}: the tensor does not exist, or the name is taken")
    known = {program.input, *program.tensors, *program.aliases}
    if len(known) != 1 + len(program.tensors) + len(program.aliases):
        raise ProgramError(f"input {program.input!r}: a tensor has this name; choose another name")
    of_input = {program.input}  # the names of what is computed from the input
    for node in program.nodes:
        for name in node.references:
            if name not in known:
                raise ProgramError(f"node {node.name!r} refers to {name!r}, which does not come before it")
        if not of_input.isdisjoint(node.references):
            of_input.add(node.name)
        elif node.target.startswith(SIZES):
            raise ProgramError(
                f"node {node.name!r} ({node.target}): the size of a tensor that is not computed from the input, and a "
                "shape can hold numbers that Mem does not count; write the size as a number"
            )
        if node.name in known:
            raise ProgramError(f"node {node.name!r}: the name is taken; choose another name")
        known.add(node.name)
    if program.output not in known:
        raise ProgramError(f"output {program.output!r}: no node has this name")


def _nodes(found: Any) -> Iterator[Node]:
    if not isinstance(found, list) or len(found) > NODES:
        raise ProgramError(f"nodes: must be a list of at most {NODES:,}")
    for name, target, args, kwargs in found:
        function = operation(str(target))
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ProgramError(f"node {name!r}: arguments must be a list and a table")
        values, named = tuple(map(_read, args)), {_name(key): _read(value) for key, value in kwargs.items()}
        check_types(function, values, named)
        yield Node(_name(name), str(target), values, named)


def _write(value: Any) -> Any:
    """Return an argument as JSON. References and typed values become tables with one entry."""
    if isinstance(value, Reference):
        return {"of": value.name}
    if isinstance(value, list | tuple):
        return [_write(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, values in _TYPED.items():
        for name, typed in values.items():
            if type(value) is type(typed) and value == typed:
                return {kind: name}
    raise ProgramError(f"argument {value!r} of type {type(value).__name__}: a program cannot hold such values")


def _read(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        if depth == DEPTH:
            raise ProgramError(f"an argument of nested lists: must be at most {DEPTH} deep")
        return [_read(part, depth + 1) for part in value]
    if isinstance(value, dict):
        ((kind, name),) = value.items()
        return Reference(_name(name)) if kind == "of" else _TYPED[kind][name]
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ProgramError(f"argument {value}: must fit into 64 bits")
    return value


def _kind(value: Any) -> str:
    if value not in KINDS:
        raise ProgramError(f"kind {value!r}: must be one of {', '.join(KINDS)}")
    return str(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ProgramError(f"name {str(value)[:100]!r}: must be letters, digits and underscores, at most 200")
    return value
