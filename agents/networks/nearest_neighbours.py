"""k nearest neighbours as a module: the stored examples are its parameters.

N stored examples of d features have N · d + N numbers. An answer takes 2 N d FLOPs, for the products of the input with
all stored examples.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

_SMALLEST = 1e-6  # a fraction of 0 has a finite logarithm


class NearestNeighbours(nn.Module):
    """Maps inputs (n, ...) to logits (n, classes): the logarithm of the classes' fractions among k examples.

    Args:
        examples: (N, d) float32, the stored examples.
        labels: (N,) int64, their classes.
        k: number of neighbours, 1..N.
        classes: number of classes.
    """

    def __init__(self, examples: Tensor, labels: Tensor, k: int, classes: int) -> None:
        super().__init__()
        if not 1 <= k <= len(examples):
            raise ValueError(
                f"k={k}: must be from 1 to the number of stored examples, {len(examples)}; use fewer neighbours, or "
                "wait for more data"
            )
        self.k, self.classes = k, classes
        self.examples = nn.Parameter(examples, requires_grad=False)  # parameters, because they count in Mem
        self.labels = nn.Parameter(labels, requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (n, classes)."""
        # Relative to the mean example, because rounding would hide the distances between examples far from the origin.
        centre = self.examples.mean(0)
        x, examples = inputs.flatten(1) - centre, self.examples - centre
        # The squared distance without the squared length of the input, which is the same for all examples.
        distances = examples.square().sum(1) - 2 * (x @ examples.T)
        nearest = distances.topk(self.k, largest=False).indices
        votes = F.one_hot(self.labels[nearest], self.classes).sum(1)
        return (votes / self.k).clamp(min=_SMALLEST).log()
