"""Several networks of one architecture, computed together.

A small network spends its time between operations, not in them. The members of an ensemble therefore share operations,
but no numbers: their weights are stored side by side. The results equal those of one network after another, to
rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.mlp_vgg import MLP, VGG19

Reduce = Literal["mean", "sum"]

# For layers with fewer outputs, whose matrix products have short rows, MKL is up to six times slower.
NARROW = 16


class Stacked(nn.Module):
    """Networks of one architecture; the first dimension of each tensor is that of the members.

    ``stacked(x)`` returns the logits of every member, (members, n, classes), for one batch (n, ...).
    ``stacked(x, separate=True)`` takes one batch per member, (members, n, ...), or one per group, (groups, n, ...).
    Groups are equal in size and consist of members that follow one another.
    """

    def __init__(self, bodies: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = len(bodies)
        states = [body.state_dict() for body in bodies]
        trained = dict(bodies[0].named_parameters())
        for name in states[0]:
            tensor = _stack_tensors([state[name] for state in states])
            if name in trained:
                self.register_parameter(_flat(name), nn.Parameter(tensor))
            else:
                self.register_buffer(_flat(name), tensor)

    def copy_to(self, bodies: Sequence[nn.Module]) -> None:
        """Copy the members' weights and buffers into one network each."""
        for member, body in enumerate(bodies):
            body.load_state_dict({name: getattr(self, _flat(name))[member] for name in body.state_dict()})

    def tensor(self, name: str) -> Tensor:
        """Return the stacked tensor that has this name in a member."""
        found: Tensor = getattr(self, _flat(name))
        return found

    def layer(self, name: str, kind: type[nn.Module], x: Tensor, groups: int) -> Tensor:
        """Apply one layer of all members to maps (n, channels, ...) with the members' channels side by side.

        `groups` is the number of maps side by side in `x`: one per member, one per group, or a single one.
        """
        if kind is nn.Linear:
            return F.linear(x, self.tensor(f"{name}.weight").flatten(0, 1), self.tensor(f"{name}.bias").flatten())
        if kind is nn.Conv2d:
            bias = self.tensor(f"{name}.bias").flatten() if hasattr(self, _flat(f"{name}.bias")) else None
            return F.conv2d(x, self.tensor(f"{name}.weight").flatten(0, 1), bias, padding=1, groups=groups)
        if kind is nn.BatchNorm2d:
            return self._normalise(x, name)
        return F.relu_(x) if kind is nn.ReLU else F.max_pool2d(x, 2)

    def _normalise(self, x: Tensor, name: str) -> Tensor:
        if self.training:
            self.tensor(f"{name}.num_batches_tracked").add_(1)
        mean, variance, weight, bias = (
            self.tensor(f"{name}.{part}").view(-1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, variance, weight, bias, self.training)


class StackedMLP(Stacked):
    """Stacked `MLP`s."""

    layers = ("1", "3", "5")

    def forward(self, x: Tensor, separate: bool = False) -> Tensor:
        """Return the logits (members, n, classes) of normalised inputs, which are flattened here."""
        x = x.flatten(2 if separate else 1)
        for layer in self.layers:
            x = linear_for_members(x, self.tensor(f"{layer}.weight"), self.tensor(f"{layer}.bias"))
            if layer != self.layers[-1]:
                x = F.relu(x)
        return x


class StackedVGG19(Stacked):
    """Stacked `VGG19`s: each convolution becomes a grouped convolution with one group per member."""

    def __init__(self, bodies: Sequence[VGG19]) -> None:
        super().__init__(bodies)
        self._layers: list[tuple[str, type[nn.Module]]] = [
            (f"features.{number}", type(layer)) for number, layer in enumerate(bodies[0].features)
        ]

    def forward(self, x: Tensor, separate: bool = False) -> Tensor:
        """Return the logits (members, n, classes) of normalised images."""
        groups = len(x) if separate else 1  # of the first convolution
        if separate:
            x = x.transpose(0, 1).flatten(1, 2)  # (n, groups · channels, H, W)
        x = x.contiguous(memory_format=torch.channels_last)  # the layout of the weights
        for name, kind in self._layers:
            x, groups = self.layer(name, kind, x, groups), self.members
        x = x.reshape(len(x), self.members, -1).transpose(0, 1)
        return linear_for_members(x, self.tensor("classifier.weight"), self.tensor("classifier.bias"))


class StackedExperts(Stacked):
    """Stacked experts of a mixture: sequential layers, of which only the first can be linear."""

    def __init__(self, experts: Sequence[nn.Module]) -> None:
        super().__init__(experts)
        self._layers = [(name, type(layer)) for name, layer in experts[0].named_children()]

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (n, experts, ...) for one batch (n, ...)."""
        groups = 1
        for name, kind in self._layers:
            x, groups = self.layer(name, kind, x, groups), self.members
        return x.view(len(x), self.members, -1, *x.shape[2:])


class Joint(nn.Module):
    """Stacked networks as one model: the mean or the sum of their logits."""

    def __init__(self, stacked: Stacked, reduce: Reduce) -> None:
        super().__init__()
        self.stacked = stacked
        self.reduce = reduce

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, classes) of normalised inputs (n, ...)."""
        logits: Tensor = self.stacked(x)
        return logits.mean(0) if self.reduce == "mean" else logits.sum(0)


class Mixtures(nn.Module):
    """Several `Joint`s side by side, each of an equal number of stacked networks that follow one another."""

    def __init__(self, stacked: Stacked, reduce: Reduce, mixtures: int) -> None:
        super().__init__()
        self.stacked = stacked
        self.reduce = reduce
        self.members = mixtures

    def forward(self, x: Tensor, separate: bool = False) -> Tensor:
        """Return the logits (members, n, classes), where a member is one mixture; see `Stacked`."""
        logits = in_groups(self.stacked(x, separate), self.members)
        return logits.mean(1) if self.reduce == "mean" else logits.sum(1)


SIDE_BY_SIDE = (Stacked, Mixtures)  # networks that return the logits of each member


def linear_for_members(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a linear layer of all members with weights (members, outputs, inputs): (members, n, outputs).

    `x` is (n, inputs), the same for all members, or (members, n, inputs), or (groups, n, inputs).
    """
    if x.dim() == 2:  # one matrix product for all members
        return F.linear(x, weight.flatten(0, 1), bias.flatten()).view(-1, *bias.shape).transpose(0, 1)
    outputs = bias.shape[1]
    if len(x) < len(weight):
        weight, bias = weight.reshape(len(x), -1, weight.shape[2]), bias.reshape(len(x), -1)
    elif outputs >= NARROW:
        return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
    y = torch.baddbmm(bias[..., None], weight, x.transpose(1, 2))  # (groups, members · outputs, n)
    return y.view(-1, outputs, y.shape[2]).transpose(1, 2)


def in_groups(tensor: Tensor, groups: int) -> Tensor:
    """Return a view in equal groups along the first dimension: (groups · n, ...) -> (groups, n, ...)."""
    return tensor.view(groups, -1, *tensor.shape[1:])


def for_members(y: Tensor, members: int) -> Tensor:
    """Return labels (members, n) from `y` (n,), (groups, n) or (members, n)."""
    if y.dim() == 1:
        return y.expand(members, -1)
    return y if len(y) == members else y[:, None].expand(-1, members // len(y), -1).flatten(0, 1)


def can_stack(bodies: Sequence[nn.Module]) -> bool:
    """Return whether `stack` supports these networks, and there are at least two."""
    kinds = {type(body) for body in bodies}
    return len(bodies) > 1 and len(kinds) == 1 and kinds <= {MLP, VGG19}


def stack(bodies: Sequence[nn.Module]) -> Stacked:
    """Return copies of MLPs, or of VGG19s, side by side; ``copy_to`` copies their weights back."""
    if all(type(body) is MLP for body in bodies):
        return StackedMLP(bodies)
    if all(type(body) is VGG19 for body in bodies):
        return StackedVGG19(bodies)  # type: ignore[arg-type]
    kinds = ", ".join(sorted({type(body).__name__ for body in bodies}))
    raise TypeError(f"networks of type {kinds}: only MLPs or VGG19s can train together; set together=False")


def _stack_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors. Convolution weights of all members together get the memory layout of a single weight."""
    if tensors[0].dim() < 4:
        return torch.stack(list(tensors))
    return torch.stack([tensor.permute(0, 2, 3, 1) for tensor in tensors]).permute(0, 1, 4, 2, 3)


def _flat(name: str) -> str:
    return name.replace(".", "_")
