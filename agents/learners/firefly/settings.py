"""The recipe of a Firefly growth, how far it goes, and the report of what it did."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from agents.firefly_network import CONVOLUTIONS, FireflyVGG19, parameter_count
from agents.materialise import NewUnits

Size = Callable[[Sequence[int], Sequence[int]], int]  # of widths and residual layers per convolution


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
        depth: let a growth insert layers, too: x + h(x) with h(x) = Σ_j ε_j σ(x; δ_j) after a convolution (Wu et al.
            2020, section 2). A layer's score is the mean over its neurons; the ALMA authors' code has no such thing.
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
    depth: bool = False
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
            raise ValueError(f"penalty={self.penalty}: must be 0 or more, and finite")


@dataclass(frozen=True)
class GrowthReport:
    """What a growth did.

    `splits`, `new_channels` and `new_layers` hold one number per convolution. `size` and `target` are in the unit of
    the budget, parameters or neurons; the losses are mean cross-entropies on V.
    """

    loss_before: float
    loss_after: float
    splits: tuple[int, ...]
    new_channels: tuple[int, ...]
    new_layers: tuple[int, ...]
    parameters_before: int
    parameters_after: int
    size: int
    target: int


def units_per_growth(initial_widths: Sequence[int], settings: GrowthSettings) -> int:
    """Units that a growth adds with the budget ``neurons``."""
    # The rate as it is written: as a float, 0.1999… · 240 would give 47 units, not 48.
    return math.floor(Fraction(str(settings.growth_rate)) * sum(initial_widths)) + settings.quirks


def require_units(initial_widths: Sequence[int], settings: GrowthSettings) -> None:
    """Raises ValueError where a growth would cost its passes over the data and add nothing."""
    if settings.budget == "neurons" and units_per_growth(initial_widths, settings) == 0:
        raise ValueError(
            f"growth_rate={settings.growth_rate} with budget='neurons': of {sum(initial_widths)} channels that is less "
            f"than one unit per growth; set it to {math.ceil(1e4 / sum(initial_widths)) / 1e4} or more"
        )


def growth_target(
    network: FireflyVGG19, initial_widths: Sequence[int], growth: int, settings: GrowthSettings
) -> tuple[Size, int]:
    """How a network's size is measured from its widths and residual layers, and the size to reach at growth 1, 2, …"""

    def parameters(widths: Sequence[int], residuals: Sequence[int]) -> int:
        return parameter_count(widths, network.classes, network.in_channels, residuals)

    def neurons(widths: Sequence[int], residuals: Sequence[int]) -> int:
        return sum(width * (1 + layers) for width, layers in zip(widths, residuals, strict=True))

    if settings.budget == "parameters":
        rate = Fraction(str(settings.growth_rate))
        return parameters, math.ceil(parameters(initial_widths, [0] * CONVOLUTIONS) * (1 + rate * growth))
    units = units_per_growth(initial_widths, settings)
    return neurons, neurons(network.widths, network.residuals) + units
