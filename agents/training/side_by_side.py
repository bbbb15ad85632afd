"""The members of an ensemble side by side on a GPU, where starting an operation on a small network costs most time.

On a CPU the members train one after another, each in the engine that is fastest for one network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from agents.networks.mlp_vgg import MLP, VGG19, Predictor
from agents.networks.stacked import Stacked
from agents.training.augment import CropFlip
from agents.training.data_order import DataOrder
from agents.training.seeding import StageGenerators
from agents.training.settings import OnEpoch, StageSettings
from agents.training.stage import Curves, Engine, Examples, StageReport, plain_engine, require_examples


def pays(bodies: Sequence[nn.Module], settings: StageSettings) -> bool:
    """Return whether these networks can train side by side, and faster than one after another."""
    if len(bodies) < 2 or {type(body) for body in bodies} not in ({MLP}, {VGG19}):
        return False
    # One norm, one end, or one division of the first dimension would tie the members together.
    if settings.clip is not None or settings.patience is not None or settings.accumulation > 1:
        return False
    return next(bodies[0].parameters()).is_cuda


@dataclass(frozen=True)
class OrderOfEach(DataOrder):
    """The data order and the augmentation of each member; the first dimension of all draws is that of the members."""

    members: tuple[DataOrder, ...] = ()

    def orders(self) -> Tensor:
        """Draw the orders: int64 (members, epochs, per_epoch)."""
        return torch.stack([member.orders() for member in self.members])

    def crop_flips(self) -> CropFlip:
        """Draw the augmentation, in the shape of the orders."""
        drawn = [member.crop_flips() for member in self.members]
        return CropFlip(*(torch.stack([getattr(each, name) for each in drawn]) for name in ("top", "left", "mirror")))


def train_side_by_side(
    normalize: nn.Module,
    bodies: Sequence[nn.Module],
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    generators: Sequence[StageGenerators],
    *,
    engine: Engine = plain_engine,
    on_epoch: OnEpoch | None = None,
) -> list[StageReport]:
    """Train each network in place on the same examples, as `train_stage` does one after another, to rounding.

    The FLOPs are the sum of those of single stages. `generators` has one entry per network.

    Raises:
        ValueError: as `train_stage`.
    """
    require_examples(train=train, valid=valid)
    stacked, device = Stacked(bodies), next(bodies[0].parameters()).device
    orders = tuple(DataOrder(len(train), settings, own) for own in generators)
    order = OrderOfEach(len(train), settings, generators[0]._replace(noise=None), orders)
    curves = engine(Predictor(normalize, stacked), train.to(device), valid.to(device), order, on_epoch)
    stacked.copy_to(bodies)
    reports = []
    for member, body in enumerate(bodies):
        body.eval()
        initial = None if curves.initial is None else (curves.initial[0][member], curves.initial[1][member])
        own = curves.loss[:, member], curves.error[:, member], curves.best_epoch[member], curves.criterion[member]
        reports.append(Curves(*own, initial).report())
    return reports
