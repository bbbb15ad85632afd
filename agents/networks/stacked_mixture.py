"""A soft mixture of experts whose experts are computed at once, for the time of a stage.

The numbers are those of `agents.mixture_networks`, to rounding: the experts' weights lie side by side, and the output
Σ_j π_j h_j is taken with the leaves' shares π_j instead of node by node.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from agents.mixture_networks import MixtureMLP, MixtureNetwork, MixtureVGG19
from agents.stacked import StackedExperts
from agents.tree import MixtureLayer, leaf_paths


class StackedMixtureLayer(nn.Module):
    """A `MixtureLayer` of two experts or more with soft gates."""

    paths: Tensor

    def __init__(self, layer: MixtureLayer) -> None:
        super().__init__()
        self.experts = StackedExperts(list(layer.experts))
        self.gates = copy.deepcopy(layer.gates)
        self.summary = layer.summary
        self.tree = layer.routing.tree
        paths = leaf_paths(layer.splits)
        nothing = 2 * len(layer.splits)  # a column that adds nothing, where a path is shorter than others
        longest = max(map(len, paths))
        table = torch.tensor([path + [nothing] * (longest - len(path)) for path in paths])
        self.register_buffer("paths", table.to(next(layer.parameters()).device), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """(n, ...) -> (n, ...)."""
        shares = self._shares(z)
        outputs = self.experts(z)  # (n, leaves, ...)
        blended: Tensor = (outputs * shares.to(outputs.dtype).view(*shares.shape, *(1,) * (outputs.dim() - 2))).sum(1)
        return blended.contiguous(memory_format=torch.channels_last) if blended.dim() == 4 else blended

    def _shares(self, z: Tensor) -> Tensor:
        """π (n, leaves): along its path, the sum of the logarithms of the gate probabilities."""
        assert self.gates is not None
        logits: Tensor = self.gates(self.summary(z))
        if not self.tree:
            return logits.softmax(1)
        logarithms = logits.view(len(z), -1, 2).log_softmax(2).flatten(1)
        columns = torch.cat([logarithms, logarithms.new_zeros(len(z), 1)], 1).index_select(1, self.paths.flatten())
        return columns.view(len(z), *self.paths.shape).sum(2).exp()

    def hand_back(self, layer: MixtureLayer) -> None:
        """Copy what the experts and gates have become into the layer that they came from."""
        self.experts.hand_back(list(layer.experts))
        assert self.gates is not None
        assert layer.gates is not None
        layer.gates.load_state_dict(self.gates.state_dict())


class StackedMixture(nn.Sequential):
    """A copy of a mixture network in which each mixture's experts are computed at once."""

    def __init__(self, body: MixtureNetwork) -> None:
        super().__init__(
            *(StackedMixtureLayer(layer) if isinstance(layer, MixtureLayer) else copy.deepcopy(layer) for layer in body)
        )

    def hand_back(self, body: MixtureNetwork) -> None:
        """Copy the weights and buffers into the network that they came from."""
        for ours, layer in zip(self, body, strict=True):
            if isinstance(ours, StackedMixtureLayer):
                assert isinstance(layer, MixtureLayer)
                ours.hand_back(layer)
            else:
                layer.load_state_dict(ours.state_dict())


def can_stack_experts(body: MixtureNetwork) -> bool:
    """Whether all experts of each mixture see every example, and there are two or more of them."""
    return isinstance(body, MixtureMLP | MixtureVGG19) and all(
        layer.routing.gating == "soft" and len(layer.experts) > 1 for layer in body.mixtures
    )
