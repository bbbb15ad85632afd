"""A forest of decision trees as a module: the trees of scikit-learn, with the FLOPs and the size that they have here.

A tree with L leaves has L − 1 decisions. Its size is 4 numbers per decision (feature, threshold, two next nodes), one
number per class and leaf, and the root. A decision is charged as a product of two numbers, (x_f, 1) · (1, −t), which is
4 FLOPs, at every level down to the deepest leaf of the forest. The mean over the trees is a product, too:
inference takes T · (4 · depth + 2 · classes) FLOPs for T trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_SMALLEST = 1e-6  # a probability of 0 has a finite logarithm


class Forest(nn.Module):
    """Maps inputs (n, ...) to logits (n, classes): the logarithm of the mean of the trees' probabilities.

    The leaves of all trees are the nodes 0..L−1, and the decisions are the nodes from L on.

    Args:
        roots: (T,) int64, the first node of each tree.
        features: (D,) int64, the feature of each decision.
        thresholds: (D,) float32; a decision goes to the first child if the feature is at most the threshold.
        branches: (D, 2) int64, the next nodes.
        probabilities: (L, classes) float32, of each leaf.
        depth: decisions on the longest path.
    """

    roots: nn.Parameter
    features: nn.Parameter
    thresholds: nn.Parameter
    branches: nn.Parameter
    probabilities: nn.Parameter

    def __init__(
        self, roots: Tensor, features: Tensor, thresholds: Tensor, branches: Tensor, probabilities: Tensor, depth: int
    ) -> None:
        super().__init__()
        self.depth = depth
        tensors = {
            "roots": roots,
            "features": features,
            "thresholds": thresholds,
            "branches": branches,
            "probabilities": probabilities,
        }
        for name, tensor in tensors.items():  # every number that an answer needs is a parameter, and counts in Mem
            self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (n, classes)."""
        x = inputs.flatten(1)
        leaves = len(self.probabilities)
        node = self.roots.expand(len(x), -1)  # (n, T)
        for _ in range(self.depth):
            decision = (node - leaves).clamp(min=0)
            value = x.gather(1, self.features[decision])
            left = torch.stack([value, torch.ones_like(value)], -1).flatten(0, 1)[:, None]  # (n T, 1, 2)
            threshold = self.thresholds[decision]
            right = torch.stack([torch.ones_like(threshold), -threshold], -1).flatten(0, 1)[..., None]
            above = torch.bmm(left, right).reshape(node.shape) > 0
            child = self.branches[decision].gather(2, above.long()[..., None])[..., 0]
            node = torch.where(node >= leaves, child, node)
        trees = node.shape[1]
        weights = x.new_full((len(x), 1, trees), 1 / trees)
        return torch.bmm(weights, self.probabilities[node])[:, 0].clamp(min=_SMALLEST).log()


def forest_of(trees: list[Any], classes: NDArray[np.int64], n_classes: int) -> Forest:
    """Return the forest of fitted trees of scikit-learn (``tree_``).

    Args:
        trees: the attribute ``tree_`` of each tree.
        classes: the classes that occurred in training, in the order of the columns of the trees.
        n_classes: number of classes.
    """
    leaves = [np.flatnonzero(tree.children_left < 0) for tree in trees]
    decisions = [np.flatnonzero(tree.children_left >= 0) for tree in trees]
    all_leaves = sum(map(len, leaves))
    roots, children, probabilities = [], [], []
    first_leaf, first_decision = 0, all_leaves
    for tree, of_leaves, of_decisions in zip(trees, leaves, decisions, strict=True):
        number = np.empty(tree.node_count, np.int64)
        number[of_leaves] = first_leaf + np.arange(len(of_leaves))
        number[of_decisions] = first_decision + np.arange(len(of_decisions))
        both = np.stack([tree.children_left, tree.children_right], 1)[of_decisions]
        roots.append(number[0])
        children.append(number[both])
        weights = np.zeros((len(of_leaves), n_classes))
        weights[:, classes] = tree.value[of_leaves, 0]
        probabilities.append(weights / weights.sum(1, keepdims=True))
        first_leaf, first_decision = first_leaf + len(of_leaves), first_decision + len(of_decisions)

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(tree, name)[rows] for tree, rows in zip(trees, decisions, strict=True)])

    return Forest(
        torch.from_numpy(np.array(roots)),
        torch.from_numpy(joined("feature").astype(np.int64)),
        torch.from_numpy(_rounded_down(joined("threshold"))),
        torch.from_numpy(np.concatenate(children)),
        torch.from_numpy(np.concatenate(probabilities).astype(np.float32)),
        max(int(tree.max_depth) for tree in trees),
    )


def _rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 that is at most each threshold: float32 inputs then fall on the same side."""
    near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)
