"""Training the members of an ensemble: together if that is faster, else one after another (ALMA paper, section 4).

Members share only the data: each has its own initialisation, data order, augmentation and best epoch. Member 0 has the
random numbers of the single model, so it is the single model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from torch import nn

from agents.networks.mlp_vgg import MLP, VGG19, Predictor
from agents.networks.stacked import can_stack, stack
from agents.training.engines import ENGINES
from agents.training.seeding import StageGenerators
from agents.training.settings import EngineName, OnEpoch, StageSettings
from agents.training.stage import Examples, StageReport, train_stage

# In wider networks a CPU spends its time in the convolutions, and grouped convolutions are slower than single ones.
WIDEST_TOGETHER = 8


@dataclass(frozen=True)
class MembersReport:
    """The report of each member of an ensemble for one stage."""

    members: tuple[StageReport, ...]

    @property
    def best_loss(self) -> float:
        """Mean over the members of the validation loss at their best epochs."""
        return mean(report.best_loss for report in self.members)

    @property
    def best_error(self) -> float:
        """Mean over the members of the validation error at their best epochs."""
        return mean(report.best_error for report in self.members)


def choose_together(together: bool | None, bodies: Sequence[nn.Module], settings: StageSettings) -> bool:
    """Return `together`; for None, whether networks can train together, and faster than one after another."""
    if together is not None:
        return together
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
    generators: Sequence[StageGenerators],
    *,
    together: bool,
    engine: EngineName = "plain",
    on_epoch: OnEpoch | None = None,
) -> MembersReport:
    """Train each network in place on the same mega-batches and leave it at its own best epoch.

    Members that train together and members that train one after another get the same numbers, to rounding, and cost the
    same FLOPs. `generators` holds one entry per member.
    """
    compute = ENGINES[engine]
    if together and len(bodies) > 1 and engine != "native":  # the native engine gains nothing from it
        stacked = stack(bodies)
        reports = train_stage(
            Predictor(normalize, stacked), train, valid, settings, generators, engine=compute, on_epoch=on_epoch
        )
        stacked.copy_to(bodies)
        for body in bodies:
            body.eval()
        return MembersReport(tuple(reports))
    on_member_epoch = _every(len(bodies), on_epoch)
    reports = []
    for body, own in zip(bodies, generators, strict=True):
        member = Predictor(normalize, body)
        reports += train_stage(member, train, valid, settings, [own], engine=compute, on_epoch=on_member_epoch)
    return MembersReport(tuple(reports))


def _every(times: int, on_epoch: OnEpoch | None) -> OnEpoch | None:
    """Return a callback that calls `on_epoch` at every `times`-th call, with the number of epochs of the ensemble."""
    if on_epoch is None:
        return None
    calls = 0

    def count(epoch: int) -> None:
        nonlocal calls
        calls += 1
        if calls % times == 0:
            on_epoch(calls // times)

    return count
