"""Runs a program, operation by operation, as a module that the environment's own scoring takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from leaderboard.program import Program, ProgramError, Reference, operation, references


class ProgramModule(nn.Module):
    """A program as a module: raw inputs (n, ...) -> logits.

    Its parameters and buffers are those of the program; nothing of the submission's code is in it.

    Raises:
        ProgramError: a forward pass raised, or changed one of the program's tensors.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        for name, tensor in program.tensors.items():
            if hasattr(self, name):
                raise ProgramError(f"tensor {name!r}: the name is a module's own; choose another")
            if program.kinds[name] == "parameter":
                self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
            else:
                self.register_buffer(name, tensor)
        self._functions = [operation(node.target) for node in program.nodes]
        last = {name: place for place, node in enumerate(program.nodes) for name in _names(node)}
        last.pop(program.output, None)
        # What no later operation needs is let go, as eager PyTorch does.
        self._dead_after: list[list[str]] = [[] for _ in program.nodes]
        for place, node in enumerate(program.nodes):
            if node.name not in last and node.name != program.output:
                self._dead_after[place].append(node.name)
        for name, place in last.items():
            if name not in program.tensors and name not in program.aliases:
                self._dead_after[place].append(name)

    def forward(self, x: Tensor) -> Tensor:
        """Raw inputs (n, ...) -> logits."""
        program = self.program
        values: dict[str, Any] = {name: getattr(self, name) for name in program.tensors}
        values |= {name: values[other] for name, other in program.aliases.items()}
        versions = {name: values[name]._version for name in program.tensors}
        values[program.input] = x
        for node, function, dead in zip(program.nodes, self._functions, self._dead_after, strict=True):
            args = [_resolve(value, values) for value in node.args]
            kwargs = {name: _resolve(value, values) for name, value in node.kwargs.items()}
            try:
                values[node.name] = function(*args, **kwargs)
            except Exception as error:
                raise ProgramError(
                    f"node {node.name!r} ({node.target}) raised {type(error).__name__}: {str(error)[:300]}"
                ) from error
            for name in dead:
                values.pop(name, None)
        if any(getattr(self, name)._version != version for name, version in versions.items()):
            raise ProgramError("the program changes its own tensors when it answers: an answer leaves no trace")
        logits = values[program.output]
        if not isinstance(logits, Tensor):
            raise ProgramError(f"output {program.output!r} is no tensor")
        return torch.Tensor.clone(logits)

    def same_tensors(self, program: Program) -> bool:
        """Whether its tensors are those of the program, bit for bit: some operations write without saying so."""
        return all(_bits(getattr(self, name)).equal(_bits(tensor)) for name, tensor in program.tensors.items())


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _names(node: Any) -> list[str]:
    return list(references([*node.args, *node.kwargs.values()]))


def _resolve(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Reference):
        return values[value.name]
    if isinstance(value, list):
        return [_resolve(part, values) for part in value]
    return value
