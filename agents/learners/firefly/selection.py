"""Firefly's choice of units: tune the candidates, score each one, and select (Wu et al. 2020, Algorithm 1)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from agents.learners.firefly.overgrown import OvergrownVGG19
from agents.learners.firefly.settings import GrowthSettings, Size
from alma_env.metering.function_cost import count_once

Batches = Iterable[tuple[Tensor, Tensor]]  # normalised images (n, in_channels, 32, 32), labels (n,) int64

_SCORES_NOT_FINITE = "Firefly's scores are not finite: the network does not grow; lower tuning_rate or check the inputs"
_TOO_FEW = "all candidates together do not reach the budget of the growth; set more candidates or a lower growth_rate"


def tune(overgrown: OvergrownVGG19, batches: Batches, settings: GrowthSettings) -> None:
    """Step 1: one pass of gradient descent on the candidates V, A and M. Everything else is frozen."""
    optimizer = torch.optim.RMSprop(overgrown.parameters(), settings.tuning_rate, alpha=0.9, momentum=0.1)
    for x, y in batches:
        _tune_batch(overgrown, optimizer, x, y, settings.penalty)


def score(overgrown: OvergrownVGG19, batches: Batches, score_points: int = 0) -> Tensor:
    """Step 2: return s = ∂L/∂γ of each candidate, mean over the mini-batches; (candidates,), layer by layer.

    The lower the score, the more useful the candidate. The derivative is not taken at γ = 0: there that of a split is
    always 0, since its halves cancel.
    """
    overgrown.requires_grad_(False)
    candidates = sum(overgrown.candidates_per_layer)
    points = [(2 * z - 1) / (2 * score_points) for z in range(1, score_points + 1)] or [1.0]
    gates = [torch.full((candidates,), point).to(overgrown.weight).requires_grad_() for point in points]
    per_batch = [torch.stack([_gate_gradients(overgrown, point, x, y) for point in gates]).mean(0) for x, y in batches]
    return torch.stack(per_batch).mean(0)


def select(
    scores: Tensor,
    widths: Sequence[int],
    residuals: Sequence[int],
    size: Size,
    target: int,
    *,
    depth: bool = False,
    ties: bool = False,
) -> list[Tensor]:
    """Step 3: accept candidates of all layers in ascending order of score, until `size` is at least `target`.

    With `ties`, candidates whose score equals that of the last accepted one are accepted too. The result has a bool
    tensor (c + K,) per convolution, or (c + K + 1,) with `depth`.
    """
    candidates = (len(scores) - sum(widths)) // len(widths)
    layer_of = [layer for layer, width in enumerate(widths) for _ in range(width + candidates)]
    layers_end = {sum(widths[: layer + 1]) + candidates * (layer + 1) - 1 for layer in range(len(widths))}
    grown, deeper = list(widths), list(residuals)
    selected = torch.zeros(len(scores), dtype=torch.bool)
    values, last = scores.tolist(), None
    if not all(map(math.isfinite, values)):
        warnings.warn(_SCORES_NOT_FINITE, RuntimeWarning, stacklevel=3)
        target = 0
    for unit in torch.argsort(scores, stable=True).tolist():
        if size(grown, deeper) >= target and not (ties and values[unit] == last):
            break
        selected[unit] = True
        (deeper if depth and unit in layers_end else grown)[layer_of[unit]] += 1
        last = values[unit]
    if size(grown, deeper) < target:
        warnings.warn(f"candidates={candidates - depth}: {_TOO_FEW}", RuntimeWarning, stacklevel=3)
    return list(torch.split(selected, [width + candidates for width in widths]))


@count_once
def _tune_batch(
    overgrown: OvergrownVGG19, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, penalty: float
) -> None:
    loss = F.cross_entropy(overgrown(x), y) + penalty * overgrown.squared_norms()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@count_once
def _gate_gradients(overgrown: OvergrownVGG19, gates: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.autograd.grad(F.cross_entropy(overgrown(x, gates), y), gates)[0]
