"""The settings of a Firefly growth step, the size that it reaches, and its report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_type_hints

from agents.networks.firefly_network import CONVOLUTIONS, FireflyVGG19, firefly_parameter_count
from agents.policies.validation import check_choices

NewUnits = Literal["tuned", "zero_out"]
Size = Callable[[Sequence[int], Sequence[int]], int]  # of the widths and the residual layers per convolution


@dataclass(frozen=True)
class GrowthSettings:
    """The settings of a growth step. The defaults are the authors', except the budget, which is the ALMA paper's.

    Attributes:
        candidates: K, the number of candidate channels per layer. For widths up to 16, a K of once or twice the width
            is far cheaper.
        growth_rate: g, the size added by a growth step as a fraction of the initial network.
        budget: ``parameters``: after growth step i the network has P₀ · (1 + g i) parameters, or more by less than the
            unit that was added last. ``neurons``: each growth step adds ⌊g · Σ_l c_l(0)⌋ units of any cost, as in the
            ALMA authors' code.
        score_points: 0 takes the derivative at γ = 1, as in the authors' code. n takes the mean over the n mid-points
            of 0 ≤ γ ≤ 1, the paper's integrated gradient, in n passes. 1 is the single mid-point γ = 0.5.
        new_units: ``zero_out`` sets the outgoing weights of new channels to zero, so that they do not change the
            function at first.
        tuning_rate: learning rate of RMSprop (smoothing 0.9, momentum 0.1) on the candidates.
        penalty: factor of Σ_l ‖V_l‖² + 0.01 ‖A_l‖² in the tuning loss.
        depth: also allow new layers: x + h(x) with h(x) = Σ_j ε_j σ(x; δ_j) after a convolution (Wu et al. 2020,
            section 2). The score of a layer is the mean over its neurons. The ALMA authors' code has no such option.
        quirks: reproduce details of the authors' code that look unintended: one unit more, and all units with an equal
            score (budget ``neurons``); new random biases of the classifier; its weights from new channels are zero.
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
        check_choices(vars(self), get_type_hints(GrowthSettings))
        if self.candidates < 1:
            raise ValueError(
                f"candidates={self.candidates}: must be at least 1 new channel per layer; use candidates=70"
            )
        if self.score_points < 0:
            raise ValueError(
                f"score_points={self.score_points}: must be at least 0; use 0 for γ = 1, or a number of mid-points"
            )
        for name in ("growth_rate", "tuning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                default = getattr(GrowthSettings, name)
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0 and finite; use {name}={default}")
        if not 0 <= self.penalty < math.inf:
            raise ValueError(f"penalty={self.penalty}: must be 0 or more, and finite; use penalty=0.01")


@dataclass(frozen=True)
class GrowthReport:
    """The report of a growth step.

    `splits`, `new_channels` and `new_layers` hold one number per convolution. `size` and `target` are in the unit of
    the budget, parameters or neurons. The losses are mean cross-entropies on V.
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


def growth_target(
    network: FireflyVGG19, initial_widths: Sequence[int], growth: int, settings: GrowthSettings
) -> tuple[Size, int]:
    """Return a function that measures a network's size, and the size to reach at growth step `growth` (from 1).

    Raises:
        ValueError: the growth step would add no unit.
    """

    def parameters(widths: Sequence[int], residuals: Sequence[int]) -> int:
        return firefly_parameter_count(widths, network.classes, network.in_channels, residuals)

    def neurons(widths: Sequence[int], residuals: Sequence[int]) -> int:
        return sum(width * (1 + layers) for width, layers in zip(widths, residuals, strict=True))

    # The decimal value of the rate: the float 0.1999… times 240 would give 47 units instead of 48.
    rate = Fraction(str(settings.growth_rate))
    if settings.budget == "parameters":
        return parameters, math.ceil(parameters(initial_widths, [0] * CONVOLUTIONS) * (1 + rate * growth))
    units = math.floor(rate * sum(initial_widths)) + settings.quirks
    if units == 0:
        raise ValueError(
            f"growth_rate={settings.growth_rate} with budget='neurons': a growth step of {sum(initial_widths)} "
            f"channels must add at least 1 unit; use {math.ceil(1e4 / sum(initial_widths)) / 1e4} or more"
        )
    return neurons, neurons(network.widths, network.residuals) + units
