"""A mixture of experts with a tree of gates (ALMA paper, section 4, growing mixture of experts).

out(leaf j, z) = h_j(z)
out(node v, z) = g_v(0|z) · out(left(v), z) + g_v(1|z) · out(right(v), z),   g_v(·|z) = softmax(W_v φ(z) + b_v)

The output is out(root, z) = Σ_j π_j(z) h_j(z), where π_j is the product of the gate probabilities on the path to leaf
j. A split replaces a leaf by a new gate with the leaf and a copy of it. It changes no output for any gate probability.

A tree is described by its *splits*: for each split, the number of the leaf that was split, counted from the left.
Split i created gate i. Leaf s became leaves s and s + 1, and the leaves to its right were renumbered.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.growing_layer import missing_splits, require_leaf
from agents.networks.mlp_vgg import linear
from agents.policies.validation import check_choices

MakeExpert = Callable[[torch.Generator], nn.Module]  # creates an untrained expert, its weights from the generator


@dataclass(frozen=True)
class Routing:
    """How examples reach the experts of a layer.

    Attributes:
        gating: ``soft`` sends every example to all experts, weighted by π. ``hard`` sends it to one expert. In training
            that expert is drawn gate by gate; at test each node takes the more probable child (tie: left).
        straight_through: the gradient of hard gates. ``dense`` runs all experts in training, so that a gate's gradient
            depends on both children. ``sparse`` runs only the drawn expert, which biases the gradient.
        tree: False is the flat ablation: one softmax over all experts, so that growth changes the function.
    """

    gating: Literal["soft", "hard"] = "soft"
    straight_through: Literal["dense", "sparse"] = "dense"
    tree: bool = True

    def __post_init__(self) -> None:
        check_choices(vars(self), get_type_hints(Routing))
        if self.gating == "hard" and not self.tree:
            raise ValueError(
                "tree=False with gating='hard': the flat ablation needs soft gates; use gating='soft' or tree=True"
            )


class MixtureLayer(nn.Module):
    """A layer whose leaves, from left to right, are `experts`. Initially it has one leaf, which is the plain layer.

    Args:
        make_expert: creates an expert; it must be picklable. All experts have the same architecture.
        features: d_φ, the number of inputs of a gate per example.
        summary: φ, a module from the layer's input to (n, d_φ); None is the identity.
        generator: for the weights of the first expert.

    Attributes:
        gates: one linear layer of all gates, two outputs per gate in the order of the splits; None for one leaf. The
            flat layer has one gate with an output per expert.
        routing: can be set while there is one leaf.
    """

    gates: nn.Linear | None

    def __init__(
        self, make_expert: MakeExpert, features: int, summary: nn.Module | None = None, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.make_expert = make_expert
        self.features = features
        self.summary = nn.Identity() if summary is None else summary
        self.routing = Routing()
        self.experts = nn.ModuleList([make_expert(generator)])
        self.gates = None
        self.splits: tuple[int, ...] = ()

    @property
    def leaves(self) -> int:
        """Number of experts."""
        return len(self.experts)

    def forward(self, z: Tensor) -> Tensor:
        """Return the output (n, ...) for an input (n, ...). In training, hard gates draw from the global generator."""
        if self.leaves == 1:
            plain: Tensor = self.experts[0](z)
            return plain
        if self.routing.gating == "soft":
            return self._blend(z, self._probabilities(z))
        if self.training and self.routing.straight_through == "dense":
            probabilities = self._probabilities(z)
            return self._blend(z, _straight_through(probabilities))
        return self._dispatch(z, *self._descend(z))

    def forward_with_shares(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output, and each leaf's share of each example (n, leaves): π, or one-hot with hard gates."""
        if self.leaves == 1:
            return self.experts[0](z), z.new_ones(z.shape[0], 1)
        if self.routing.gating == "soft":
            probabilities = self._probabilities(z)
            return self._blend(z, probabilities), self._shares(probabilities)
        leaf, weight = self._descend(z)
        return self._dispatch(z, leaf, weight), F.one_hot(leaf, self.leaves).to(z.dtype)

    def leaf_probabilities(self, z: Tensor) -> Tensor:
        """Return π (n, leaves), which sums to 1 over the leaves."""
        return z.new_ones(z.shape[0], 1) if self.leaves == 1 else self._shares(self._probabilities(z))

    def split(self, leaf: int, generator: torch.Generator) -> None:
        """Replace a leaf by a node with a new gate, the old leaf on the left and a copy on the right."""
        require_leaf(self, leaf)
        self.branch(leaf, copy.deepcopy(self.experts[leaf]), generator)

    def branch(self, leaf: int, expert: nn.Module, generator: torch.Generator) -> None:
        """Split a leaf with a given expert on the right. The flat layer appends the expert."""
        require_leaf(self, leaf)
        tree = self.routing.tree
        gate = linear(self.features, 2 if tree or self.gates is None else 1, generator)
        gate.to(next(self.experts.parameters()))
        self.gates = gate if self.gates is None else _join_outputs(self.gates, gate)
        self.experts.insert(leaf + 1 if tree else self.leaves, expert)
        self.splits += (leaf,)

    def regrow(self, splits: tuple[int, ...], generator: torch.Generator) -> None:
        """Add untrained experts until the tree has these splits. Raise ValueError if it already has other splits."""
        for leaf in missing_splits(self, splits):
            expert = self.make_expert(generator).to(next(self.experts.parameters()))
            self.branch(leaf, expert.train(self.training), generator)

    def _probabilities(self, z: Tensor) -> Tensor:
        """Return the probability of the right child of every gate (n, gates); flat: (n, experts)."""
        assert self.gates is not None
        logits: Tensor = self.gates(self.summary(z))
        if not self.routing.tree:
            return logits.softmax(1)
        return logits.view(z.shape[0], len(self.splits), 2).softmax(2)[..., 1]

    def _shares(self, probabilities: Tensor) -> Tensor:
        if not self.routing.tree:
            return probabilities
        shares = [torch.ones_like(probabilities[:, 0])]
        for leaf, right in zip(self.splits, probabilities.unbind(1), strict=True):
            shares[leaf : leaf + 1] = [shares[leaf] * (1 - right), shares[leaf] * right]
        return torch.stack(shares, 1)

    def _blend(self, z: Tensor, probabilities: Tensor) -> Tensor:
        """Run all experts on all examples and return their weighted sum."""
        outputs = _outputs(self.experts, z)
        like = outputs[0]
        columns = probabilities.to(like.dtype).view(*probabilities.shape, *(1,) * (like.dim() - 1)).unbind(1)
        if not self.routing.tree:
            return torch.stack([weight * output for weight, output in zip(columns, outputs, strict=True)]).sum(0)
        # The last split created two adjacent leaves. Combining them gives the tree before that split.
        # lerp(a, b, g) = (1 − g) a + g b, and exactly a if b = a.
        for leaf, right in zip(reversed(self.splits), reversed(columns), strict=True):
            outputs[leaf : leaf + 2] = [torch.lerp(outputs[leaf], outputs[leaf + 1], right)]
        return outputs[0]

    def _descend(self, z: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the leaf of each example (n,): drawn in training, greedy at test. Only gates on its path are run.

        In training, also return a weight (n,) that is 1 and has the gradient of the product of the gate probabilities.
        """
        assert self.gates is not None
        features = self.summary(z)
        leaf = torch.zeros(z.shape[0], dtype=torch.int64, device=z.device)
        draws = torch.rand((z.shape[0], len(self.splits)), device=z.device) if self.training else None
        weight = features.new_ones(z.shape[0]) if self.training else None
        for node, divided in enumerate(self.splits):
            here = (leaf == divided).nonzero().squeeze(1)
            gate = slice(2 * node, 2 * node + 2)
            logits = F.linear(features.index_select(0, here), self.gates.weight[gate], self.gates.bias[gate])
            if draws is not None and weight is not None:
                probability = logits.softmax(1)[:, 1]
                right = draws[:, node].index_select(0, here) < probability
                taken = torch.where(right, probability, 1 - probability)
                # The gradient of a product of ones is the sum of the gradients of its factors.
                weight = weight.index_add(0, here, (taken - taken.detach()).to(weight.dtype))
            else:
                right = logits[:, 1] > logits[:, 0]
            leaf = (leaf + (leaf > divided)).index_add(0, here, right.to(leaf.dtype))
        return leaf, weight

    def _dispatch(self, z: Tensor, leaf: Tensor, weight: Tensor | None) -> Tensor:
        """Run each expert on the examples of its leaf only."""
        outputs, order = [], []
        for number, expert in enumerate(self.experts):
            rows = (leaf == number).nonzero().squeeze(1)
            if torch.compiler.is_exporting() and any(isinstance(part, nn.Conv2d) for part in expert.modules()):
                # An exported program has one graph for all routes, and its convolutions cannot have empty inputs. So
                # each expert gets a spare row, which costs as much as an example.
                outputs.append(expert(z.index_select(0, torch.cat([rows, rows.new_zeros(1)])))[:-1])
            elif self.training and not len(rows):
                continue  # BatchNorm cannot compute statistics of 0 examples
            else:
                outputs.append(expert(z.index_select(0, rows)))
            order.append(rows)
        merged = torch.cat(outputs).index_select(0, torch.cat(order).argsort())
        return merged if weight is None else merged * weight.to(merged.dtype).view(-1, *(1,) * (merged.dim() - 1))


def leaf_paths(splits: tuple[int, ...]) -> list[list[int]]:
    """Return the path to each leaf, from left to right: 2 i for left at gate i, 2 i + 1 for right."""
    paths: list[list[int]] = [[]]
    for gate, leaf in enumerate(splits):
        paths[leaf : leaf + 1] = [[*paths[leaf], 2 * gate], [*paths[leaf], 2 * gate + 1]]
    return paths


def balanced_splits(leaves: int) -> tuple[int, ...]:
    """Return the splits of a tree with this many leaves, each time of the highest leaf (ties: the leftmost)."""
    splits: tuple[int, ...] = ()
    while len(splits) < leaves - 1:
        depths = list(map(len, leaf_paths(splits)))
        splits += (depths.index(min(depths)),)
    return splits


def _outputs(experts: nn.ModuleList, z: Tensor) -> list[Tensor]:
    """Return the output of each expert.

    Experts of a linear layer with ReLU run as one batched product, because hundreds of separate calls take longer than
    their products. In a batch, an expert and its copy have equal outputs. The output of a separate call may differ in
    the last bits.
    """
    linear = [layer for expert in experts for layer in _linear_of(expert)]
    if z.dim() != 2 or len(linear) < len(experts):
        return [expert(z) for expert in experts]
    weight = torch.stack([layer.weight for layer in linear])  # (experts, outputs, inputs)
    bias = torch.stack([layer.bias for layer in linear])
    sums = torch.baddbmm(bias[:, None], z.expand(len(experts), -1, -1), weight.transpose(1, 2))
    return list(F.relu(sums).unbind())


def _linear_of(expert: nn.Module) -> list[nn.Linear]:
    """Return the linear layer of an expert that is a linear layer with ReLU, and no layer of any other expert."""
    layers = list(expert) if type(expert) is nn.Sequential else []
    if [type(layer) for layer in layers] != [nn.Linear, nn.ReLU]:
        return []
    return [layer for layer in layers if isinstance(layer, nn.Linear) and layer.bias is not None]


def _straight_through(probabilities: Tensor) -> Tensor:
    """Draw children; return 1 for each right child and 0 for each left one, with the gradient of the probabilities."""
    draws = torch.rand(probabilities.shape, device=probabilities.device)
    return (draws < probabilities).to(probabilities.dtype) + (probabilities - probabilities.detach())


def _join_outputs(first: nn.Linear, second: nn.Linear) -> nn.Linear:
    """Return one linear layer with the outputs of both."""
    # The meta device draws no initial weights.
    both = nn.Linear(first.in_features, first.out_features + second.out_features, device="meta")
    both.weight = nn.Parameter(torch.cat([first.weight, second.weight]).detach())
    both.bias = nn.Parameter(torch.cat([first.bias, second.bias]).detach())
    return both
