"""FF, Firefly: a VGG19 that gets wider before each stage (ALMA paper, section 4; Wu et al. 2020, Algorithm 1).

grow i:  over-grow: every channel may be split, every layer may get K new channels
         tune:      one pass over T, gradient descent on the candidates alone
         score:     another pass over T, s = mean ∂L/∂γ of the gate γ of each candidate
         select:    ascending s, until the network has P₀ · (1 + g i) parameters
         (with depth, a residual layer after each convolution is a candidate, too, as a whole)
         keep the selected candidates, drop the others
stage k: as SM, on the grown network

A growth does not preserve the function: it is a step of finite size down the estimated loss.
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

from agents.draws import draw_orders
from agents.firefly_network import CONVOLUTIONS, FireflyVGG19
from agents.firefly_settings import GrowthReport, GrowthSettings, Size, growth_target, require_units
from agents.materialise import materialise
from agents.networks import Predictor
from agents.overgrown import OvergrownVGG19
from agents.seeding import generator, stage_generators
from agents.single_model import Build
from agents.stage import Engine, Examples, OnEpoch, StageReport, StageSettings, train_stage
from alma_env import meter


class Firefly:
    """A learner that fine-tunes one network and widens it where that promises to lower the loss most.

    Each training and each growth makes a new predictor; one that was handed out never changes.

    Args:
        build: makes the untrained predictor, with a `FireflyVGG19` as its body.
        settings: recipe of a stage; its batch size is also that of the growths, which run in fp32.
        seed: run seed, from which initialisation, data order, augmentation and candidates are derived.
        from_scratch: start every stage from a new random initialisation of the grown network.
        engine: how a stage is computed.
        device: where to train.
        on_epoch: told after every epoch.
        growth: the fields of `GrowthSettings`.

    Attributes:
        growth_reports: one per growth so far.
    """

    def __init__(
        self,
        build: Build,
        settings: StageSettings,
        *,
        seed: int,
        from_scratch: bool = False,
        engine: Engine = "plain",
        device: torch.device | str = "cpu",
        on_epoch: OnEpoch | None = None,
        **growth: Any,
    ) -> None:
        self.settings = settings
        self.growth = GrowthSettings(**growth)
        self.seed = seed
        self.from_scratch = from_scratch
        self.engine = engine
        self.on_epoch = on_epoch
        self.stage = 0
        self.growth_reports: list[GrowthReport] = []
        self._device = torch.device(device)
        self.predictor = build(generator(seed, "init", stage=1)).to(self._device).eval()
        self._initial_widths = _growable(self.predictor).widths
        require_units(self._initial_widths, self.growth)

    def train(self, train: Examples, valid: Examples) -> StageReport:
        """Fine-tune on T with selection on V, and keep the best epoch."""
        stage = self.stage + 1
        predictor = copy.deepcopy(self.predictor)
        if self.from_scratch and stage > 1:
            body = _growable(predictor)
            predictor.body = self._untrained(body.widths, body.residuals, stage)
        report = train_stage(
            predictor,
            train,
            valid,
            self.settings,
            engine=self.engine,
            on_epoch=self.on_epoch,
            **stage_generators(self.seed, stage),
        )
        self.stage, self.predictor = stage, predictor
        return report

    def grow(self, train: Examples, valid: Examples) -> None:
        """Widen the network for the stage to come, on that stage's data without augmentation."""
        network = _growable(self.predictor)
        growth = len(self.growth_reports) + 1  # two growths before one stage draw anew
        size, target = growth_target(network, self._initial_widths, growth, self.growth)
        # Member 0 draws the data order, 1 to 16 the candidates of the convolutions, 17 those of the classifier, 18 the
        # biases of a quirk, and 19 to 34 the residual layers.
        order, *candidates = (
            generator(self.seed, "grow", stage=growth, member=role) for role in range(2 * CONVOLUTIONS + 3)
        )
        biases = candidates.pop(CONVOLUTIONS + 1)
        train, valid = train.to(self._device), valid.to(self._device)
        valid_x = self.predictor.normalize(valid.x)
        with meter.phase("growth"):
            loss_before = _mean_loss(network, valid_x, valid.y, self.settings.validation_batch)
            overgrown = OvergrownVGG19(network, self.growth.candidates, candidates, depth=self.growth.depth)
            tuning, scoring = (
                _batches(self.predictor.normalize, train, drawn, self.settings.batch_size)
                for drawn in draw_orders(len(train), 2, order).to(self._device)
            )
            tune(overgrown, tuning, self.growth)
            scores = score(overgrown, scoring, self.growth.score_points) / overgrown.neurons()
            ties = self.growth.quirks and self.growth.budget == "neurons"
            selection = select(
                scores.cpu(), network.widths, network.residuals, size, target, depth=self.growth.depth, ties=ties
            )
            grown = materialise(
                network,
                overgrown,
                selection,
                new_units=self.growth.new_units,
                quirks=self.growth.quirks,
                generator=biases,
            )
            loss_after = _mean_loss(grown, valid_x, valid.y, self.settings.validation_batch)
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
        """Weights, buffers, widths, inserted layers, the number of stages and what growths did: values and tensors."""
        return {
            "stage": self.stage,
            "growth_reports": [dataclasses.asdict(report) for report in self.growth_reports],
            "widths": _growable(self.predictor).widths,
            "residuals": _growable(self.predictor).residuals,
            "predictor": self.predictor.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``, at the widths and the depth that it was taken at."""
        body = self._untrained(state["widths"], state["residuals"], stage=1)
        predictor = Predictor(copy.deepcopy(self.predictor.normalize), body).eval()
        predictor.load_state_dict(state["predictor"])
        self.predictor = predictor
        self.stage = state["stage"]
        self.growth_reports = [GrowthReport(**report) for report in state["growth_reports"]]

    def _untrained(self, widths: Sequence[int], residuals: Sequence[int], stage: int) -> FireflyVGG19:
        network = _growable(self.predictor)
        drawn = generator(self.seed, "init", stage=stage)
        untrained = FireflyVGG19(widths, network.classes, network.in_channels, residuals=residuals, generator=drawn)
        return untrained.to(self._device)


Batches = Iterable[tuple[Tensor, Tensor]]  # normalised images (n, in_channels, 32, 32), labels (n,) int64


def tune(overgrown: OvergrownVGG19, batches: Batches, settings: GrowthSettings) -> None:
    """Step 1: a pass of gradient descent on the candidates V, A and M; everything else is frozen."""
    optimizer = torch.optim.RMSprop(overgrown.parameters(), settings.tuning_rate, alpha=0.9, momentum=0.1)
    for x, y in batches:
        _tune_batch(overgrown, optimizer, x, y, settings.penalty)


def score(overgrown: OvergrownVGG19, batches: Batches, score_points: int = 0) -> Tensor:
    """Step 2: s = ∂L/∂γ of each candidate, mean over the mini-batches; (candidates,), layer by layer.

    Far below zero is useful. A split's derivative at γ = 0 is always 0, since its halves cancel, and tells nothing.
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
    """Accept candidates in ascending score, over all layers together, until the `size` is `target` or more.

    Returns per convolution a bool tensor (c + K,), or (c + K + 1,) with `depth`. `ties` accepts also those whose score
    equals the last one's.
    """
    candidates = (len(scores) - sum(widths)) // len(widths)
    layer_of = [layer for layer, width in enumerate(widths) for _ in range(width + candidates)]
    layers_end = {sum(widths[: layer + 1]) + candidates * (layer + 1) - 1 for layer in range(len(widths))}
    grown, deeper = list(widths), list(residuals)
    selected = torch.zeros(len(scores), dtype=torch.bool)
    values, last = scores.tolist(), None
    if not all(map(math.isfinite, values)):
        warnings.warn(_DIVERGED, RuntimeWarning, stacklevel=3)
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


_DIVERGED = "Firefly's scores are not finite: the network stays as it is; lower tuning_rate or look for bad inputs"
_TOO_FEW = "all of them together do not reach the growth's budget; set more candidates or a lower growth_rate"


@meter.count_once
def _tune_batch(
    overgrown: OvergrownVGG19, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, penalty: float
) -> None:
    loss = F.cross_entropy(overgrown(x), y) + penalty * overgrown.squared_norms()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@meter.count_once
def _gate_gradients(overgrown: OvergrownVGG19, gates: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.autograd.grad(F.cross_entropy(overgrown(x, gates), y), gates)[0]


@meter.count_once
@torch.no_grad()
def _mean_loss(body: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> Tensor:
    """Mean cross-entropy of a network in eval mode: `validate` of a stage, but charged to the growth."""
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
            f"agent 'ff' with a {type(predictor.body).__name__}: Firefly widens a FireflyVGG19 and no other "
            "network, as in the paper; use a data set of 32×32 images such as CIFAR10, or another growing agent"
        )
    return predictor.body
