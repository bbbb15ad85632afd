"""FF, Firefly: a VGG19 that becomes wider before each stage (ALMA paper, section 4; Wu et al. 2020, Algorithm 1).

grow i:  over-grow: every channel may be split, every layer may get K new channels
         tune:      one pass over T, gradient descent on the candidates only
         score:     another pass over T, s = mean ∂L/∂γ of the gate γ of each candidate
         select:    in ascending order of s, until the network has P₀ · (1 + g i) parameters
         (with depth, a whole residual layer after each convolution is a candidate too)
         keep the selected candidates, drop the others
stage k: as SM, on the grown network

A growth step changes the function: it is a step of finite size along the estimated descent direction of the loss.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.learners.firefly.materialise import materialise
from agents.learners.firefly.overgrown import OvergrownVGG19
from agents.learners.firefly.settings import GrowthReport, GrowthSettings, Size, growth_target
from agents.learners.network_learner import NetworkLearner
from agents.networks.firefly_network import CONVOLUTIONS, FireflyVGG19
from agents.networks.mlp_vgg import Build, Predictor
from agents.training.data_order import draw_orders
from agents.training.stage import Examples
from agents.training.trainer import Trainer
from alma_env.metering import meter
from alma_env.metering.function_cost import count_once


class Firefly(NetworkLearner[Predictor]):
    """A learner that fine-tunes one network and widens it where the estimated decrease of the loss is largest.

    Args:
        build: creates the untrained predictor, with a `FireflyVGG19` as its body, from a generator of its weights.
        trainer: settings, random numbers, device and engine. Growth steps use its batch size, and always fp32.
        from_scratch: start every stage from a new random initialisation of the grown network.
        growth: the fields of `GrowthSettings`.
    """

    def __init__(self, build: Build, trainer: Trainer, *, from_scratch: bool = False, **growth: Any) -> None:
        self.growth = GrowthSettings(**growth)
        self.growth_reports: list[GrowthReport] = []  # one per growth step so far
        super().__init__(build, trainer, from_scratch=from_scratch)
        network = _growable(self.predictor)
        self._initial_widths = network.widths
        growth_target(network, network.widths, 1, self.growth)  # to raise an error now, not at the first growth step

    def initialise(self, stage: int) -> Predictor:
        """Return an untrained network; after the first stage, with the widths and layers of the current one."""
        if stage == 1:
            return self.build(self.trainer.generator("init", stage=stage)).to(self.trainer.device).eval()
        network = _growable(self.predictor)
        return self._untrained(network.widths, network.residuals, stage)

    def _untrained(self, widths: Sequence[int], residuals: Sequence[int], stage: int) -> Predictor:
        network = _growable(self.predictor)
        weights = self.trainer.generator("init", stage=stage)
        body = FireflyVGG19(widths, network.classes, network.in_channels, residuals=residuals, generator=weights)
        return Predictor(copy.deepcopy(self.predictor.normalize), body.to(self.trainer.device)).eval()

    def grow(self, train: Examples, valid: Examples) -> None:
        """Widen the network before a stage, on the data of that stage without augmentation."""
        network = _growable(self.predictor)
        # Not the stage: two growth steps before one stage need different random numbers.
        growth = len(self.growth_reports) + 1
        size, target = growth_target(network, self._initial_widths, growth, self.growth)
        # Generator 0 is for the data order, 1 to 16 for the candidates of the convolutions, 17 for those of the
        # classifier, 18 for the biases of a quirk, and 19 to 34 for the residual layers.
        order, *candidates = (
            self.trainer.generator("grow", stage=growth, member=number) for number in range(2 * CONVOLUTIONS + 3)
        )
        biases = candidates.pop(CONVOLUTIONS + 1)
        device = network.classifier.weight.device
        train, valid = train.to(device), valid.to(device)
        valid_x = self.predictor.normalize(valid.x)
        with meter.phase("growth"):
            loss_before = _mean_loss(network, valid_x, valid.y, self.trainer.settings.validation_batch)
            overgrown = OvergrownVGG19(network, self.growth.candidates, candidates, depth=self.growth.depth)
            tuning, scoring = (
                _batches(self.predictor.normalize, train, epoch, self.trainer.settings.batch_size)
                for epoch in draw_orders(len(train), 2, order).to(device)
            )
            tune(overgrown, tuning, self.growth)
            scores = score(overgrown, scoring, self.growth.score_points) / overgrown.neurons()
            ties = self.growth.quirks and self.growth.budget == "neurons"
            selection = select(
                scores.cpu(), network.widths, network.residuals, size, target, depth=self.growth.depth, ties=ties
            )
            grown = materialise(network, overgrown, selection, self.growth, biases)
            loss_after = _mean_loss(grown, valid_x, valid.y, self.trainer.settings.validation_batch)
        splits = [int(chosen[:width].sum()) for chosen, width in zip(selection, network.widths, strict=True)]
        new_layers = [now - before for now, before in zip(grown.residuals, network.residuals, strict=True)]
        widened = [now - before for now, before in zip(grown.widths, network.widths, strict=True)]
        report = GrowthReport(
            loss_before=loss_before.item(),
            loss_after=loss_after.item(),
            splits=tuple(splits),
            new_channels=tuple(more - split for more, split in zip(widened, splits, strict=True)),
            new_layers=tuple(new_layers),
            parameters_before=sum(parameter.numel() for parameter in network.parameters()),
            parameters_after=sum(parameter.numel() for parameter in grown.parameters()),
            size=size(grown.widths, grown.residuals),
            target=target,
        )
        self.growth_reports.append(report)
        self.predictor = Predictor(copy.deepcopy(self.predictor.normalize), grown).eval()

    def state_dict(self) -> dict[str, Any]:
        """Return weights, buffers, widths, inserted layers, the number of stages and the growth reports."""
        network = _growable(self.predictor)
        return super().state_dict() | {
            "growth_reports": [dataclasses.asdict(report) for report in self.growth_reports],
            "widths": network.widths,
            "residuals": network.residuals,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned, including widths and depth."""
        predictor = self._untrained(state["widths"], state["residuals"], stage=1)
        predictor.load_state_dict(state["predictor"])
        self.growth_reports = [GrowthReport(**report) for report in state["growth_reports"]]
        self.stage, self.predictor = state["stage"], predictor


Batches = Iterable[tuple[Tensor, Tensor]]  # normalised images (n, in_channels, 32, 32), labels (n,) int64


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


_SCORES_NOT_FINITE = "Firefly's scores are not finite: the network does not grow; lower tuning_rate or check the inputs"
_TOO_FEW = "all candidates together do not reach the budget of the growth; set more candidates or a lower growth_rate"


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


@count_once
@torch.no_grad()
def _mean_loss(body: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> Tensor:
    """Return the mean cross-entropy of a network in eval mode, charged to the growth phase."""
    parts = zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True)
    losses = [F.cross_entropy(body(part_x), part_y, reduction="sum") for part_x, part_y in parts]
    return torch.stack(losses).sum() / len(y)


def _batches(
    normalize: nn.Module, examples: Examples, order: Tensor, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    for index in torch.split(order, batch_size):
        yield normalize(examples.x[index]), examples.y[index]


def _growable(predictor: Predictor) -> FireflyVGG19:
    if not isinstance(predictor.body, FireflyVGG19):
        raise ValueError(
            f"agent 'ff' with a {type(predictor.body).__name__}: Firefly can only widen a FireflyVGG19, as in the "
            "paper; use a data set of 32×32 images such as CIFAR10, or another agent that grows"
        )
    return predictor.body
