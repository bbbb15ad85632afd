"""Training the members of an ensemble: all at once where that is faster, else one after another.

ALMA paper, section 4. Members share nothing but the data: each has its own initialisation, data order, augmentation and
best epoch, and member 0 draws as the single model does, so that it is the single model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from torch import nn

from agents.networks import MLP, VGG19, Predictor
from agents.seeding import stage_generators
from agents.stacked import can_stack, stack
from agents.stage import Engine, Examples, OnEpoch, StageReport, StageSettings, train_stage, train_together

# Beyond it a CPU's time goes into the convolutions, and those of groups are slower than those of one network.
WIDEST_TOGETHER = 8


@dataclass(frozen=True)
class MembersReport:
    """What a stage did to each member."""

    members: tuple[StageReport, ...]

    @property
    def best_loss(self) -> float:
        """Mean over the members of the validation loss of their best epochs."""
        return mean(report.best_loss for report in self.members)

    @property
    def best_error(self) -> float:
        """Mean over the members of the validation error of the same epochs."""
        return mean(report.best_error for report in self.members)


def together_pays(bodies: Sequence[nn.Module], settings: StageSettings) -> bool:
    """Whether training these networks at once is possible, and faster than one after another."""
    if not can_stack(bodies) or settings.patience is not None or settings.clip is not None:
        return False
    first = bodies[0]
    on_cpu = next(first.parameters()).device.type == "cpu"
    return isinstance(first, MLP) or not on_cpu or (isinstance(first, VGG19) and max(first.widths) <= WIDEST_TOGETHER)


def train_members(
    normalize: nn.Module,
    bodies: Sequence[nn.Module],
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    *,
    seed: int,
    stage: int,
    together: bool,
    engine: Engine = "plain",
    on_epoch: OnEpoch | None = None,
) -> MembersReport:
    """Train each network in place on the same mega-batches and leave it at its own best epoch.

    Both ways give the same numbers to rounding, and the same FLOPs.
    """
    drawn = [stage_generators(seed, stage, member) for member in range(len(bodies))]
    if together and len(bodies) > 1:
        stacked = stack(bodies)
        reports = train_together(
            normalize,
            stacked,
            train,
            valid,
            settings,
            orders=[member["order"] for member in drawn],
            augments=[member["augment"] for member in drawn],
            engine=engine,
            on_epoch=on_epoch,
        )
        stacked.hand_back(bodies)
        for body in bodies:
            body.eval()
        return MembersReport(tuple(reports))
    told = _every(len(bodies), on_epoch)
    return MembersReport(
        tuple(
            train_stage(
                Predictor(normalize, body),
                train,
                valid,
                settings,
                engine=engine,
                on_epoch=told,
                **generators,
            )
            for body, generators in zip(bodies, drawn, strict=True)
        )
    )


def _every(times: int, on_epoch: OnEpoch | None) -> OnEpoch | None:
    """Tell of an epoch of the ensemble when its members have trained as many together."""
    if on_epoch is None:
        return None
    heard = 0

    def tell(epoch: int) -> None:
        nonlocal heard
        heard += 1
        if heard % times == 0:
            on_epoch(heard // times)

    return tell
