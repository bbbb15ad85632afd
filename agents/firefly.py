"""FF, Firefly: a VGG19 that gets wider before each stage (ALMA paper, section 4; Wu et al. 2020, Algorithm 1).

grow i:  over-grow: every channel may be split, every layer may get K new channels
         tune:      one pass over T, gradient descent on the candidates alone
         score:     another pass over T, s = mean ∂L/∂γ of the gate γ of each candidate
         select:    ascending s, until the network has P₀ · (1 + g i) parameters
         keep the selected candidates, drop the others
stage k: as SM, on the grown network

A growth does not preserve the function: it is a step of finite size down the estimated loss.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.draws import draw_orders
from agents.firefly_network import CONVOLUTIONS, FireflyVGG19, parameter_count
from agents.networks import Predictor
from agents.overgrown import NewUnits, OvergrownVGG19, materialise
from agents.seeding import generator
from agents.single_model import Build
from agents.stage import Engine, Examples, OnEpoch, StageReport, StageSettings, train_stage
from alma_env import meter


@dataclass(frozen=True)
class GrowthSettings:
    """The recipe of a growth; the defaults are the authors', but for the budget, which is the ALMA paper's.

    Attributes:
        candidates: K, new channels that each layer may get at a growth; for widths up to 16 a K of once or twice the
            width is far cheaper.
        growth_rate: g, what a growth adds, as a part of the initial network.
        budget: ``parameters``: after growth i there are at least P₀ · (1 + g i) parameters, by as little as the last
            unit allows. ``neurons``: each growth adds ⌊g · Σ_l c_l(0)⌋ units, whatever their cost, as the ALMA
            authors' code does.
        score_points: 0 takes the derivative at γ = 1, as the authors' code does; n takes the mean over the n mid-points
            of 0 ≤ γ ≤ 1, the paper's integrated gradient, in n passes. 1 is the single mid-point γ = 0.5.
        new_units: ``zero_out`` sets the outgoing weights of new channels to zero; they then begin without an effect.
        tuning_rate: learning rate of RMSprop (smoothing 0.9, momentum 0.1) on the candidates.
        penalty: factor of Σ_l ‖V_l‖² + 0.01 ‖A_l‖² in the tuning loss.
        quirks: do as the authors' code where that looks unintended: one unit more, and all that tie with it (budget
            ``neurons``); the classifier's biases drawn anew; its weights from new channels zero.
    """

    candidates: int = 70
    growth_rate: float = 0.25
    budget: Literal["parameters", "neurons"] = "parameters"
    score_points: int = 0
    new_units: NewUnits = "tuned"
    tuning_rate: float = 1e-3
    penalty: float = 0.01
    quirks: bool = False

    def __post_init__(self) -> None:
        for name, choices in (("budget", ("parameters", "neurons")), ("new_units", ("tuned", "zero_out"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(choices)}")
        if self.candidates < 1:
            raise ValueError(f"candidates={self.candidates}: must be at least 1 new channel per layer")
        if self.score_points < 0:
            raise ValueError(f"score_points={self.score_points}: must be 0, for γ = 1, or a number of mid-points")
        for name in ("growth_rate", "tuning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0 and finite")
        if not 0 <= self.penalty < math.inf:
            raise ValueError(f"penalty={self.penalty}: must not be negative")


@dataclass(frozen=True)
class GrowthReport:
    """What a growth did.

    `splits` and `new_channels` hold one number per convolution. `size` and `target` are in the unit of the budget,
    parameters or neurons; the losses are mean cross-entropies on V.
    """

    loss_before: float
    loss_after: float
    splits: tuple[int, ...]
    new_channels: tuple[int, ...]
    parameters_before: int
    parameters_after: int
    size: int
    target: int


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

    def train(self, train: Examples, valid: Examples) -> StageReport:
        """Fine-tune on T with selection on V, and keep the best epoch."""
        stage = self.stage + 1
        predictor = copy.deepcopy(self.predictor)
        if self.from_scratch and stage > 1:
            predictor.body = self._untrained(_growable(predictor).widths, stage)
        report = train_stage(
            predictor,
            train,
            valid,
            self.settings,
            order=generator(self.seed, "order", stage=stage),
            augment=generator(self.seed, "augment", stage=stage),
            noise=generator(self.seed, "noise", stage=stage),
            engine=self.engine,
            on_epoch=self.on_epoch,
        )
        self.stage, self.predictor = stage, predictor
        return report

    def grow(self, train: Examples, valid: Examples) -> None:
        """Widen the network for the stage to come, on that stage's data without augmentation."""
        network = _growable(self.predictor)
        growth = len(self.growth_reports) + 1  # two growths before one stage draw anew
        size, target = growth_target(network, self._initial_widths, growth, self.growth)
        # Member 0 draws the data order, 1 to 16 the candidates of the convolutions, 17 those of the classifier.
        order, *candidates, biases = (
            generator(self.seed, "grow", stage=growth, member=role) for role in range(CONVOLUTIONS + 3)
        )
        train, valid = train.to(self._device), valid.to(self._device)
        valid_x = self.predictor.normalize(valid.x)
        with meter.phase("growth"):
            loss_before = _mean_loss(network, valid_x, valid.y, self.settings.validation_batch)
            overgrown = OvergrownVGG19(network, self.growth.candidates, candidates)
            tuning, scoring = (
                _batches(self.predictor.normalize, train, drawn, self.settings.batch_size)
                for drawn in draw_orders(len(train), 2, order).to(self._device)
            )
            tune(overgrown, tuning, self.growth)
            scores = score(overgrown, scoring, self.growth.score_points).cpu()
            ties = self.growth.quirks and self.growth.budget == "neurons"
            selection = select(scores, network.widths, size, target, ties=ties)
            grown = materialise(
                network,
                overgrown,
                selection,
                new_units=self.growth.new_units,
                quirks=self.growth.quirks,
                generator=biases,
            )
            loss_after = _mean_loss(grown, valid_x, valid.y, self.settings.validation_batch)
        added = [
            (int(chosen[:width].sum()), int(chosen[width:].sum()))
            for chosen, width in zip(selection, network.widths, strict=True)
        ]
        report = GrowthReport(
            loss_before=loss_before.item(),
            loss_after=loss_after.item(),
            splits=tuple(splits for splits, _ in added),
            new_channels=tuple(new for _, new in added),
            parameters_before=sum(parameter.numel() for parameter in network.parameters()),
            parameters_after=sum(parameter.numel() for parameter in grown.parameters()),
            size=size(grown.widths),
            target=target,
        )
        self.growth_reports.append(report)
        self.predictor = Predictor(copy.deepcopy(self.predictor.normalize), grown).eval()

    def state_dict(self) -> dict[str, Any]:
        """Weights, buffers, widths, the number of stages and what the growths did, as plain values and tensors."""
        return {
            "stage": self.stage,
            "growth_reports": [dataclasses.asdict(report) for report in self.growth_reports],
            "widths": _growable(self.predictor).widths,
            "predictor": self.predictor.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict``, at the widths that it was taken at."""
        body = self._untrained(state["widths"], stage=1)
        predictor = Predictor(copy.deepcopy(self.predictor.normalize), body).eval()
        predictor.load_state_dict(state["predictor"])
        self.predictor = predictor
        self.stage = state["stage"]
        self.growth_reports = [GrowthReport(**report) for report in state["growth_reports"]]

    def _untrained(self, widths: Sequence[int], stage: int) -> FireflyVGG19:
        network = _growable(self.predictor)
        drawn = generator(self.seed, "init", stage=stage)
        return FireflyVGG19(widths, network.classes, network.in_channels, generator=drawn).to(self._device)


def growth_target(
    network: FireflyVGG19, initial_widths: Sequence[int], growth: int, settings: GrowthSettings
) -> tuple[Callable[[Sequence[int]], int], int]:
    """How the size of a network is measured from its widths, and the size to reach at growth 1, 2, …"""
    rate = Fraction(str(settings.growth_rate))  # as it is written: a float's 0.1999… · 240 would give 47 units, not 48

    def parameters(widths: Sequence[int]) -> int:
        return parameter_count(widths, network.classes, network.in_channels)

    if settings.budget == "parameters":
        return parameters, math.ceil(parameters(initial_widths) * (1 + rate * growth))
    units = math.floor(rate * sum(initial_widths)) + settings.quirks
    return sum, sum(network.widths) + units


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
    scores: Tensor, widths: Sequence[int], size: Callable[[Sequence[int]], int], target: int, *, ties: bool = False
) -> list[Tensor]:
    """Accept candidates in ascending score, over all layers together, until `size` of the widths is `target` or more.

    Returns per convolution a bool tensor (c + K,). `ties` accepts also those whose score equals the last one's.
    """
    candidates = (len(scores) - sum(widths)) // len(widths)
    layer_of = [layer for layer, width in enumerate(widths) for _ in range(width + candidates)]
    grown = list(widths)
    selected = torch.zeros(len(scores), dtype=torch.bool)
    values, last = scores.tolist(), None
    if not all(map(math.isfinite, values)):
        warnings.warn(_DIVERGED, RuntimeWarning, stacklevel=3)
        target = 0
    for unit in torch.argsort(scores, stable=True).tolist():
        if size(grown) >= target and not (ties and values[unit] == last):
            break
        selected[unit] = True
        grown[layer_of[unit]] += 1
        last = values[unit]
    if size(grown) < target:
        warnings.warn(f"candidates={candidates}: {_TOO_FEW}", RuntimeWarning, stacklevel=3)
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
