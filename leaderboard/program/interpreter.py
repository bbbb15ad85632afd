"""Run a program operation by operation, as a module that the environment can score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from leaderboard.errors import ProgramError
from leaderboard.program.checked_arguments import check_sizes
from leaderboard.program.graph import Program, Reference
from leaderboard.program.operations import operation


class ProgramModule(nn.Module):
    """A program as a module: raw inputs (n, ...) -> logits.

    The module has the parameters and buffers of the program, and runs none of the submission's code.

    Raises:
        ProgramError: a forward pass raised, or changed a tensor of the program.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        for name, tensor in program.tensors.items():
            if hasattr(self, name):
                raise ProgramError(f"tensor {name!r}: nn.Module has an attribute of this name; choose another name")
            if program.kinds[name] == "parameter":
                self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
            else:
                self.register_buffer(name, tensor)
        self._functions = [operation(node.target) for node in program.nodes]
        # Results that no later operation reads are freed, as in eager PyTorch.
        last = {name: place for place, node in enumerate(program.nodes) for name in (node.name, *node.references)}
        self._dead_after: list[list[str]] = [[] for _ in program.nodes]
        for name in last.keys() - {program.output, *program.tensors, *program.aliases}:
            self._dead_after[last[name]].append(name)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, classes) of raw inputs (n, ...)."""
        program = self.program
        values: dict[str, Any] = {name: getattr(self, name) for name in program.tensors}
        values |= {name: values[other] for name, other in program.aliases.items()}
        versions = {name: values[name]._version for name in program.tensors}
        values[program.input] = x
        for node, function, dead in zip(program.nodes, self._functions, self._dead_after, strict=True):
            args = [_resolve(value, values) for value in node.args]
            kwargs = {name: _resolve(value, values) for name, value in node.kwargs.items()}
            check_sizes(function, args)
            try:
                values[node.name] = function(*args, **kwargs)
            except Exception as error:
                raise ProgramError(
                    f"node {node.name!r} ({node.target}) raised {type(error).__name__}: {str(error)[:300]}"
                ) from error
            for name in dead:
                del values[name]
        if any(getattr(self, name)._version != version for name, version in versions.items()):
            raise ProgramError(
                "a forward pass changes the program's own tensors: must not; deploy a predictor without state"
            )
        logits = values[program.output]
        if not isinstance(logits, Tensor):
            raise ProgramError(f"output {program.output!r}: must be a tensor")
        return torch.Tensor.clone(logits)

    def same_tensors(self, program: Program) -> bool:
        """Return whether the module's tensors equal the program's in every bit.

        Some operations write to a tensor without increasing its version.
        """
        return all(_bits(getattr(self, name)).equal(_bits(tensor)) for name, tensor in program.tensors.items())


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _resolve(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Reference):
        return values[value.name]
    if isinstance(value, list):
        return [_resolve(part, values) for part in value]
    return value
