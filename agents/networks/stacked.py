"""Several networks of one architecture, computed at once.

A small network spends its time between operations, not in them; the members of an ensemble therefore share theirs. The
numbers are those of one network after another, to rounding: their weights lie side by side, nothing is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks import MLP, VGG19

Reduce = Literal["mean", "sum"]

# Of layers with fewer outputs, MKL takes up to six times as long for products whose rows are as short as these.
NARROW = 16


class Stacked(nn.Module):
    """Networks of one architecture; each tensor has a first dimension for the members.

    ``stacked(x)`` answers one batch (n, ...) with the logits of every member, (members, n, classes);
    ``stacked(x, separate=True)`` answers a batch of its own for each member, (members, n, ...), or for each of equal
    groups of members that follow one another, (groups, n, ...).
    """

    def __init__(self, bodies: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = len(bodies)
        states = [body.state_dict() for body in bodies]
        trained = dict(bodies[0].named_parameters())
        for name in states[0]:
            tensor = _beside([state[name] for state in states])
            if name in trained:
                self.register_parameter(_flat(name), nn.Parameter(tensor))
            else:
                self.register_buffer(_flat(name), tensor)

    def hand_back(self, bodies: Sequence[nn.Module]) -> None:
        """Copy the members' weights and buffers into the networks that they came from."""
        for member, body in enumerate(bodies):
            body.load_state_dict({name: getattr(self, _flat(name))[member] for name in body.state_dict()})

    def tensor(self, name: str) -> Tensor:
        """The stacked tensor of the name that it has in a member."""
        found: Tensor = getattr(self, _flat(name))
        return found

    def layer(self, name: str, kind: type[nn.Module], x: Tensor, groups: int) -> Tensor:
        """One layer of all members on maps (n, channels, ...) that hold the members' channels side by side.

        `groups` is how many maps lie side by side in `x`: one per member, or one for all, or for a group, of them.
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
    """Members that are `MLP`s."""

    layers = ("1", "3", "5")

    def forward(self, x: Tensor, separate: bool = False) -> Tensor:
        """Normalised inputs, flattened here -> (members, n, classes)."""
        x = x.flatten(2 if separate else 1)
        for layer in self.layers:
            x = linear(x, self.tensor(f"{layer}.weight"), self.tensor(f"{layer}.bias"))
            if layer != self.layers[-1]:
                x = F.relu(x)
        return x


class StackedVGG19(Stacked):
    """Members that are `VGG19`s: each convolution becomes one with a group of channels per member."""

    def __init__(self, bodies: Sequence[VGG19]) -> None:
        super().__init__(bodies)
        self._layers: list[tuple[str, type[nn.Module]]] = [
            (f"features.{number}", type(layer)) for number, layer in enumerate(bodies[0].features)
        ]

    def forward(self, x: Tensor, separate: bool = False) -> Tensor:
        """Normalised images -> (members, n, classes)."""
        groups = len(x) if separate else 1  # of the first convolution
        if separate:
            x = x.transpose(0, 1).flatten(1, 2)  # (n, groups · channels, H, W)
        x = x.contiguous(memory_format=torch.channels_last)  # as the weights are
        for name, kind in self._layers:
            x, groups = self.layer(name, kind, x, groups), self.members
        x = x.reshape(len(x), self.members, -1).transpose(0, 1)
        return linear(x, self.tensor("classifier.weight"), self.tensor("classifier.bias"))


class StackedExperts(Stacked):
    """Members that are experts of a mixture: layers one after another, of which only the first may be linear."""

    def __init__(self, experts: Sequence[nn.Module]) -> None:
        super().__init__(experts)
        self._layers = [(name, type(layer)) for name, layer in experts[0].named_children()]

    def forward(self, x: Tensor) -> Tensor:
        """One batch (n, ...) for all experts -> (n, experts, ...)."""
        groups = 1
        for name, kind in self._layers:
            x, groups = self.layer(name, kind, x, groups), self.members
        return x.view(len(x), self.members, -1, *x.shape[2:])


class Joint(nn.Module):
    """Stacked networks that answer as one: the mean or the sum of their logits, (n, classes)."""

    def __init__(self, stacked: Stacked, reduce: Reduce) -> None:
        super().__init__()
        self.stacked = stacked
        self.reduce = reduce

    def forward(self, x: Tensor) -> Tensor:
        """Normalised (n, ...) -> (n, classes)."""
        logits: Tensor = self.stacked(x)
        return logits.mean(0) if self.reduce == "mean" else logits.sum(0)


class Mixtures(nn.Module):
    """Several `Joint`s side by side, each of as many stacked networks that follow one another."""

    def __init__(self, stacked: Stacked, reduce: Reduce, mixtures: int) -> None:
        super().__init__()
        self.stacked = stacked
        self.reduce = reduce
        self.members = mixtures

    def forward(self, x: Tensor, separate: bool = False) -> Tensor:
        """As `Stacked`, with a mixture for each member: (members, n, classes)."""
        logits = in_groups(self.stacked(x, separate), self.members)
        return logits.mean(1) if self.reduce == "mean" else logits.sum(1)


SIDE_BY_SIDE = (Stacked, Mixtures)  # networks that answer with logits of each member


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer of all members, (members, n, outputs), with weights (members, outputs, inputs).

    `x` is (n, inputs), the same for all members, or (members, n, inputs), or (groups, n, inputs), each the same for a
    group of members that follow one another.
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
    """Equal groups along the first dimension, as a view: (groups · n, ...) -> (groups, n, ...)."""
    return tensor.view(groups, -1, *tensor.shape[1:])


def for_members(y: Tensor, members: int) -> Tensor:
    """Labels (members, n) of `y` (n,), the same for all, or (groups, n), the same for a group."""
    if y.dim() == 1:
        return y.expand(members, -1)
    return y if len(y) == members else y[:, None].expand(-1, members // len(y), -1).flatten(0, 1)


def can_stack(bodies: Sequence[nn.Module]) -> bool:
    """Whether there are several networks of one architecture that this file knows."""
    kinds = {type(body) for body in bodies}
    return len(bodies) > 1 and len(kinds) == 1 and kinds <= {MLP, VGG19}


def stack(bodies: Sequence[nn.Module]) -> Stacked:
    """Copies of the networks, side by side; ``hand_back`` returns what they have become.

    Raises:
        TypeError: they are not all MLPs, or all VGG19s.
    """
    if all(type(body) is MLP for body in bodies):
        return StackedMLP(bodies)
    if all(type(body) is VGG19 for body in bodies):
        return StackedVGG19(bodies)  # type: ignore[arg-type]
    kinds = ", ".join(sorted({type(body).__name__ for body in bodies}))
    raise TypeError(f"networks of type {kinds}: only MLPs or VGG19s can be computed at once; train one after another")


def _beside(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors stacked; convolution weights so that all members' together lie as a single one's do."""
    if tensors[0].dim() < 4:
        return torch.stack(list(tensors))
    return torch.stack([tensor.permute(0, 2, 3, 1) for tensor in tensors]).permute(0, 1, 4, 2, 3)


def _flat(name: str) -> str:
    return name.replace(".", "_")
