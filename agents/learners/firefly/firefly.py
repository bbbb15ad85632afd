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
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.learners.firefly.materialise import Selection, materialise
from agents.learners.firefly.overgrown import OvergrownVGG19
from agents.learners.firefly.selection import score, select, tune
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
        losses = loss_before.item(), loss_after.item()
        self.growth_reports.append(_report(network, grown, selection, losses, size, target))
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


@count_once
@torch.no_grad()
def _mean_loss(body: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> Tensor:
    """Return the mean cross-entropy of a network in eval mode, charged to the growth phase."""
    parts = zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True)
    losses = [F.cross_entropy(body(part_x), part_y, reduction="sum") for part_x, part_y in parts]
    return torch.stack(losses).sum() / len(y)


def _report(
    network: FireflyVGG19,
    grown: FireflyVGG19,
    selection: Selection,
    losses: tuple[float, float],
    size: Size,
    target: int,
) -> GrowthReport:
    """Return the report of a growth step; `losses` are those before and after it."""
    splits = [int(chosen[:width].sum()) for chosen, width in zip(selection, network.widths, strict=True)]
    more_channels = map(operator.sub, grown.widths, network.widths)
    return GrowthReport(
        loss_before=losses[0],
        loss_after=losses[1],
        splits=tuple(splits),
        new_channels=tuple(map(operator.sub, more_channels, splits)),
        new_layers=tuple(map(operator.sub, grown.residuals, network.residuals)),
        parameters_before=sum(parameter.numel() for parameter in network.parameters()),
        parameters_after=sum(parameter.numel() for parameter in grown.parameters()),
        size=size(grown.widths, grown.residuals),
        target=target,
    )


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
