"""A soft mixture of experts whose experts are computed together during a stage.

The results equal those of `agents.networks.mixture`, to rounding. The experts' weights are stored side by side, and the
output Σ_j π_j h_j is computed with the leaves' shares π_j instead of node by node.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from agents.networks.gate_tree import MixtureLayer, leaf_paths
from agents.networks.mixture import MixtureMLP, MixtureNetwork, MixtureVGG19
from agents.networks.stacked import StackedExperts


class StackedMixtureLayer(nn.Module):
    """A `MixtureLayer` with soft gates and at least two experts."""

    paths: Tensor

    def __init__(self, layer: MixtureLayer) -> None:
        super().__init__()
        self.experts = StackedExperts(list(layer.experts))
        self.gates = copy.deepcopy(layer.gates)
        self.summary = layer.summary
        self.tree = layer.routing.tree
        paths = leaf_paths(layer.splits)
        zero = 2 * len(layer.splits)  # index of a column of zeros, which pads short paths
        longest = max(map(len, paths))
        table = torch.tensor([path + [zero] * (longest - len(path)) for path in paths])
        self.register_buffer("paths", table.to(next(layer.parameters()).device), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Return the mixture's output (n, ...) for an input (n, ...)."""
        shares = self._shares(z)
        outputs = self.experts(z)  # (n, leaves, ...)
        blended: Tensor = (outputs * shares.to(outputs.dtype).view(*shares.shape, *(1,) * (outputs.dim() - 2))).sum(1)
        return blended.contiguous(memory_format=torch.channels_last) if blended.dim() == 4 else blended

    def _shares(self, z: Tensor) -> Tensor:
        """Return π (n, leaves), the exponential of the sum of log gate probabilities along each path."""
        assert self.gates is not None
        logits: Tensor = self.gates(self.summary(z))
        if not self.tree:
            return logits.softmax(1)
        logarithms = logits.view(len(z), -1, 2).log_softmax(2).flatten(1)
        columns = torch.cat([logarithms, logarithms.new_zeros(len(z), 1)], 1).index_select(1, self.paths.flatten())
        return columns.view(len(z), *self.paths.shape).sum(2).exp()

    def copy_to(self, layer: MixtureLayer) -> None:
        """Copy the weights and buffers of the experts and gates into `layer`."""
        self.experts.copy_to(list(layer.experts))
        assert self.gates is not None
        assert layer.gates is not None
        layer.gates.load_state_dict(self.gates.state_dict())


class StackedMixture(nn.Sequential):
    """A copy of a mixture network that computes each mixture's experts together."""

    def __init__(self, body: MixtureNetwork) -> None:
        super().__init__(
            *(StackedMixtureLayer(layer) if isinstance(layer, MixtureLayer) else copy.deepcopy(layer) for layer in body)
        )

    def copy_to(self, body: MixtureNetwork) -> None:
        """Copy the weights and buffers into `body`."""
        for ours, layer in zip(self, body, strict=True):
            if isinstance(ours, StackedMixtureLayer):
                assert isinstance(layer, MixtureLayer)
                ours.copy_to(layer)
            else:
                layer.load_state_dict(ours.state_dict())


def can_stack_experts(body: MixtureNetwork) -> bool:
    """Return whether each mixture has at least two experts and sends every example to all of them."""
    return isinstance(body, MixtureMLP | MixtureVGG19) and all(
        layer.routing.gating == "soft" and len(layer.experts) > 1 for layer in body.mixtures
    )
