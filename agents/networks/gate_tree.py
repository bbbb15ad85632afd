"""A mixture of experts with a tree of gates (ALMA paper, section 4, growing mixture of experts).

out(leaf j, z) = h_j(z)
out(node v, z) = g_v(0|z) · out(left(v), z) + g_v(1|z) · out(right(v), z),   g_v(·|z) = softmax(W_v φ(z) + b_v)

The output is out(root, z) = Σ_j π_j(z) h_j(z), where π_j is the product of the gate probabilities on the path to leaf
j. A leaf is split into itself and a copy under a new gate, which changes no output, whatever the gate says.

A tree is written down as its *splits*: the leaf, counted from the left, that each split divided in two. Split i made
gate i. Leaf s became leaves s and s + 1, and those to its right moved up by one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks import linear

MakeExpert = Callable[[torch.Generator], nn.Module]  # an untrained expert, its weights drawn from the generator


@dataclass(frozen=True)
class Routing:
    """How examples reach the experts of a layer.

    Attributes:
        gating: ``soft``: every example goes to all experts, weighted by π. ``hard``: to one; in training it is drawn
            gate by gate, at test it is found by greedy descent, at each node the likelier child (tie: left).
        straight_through: the gradient of hard gates. ``dense`` runs all experts in training, so that a gate hears of
            both children; ``sparse`` runs the drawn one alone, so that it hears of that one alone, which is biased.
        tree: False is the flat ablation, one softmax over all experts, whose growth changes the function.
    """

    gating: Literal["soft", "hard"] = "soft"
    straight_through: Literal["dense", "sparse"] = "dense"
    tree: bool = True

    def __post_init__(self) -> None:
        for name, choices in (("gating", ("soft", "hard")), ("straight_through", ("dense", "sparse"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(choices)}")
        if self.gating == "hard" and not self.tree:
            raise ValueError("tree=False with gating='hard': the flat ablation is soft; use gating='soft' or tree=True")


class MixtureLayer(nn.Module):
    """A layer whose leaves, from left to right, are `experts`; it begins with one leaf, which is the plain layer.

    Args:
        make_expert: makes an expert; it must survive pickling. All experts have the same architecture.
        features: d_φ, the number of values that the gates see of each example.
        summary: φ, from the layer's input to (n, d_φ); nothing stands for the input itself.
        generator: of the first expert's weights.

    Attributes:
        gates: all gates, one beside the other in the order of the splits: two outputs each; None for one leaf. In the
            flat layer there is one gate with an output per expert.
        routing: may be set while there is one leaf.
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

    def forward(self, z: Tensor, draws: Tensor | None = None) -> Tensor:
        """(n, ...) -> (n, ...).

        `draws` (n, gates) are the uniform numbers of [0, 1) that decide a hard route in training, to the right where
        below g_v(1|z); where not given, they come from the global generator.
        """
        if len(self.experts) == 1:
            plain: Tensor = self.experts[0](z)
            return plain
        if self.routing.gating == "soft":
            return self._blend(z, self._probabilities(z))
        if self.training and self.routing.straight_through == "dense":
            probabilities = self._probabilities(z)
            return self._blend(z, _straight_through(probabilities, _draws(probabilities.shape, z, draws)))
        return self._dispatch(z, *self._descend(z, draws))

    def forward_with_shares(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and each leaf's share of each example (n, leaves): π, or one-hot where the gating is hard."""
        if len(self.experts) == 1:
            return self.experts[0](z), z.new_ones(z.shape[0], 1)
        if self.routing.gating == "soft":
            probabilities = self._probabilities(z)
            return self._blend(z, probabilities), self._shares(probabilities)
        leaf, weight = self._descend(z, None)
        return self._dispatch(z, leaf, weight), F.one_hot(leaf, len(self.experts)).to(z.dtype)

    def leaf_probabilities(self, z: Tensor) -> Tensor:
        """π (n, leaves), which sums to 1 over the leaves."""
        return z.new_ones(z.shape[0], 1) if len(self.experts) == 1 else self._shares(self._probabilities(z))

    def split(self, leaf: int, generator: torch.Generator) -> None:
        """Replace a leaf by a node with a new gate; its left leaf is the old one, its right leaf a copy of it."""
        self._require_leaf(leaf)
        self.branch(leaf, copy.deepcopy(self.experts[leaf]), generator)

    def branch(self, leaf: int, expert: nn.Module, generator: torch.Generator) -> None:
        """As `split`, with an expert of one's own on the right. The flat layer takes it as its last."""
        self._require_leaf(leaf)
        tree = self.routing.tree
        gate = linear(self.features, 2 if tree or self.gates is None else 1, generator)
        gate.to(next(self.experts.parameters()))
        self.gates = gate if self.gates is None else _beside(self.gates, gate)
        self.experts.insert(leaf + 1 if tree else len(self.experts), expert)
        self.splits += (leaf,)

    def regrow(self, splits: tuple[int, ...], generator: torch.Generator) -> None:
        """Split on until the tree is that of `splits`, with untrained experts.

        Raises:
            ValueError: the tree has already grown otherwise.
        """
        if splits[: len(self.splits)] != self.splits:
            raise ValueError(
                f"splits={splits}: the layer has been split at {self.splits} already; begin with a new one, of as many "
                "initial experts as the saved one had"
            )
        for leaf in splits[len(self.splits) :]:
            expert = self.make_expert(generator).to(next(self.experts.parameters()))
            self.branch(leaf, expert.train(self.training), generator)

    def _probabilities(self, z: Tensor) -> Tensor:
        """(n, gates): of the right child, for every gate. Flat: (n, experts)."""
        assert self.gates is not None
        logits: Tensor = self.gates(self.summary(z))
        if not self.routing.tree:
            return logits.softmax(1)
        return logits.view(z.shape[0], -1, 2).softmax(2)[..., 1]

    def _shares(self, probabilities: Tensor) -> Tensor:
        if not self.routing.tree:
            return probabilities
        shares = [torch.ones_like(probabilities[:, 0])]
        for leaf, right in zip(self.splits, probabilities.unbind(1), strict=True):
            shares[leaf : leaf + 1] = [shares[leaf] * (1 - right), shares[leaf] * right]
        return torch.stack(shares, 1)

    def _blend(self, z: Tensor, probabilities: Tensor) -> Tensor:
        """Run all experts on all examples and weigh them."""
        outputs: list[Tensor] = [expert(z) for expert in self.experts]
        like = outputs[0]
        columns = probabilities.to(like.dtype).view(z.shape[0], -1, *(1,) * (like.dim() - 1)).unbind(1)
        if not self.routing.tree:
            return torch.stack([weight * output for weight, output in zip(columns, outputs, strict=True)]).sum(0)
        # The last split made two leaves that stand side by side; joined, they leave the tree from before that split.
        # lerp(a, b, g) = (1 − g) a + g b, and exactly a where b = a.
        for leaf, right in zip(reversed(self.splits), reversed(columns), strict=True):
            outputs[leaf : leaf + 2] = [torch.lerp(outputs[leaf], outputs[leaf + 1], right)]
        return outputs[0]

    def _descend(self, z: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The leaf that each example ends in (n,), running only the gates on its way; drawn in training, else greedy.

        In training also its weight (n,): 1, with the gradient of the product of the gate probabilities passed through.
        """
        assert self.gates is not None
        features = self.summary(z)
        leaf = torch.zeros(z.shape[0], dtype=torch.int64, device=z.device)
        weight = features.new_ones(z.shape[0]) if self.training else None
        if self.training:
            draws = _draws((z.shape[0], len(self.splits)), z, draws)
        for node, divided in enumerate(self.splits):
            here = (leaf == divided).nonzero().squeeze(1)
            gate = slice(2 * node, 2 * node + 2)
            logits = F.linear(features.index_select(0, here), self.gates.weight[gate], self.gates.bias[gate])
            if draws is not None and weight is not None:
                probability = logits.softmax(1)[:, 1]
                right = draws[:, node].index_select(0, here) < probability
                taken = torch.where(right, probability, 1 - probability)
                # Of a product of ones the gradient is the sum of the factors' gradients.
                weight = weight.index_add(0, here, (taken - taken.detach()).to(weight.dtype))
            else:
                right = logits[:, 1] > logits[:, 0]
            leaf = (leaf + (leaf > divided)).index_add(0, here, right.to(leaf.dtype))
        return leaf, weight

    def _dispatch(self, z: Tensor, leaf: Tensor, weight: Tensor | None) -> Tensor:
        """Run each expert on the examples of its leaf alone."""
        outputs, order = [], []
        for number, expert in enumerate(self.experts):
            rows = (leaf == number).nonzero().squeeze(1)
            if torch.compiler.is_exporting() and any(isinstance(part, nn.Conv2d) for part in expert.modules()):
                # In an exported program, whose one graph serves all routes, no convolution may be empty: a spare row
                # for each expert, which costs as much as an example.
                outputs.append(expert(z.index_select(0, torch.cat([rows, rows.new_zeros(1)])))[:-1])
            elif self.training and not len(rows):
                continue  # BatchNorm has no statistics of nothing
            else:
                outputs.append(expert(z.index_select(0, rows)))
            order.append(rows)
        merged = torch.cat(outputs).index_select(0, torch.cat(order).argsort())
        return merged if weight is None else merged * weight.to(merged.dtype).view(-1, *(1,) * (merged.dim() - 1))

    def _require_leaf(self, leaf: int) -> None:
        if not 0 <= leaf < len(self.experts):
            raise ValueError(f"leaf={leaf}: the layer has leaves 0 to {len(self.experts) - 1}; choose one of them")


def leaf_paths(splits: tuple[int, ...]) -> list[list[int]]:
    """The way to each leaf, from left to right: 2 i for left at gate i, 2 i + 1 for right."""
    paths: list[list[int]] = [[]]
    for gate, leaf in enumerate(splits):
        paths[leaf : leaf + 1] = [[*paths[leaf], 2 * gate], [*paths[leaf], 2 * gate + 1]]
    return paths


def balanced_splits(leaves: int) -> tuple[int, ...]:
    """A tree with this many leaves: always the highest leaf is split, the leftmost among several."""
    splits: tuple[int, ...] = ()
    while len(splits) < leaves - 1:
        depths = list(map(len, leaf_paths(splits)))
        splits += (depths.index(min(depths)),)
    return splits


def _draws(shape: tuple[int, ...], z: Tensor, draws: Tensor | None) -> Tensor:
    if draws is None:
        return torch.rand(shape, device=z.device)  # of the global generator, which a stage seeds
    if draws.shape != shape:
        raise ValueError(f"draws of shape {tuple(draws.shape)}: give one per example and gate, {tuple(shape)}")
    return draws


def _straight_through(probabilities: Tensor, draws: Tensor) -> Tensor:
    """1 where the right child is drawn, else 0, with the gradient of the probabilities."""
    return (draws < probabilities).to(probabilities.dtype) + (probabilities - probabilities.detach())


def _beside(first: nn.Linear, second: nn.Linear) -> nn.Linear:
    """One linear layer with the outputs of both."""
    both = nn.Linear(first.in_features, first.out_features + second.out_features, device="meta")  # draws nothing
    both.weight = nn.Parameter(torch.cat([first.weight, second.weight]).detach())
    both.bias = nn.Parameter(torch.cat([first.bias, second.bias]).detach())
    return both
