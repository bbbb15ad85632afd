"""Export a deployed module as a program, so that only data leaves the sandbox.

`torch.export` traces the graph with a variable batch size. The program has the ATen operations that eager PyTorch runs,
so its answers equal those of the module to the last bit.
"""

from __future__ import annotations

import inspect
import operator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from alma_env.scoring.evaluation import freeze, reproducible, unwrap
from alma_env.scoring.fingerprint import Fingerprint
from leaderboard.errors import ProgramError
from leaderboard.program.graph import Node, Program, Reference
from leaderboard.program.interpreter import ProgramModule
from leaderboard.program.operations import operation

_REMEDY = (
    "deploy a module that torch.export can trace with a variable batch size: PyTorch operations only, no branches on "
    "the values of tensors, no state that changes in a forward pass"
)
_KINDS = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "buffer"}


def export(predictor: nn.Module, x: NDArray[Any]) -> tuple[Program, dict[str, str]]:
    """Export a predictor; return the program, and by name of tensor its path in the module.

    Args:
        predictor: raw inputs (n, ...) -> logits; a frozen copy of it is traced.
        x: at least two raw inputs with the shape and dtype of the test set's.

    Raises:
        ProgramError: the predictor cannot be traced, or needs operations or values that a program cannot have.
    """
    module = freeze(unwrap(predictor))
    shapes: Any = ({0: Dim("n")},)
    try:
        first, *_ = inspect.signature(module.forward).parameters.values()
        if first.kind is first.VAR_POSITIONAL:  # forward(self, *inputs), as of a wrapper
            shapes = (shapes,)
        with torch.no_grad():
            exported = torch.export.export(
                module, (torch.from_numpy(np.array(x)),), dynamic_shapes=shapes, strict=False
            )
    except Exception as error:  # of the module's own code, too
        lines = str(error).strip().splitlines() or [""]
        raise ProgramError(
            f"predictor {type(predictor).__name__} cannot be written as a program ({type(error).__name__}: "
            f"{lines[0][:300]}); {_REMEDY}"
        ) from error
    return _program(exported, module)


class Exporter:
    """Export one predictor after another. A predictor with the structure of the previous one is not traced again."""

    def __init__(self, x: NDArray[Any]) -> None:
        self.x = x
        self._structure: tuple[Any, ...] | None = None
        self._last: Program | None = None
        self._sources: dict[str, str] = {}

    def program(self, predictor: nn.Module, mark: Fingerprint) -> Program:
        """Return the predictor, whose fingerprint is ``mark``, as a program; see `export`."""
        module = unwrap(predictor)
        present: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
        present |= module.named_buffers(remove_duplicate=False)
        shapes = [(name, tensor.shape, tensor.dtype) for name, tensor in present.items()]
        structure = mark.structure, module.training, shapes
        constants = any(source not in present for source in self._sources.values())  # made by the trace
        if self._last is not None and mark.structure is not None and structure == self._structure and not constants:
            tensors = {name: present[source].detach() for name, source in self._sources.items()}
            program = replace(self._last, tensors=tensors)
            # The same parameters are tied, and the code reads the same numbers of its module.
            if program.parameters == mark.parameters and self._answers_as(program, module):
                return program
        self._last, self._sources = export(predictor, self.x)
        self._structure = structure
        return self._last

    def _answers_as(self, program: Program, module: nn.Module) -> bool:
        """Return whether a program answers the examples as a module: the trace has written numbers into the graph.

        A forward pass can read global variables, which are not part of the module's structure.
        """
        try:
            first, second = (_logits(each, self.x) for each in (ProgramModule(program), freeze(module)))
        except Exception:  # the trace explains it
            return False
        return torch.equal(first, second)


def _logits(module: nn.Module, x: NDArray[Any]) -> Tensor:
    with reproducible(torch.device("cpu")):
        found: Tensor = module(torch.from_numpy(np.array(x)))
        return found


def _program(exported: ExportedProgram, module: nn.Module) -> tuple[Program, dict[str, str]]:
    kinds: dict[str, str] = {}
    sources: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    given = None
    values = {**exported.constants, **exported.state_dict}
    for spec in exported.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            given = name
            continue
        if spec.kind not in _KINDS:
            raise ProgramError(f"the predictor has {spec.kind.name.lower()} {spec.target!r} as an input; {_REMEDY}")
        tensor = values[spec.target]
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, spec.kind)
        if tensor.numel() and same in seen:
            aliases[name] = seen[same]
            continue
        seen[same] = name
        kinds[name], tensors[name], sources[name] = _KINDS[spec.kind], tensor.detach(), str(spec.target)
    nodes = [node for node in exported.graph.nodes if node.op not in ("placeholder", "output")]
    (outputs,) = exported.graph.output_node().args
    if given is None or len(outputs) != 1 or not isinstance(outputs[0], fx.Node):
        raise ProgramError(f"the predictor must return one tensor of logits and change no other tensor; {_REMEDY}")
    program = Program(given, tuple(map(_node, nodes)), outputs[0].name, kinds, tensors, aliases)
    registered = sum(parameter.numel() for parameter in module.parameters())
    if program.parameters != registered:
        raise ProgramError(
            f"the program has {program.parameters:,} parameters and the module {registered:,}: the numbers must be "
            "equal; register each parameter once, as an nn.Parameter of the module"
        )
    return program, sources


def _node(node: fx.Node) -> Node:
    if node.op != "call_function":
        raise ProgramError(f"node {node.name!r} is a {node.op}: only calls of operations are allowed; {_REMEDY}")
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        name = str(target)
    elif getattr(operator, getattr(target, "__name__", ""), None) is target:
        name = f"operator.{target.__name__}"
    else:
        name = f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"
    operation(name)  # raises here, where the author sees the message
    return Node(node.name, name, tuple(map(_value, node.args)), {key: _value(v) for key, v in node.kwargs.items()})


def _value(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return Reference(value.name)
    if isinstance(value, list | tuple):
        return [_value(part) for part in value]
    if isinstance(value, slice):
        raise ProgramError(f"a slice with {value}: a program cannot hold slices; index with torch.narrow or select")
    return value
