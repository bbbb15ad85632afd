"""From a deployed module to a program: what leaves a sandbox is data.

The graph is traced by `torch.export` with the batch size left open; its operations are ATen's, as they run in eager
PyTorch, so that the program answers to the last bit as the module does.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from alma_env.predictor import Fingerprint, freeze, unwrap
from leaderboard.program import Node, Program, ProgramError, Reference, operation

_REMEDY = (
    "a predictor on the leaderboard is a module that torch.export can trace with an open batch size: no branches on "
    "the values of tensors, no state that changes when it answers, PyTorch operations alone"
)
_KINDS = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "buffer"}


def export(predictor: nn.Module, x: NDArray[Any]) -> Program:
    """Write a predictor as a program.

    Args:
        predictor: raw inputs (n, ...) -> logits; a frozen copy of it is traced.
        x: at least two raw inputs, of whose shape and dtype the test set's are.

    Raises:
        ProgramError: it cannot be traced, or needs operations or values that a program does not have.
    """
    return _export(predictor, x)[0]


def _export(predictor: nn.Module, x: NDArray[Any]) -> tuple[Program, dict[str, str]]:
    """The program, and where in the module each of its tensors is."""
    module = freeze(unwrap(predictor))
    try:
        with torch.no_grad():
            exported = torch.export.export(
                module, (torch.from_numpy(np.array(x)),), dynamic_shapes=({0: Dim("n")},), strict=False
            )
    except Exception as error:  # the tracer raises whatever the module's code does
        lines = str(error).strip().splitlines() or [""]
        raise ProgramError(
            f"predictor {type(predictor).__name__} cannot be written as a program ({type(error).__name__}: "
            f"{lines[0][:300]}); {_REMEDY}"
        ) from error
    return _program(exported, module)


class Exporter:
    """Writes one predictor after another; one of the structure of that before is not traced again.

    Args:
        x: at least two raw inputs, of whose shape and dtype the test set's are.
    """

    def __init__(self, x: NDArray[Any]) -> None:
        self.x = x
        self._structure: tuple[Any, ...] | None = None
        self._last: Program | None = None
        self._sources: dict[str, str] = {}

    def program(self, predictor: nn.Module, mark: Fingerprint) -> Program:
        """The predictor as a program.

        Args:
            predictor: as in `export`.
            mark: its fingerprint.

        Raises:
            ProgramError: as `export`.
        """
        module = unwrap(predictor)
        there = dict(module.named_parameters(remove_duplicate=False)) | dict(
            module.named_buffers(remove_duplicate=False)
        )
        structure = (
            mark.structure,
            module.training,
            [(name, tensor.shape, tensor.dtype) for name, tensor in there.items()],
        )
        constants = any(source not in there for source in self._sources.values())  # of the trace
        if self._last is not None and mark.structure is not None and structure == self._structure and not constants:
            tensors = {name: there[source].detach() for name, source in self._sources.items()}
            program = replace(self._last, tensors=tensors)
            if program.parameters == mark.parameters:  # what was tied still is
                return program
        self._last, self._sources = _export(predictor, self.x)
        self._structure = structure
        return self._last


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
            raise ProgramError(f"the predictor takes {spec.kind.name.lower()} {spec.target!r} as input; {_REMEDY}")
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
        raise ProgramError(f"the predictor must return one tensor of logits and change nothing; {_REMEDY}")
    program = Program(
        input=given,
        nodes=tuple(_node(node) for node in nodes),
        output=outputs[0].name,
        kinds=kinds,
        tensors=tensors,
        aliases=aliases,
    )
    there = sum(parameter.numel() for parameter in module.parameters())
    if program.parameters != there:
        raise ProgramError(
            f"the program has {program.parameters:,} parameters and the module {there:,}: register each once, as an "
            "nn.Parameter of the module"
        )
    return program, sources


def _node(node: fx.Node) -> Node:
    if node.op != "call_function":
        raise ProgramError(f"node {node.name!r} is a {node.op}: only operations are allowed; {_REMEDY}")
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        name = str(target)
    elif getattr(operator, getattr(target, "__name__", ""), None) is target:
        name = f"operator.{target.__name__}"
    else:
        name = f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"
    operation(name)  # refuse it here, where its author sees it
    return Node(node.name, name, tuple(map(_value, node.args)), {key: _value(v) for key, v in node.kwargs.items()})


def _value(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return Reference(value.name)
    if isinstance(value, list | tuple):
        return [_value(part) for part in value]
    if isinstance(value, slice):
        raise ProgramError(f"a slice with {value}: index with torch.narrow or select instead")
    return value
