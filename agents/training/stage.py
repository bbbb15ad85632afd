"""One stage: fine-tune a predictor on the gathered mega-batches and keep its best epoch.

ALMA paper, Algorithm 1, the call `model.train(T, V)`: epochs over T in random order with a new optimizer, a score on
the validation part V after every epoch, and the weights of the best epoch at the end. `plain_engine` is the reference;
`agents.training.compiled.engine` computes the same stage of a small network faster.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from agents.networks.mlp_vgg import Predictor
from agents.networks.switch import SwitchTransformer
from agents.training import distributed
from agents.training.best_checkpoint import BestEpoch
from agents.training.data_order import DataOrder, mini_batches
from agents.training.seeding import StageGenerators
from agents.training.settings import OnEpoch, StageSettings
from agents.training.step import new_optimizer, train_mini_batch, training_loss, validate


@dataclass(frozen=True)
class Examples:
    """Raw inputs `x` (n, ...), uint8 or float32, and labels `y` (n,), int64. For text, both are int32 (n, T)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> Examples:
        """Return the examples on another device."""
        return Examples(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class StageReport:
    """The validation results of a stage.

    Attributes:
        validation_loss: mean cross-entropy after each epoch that was run.
        validation_error: fraction of wrong answers after each epoch that was run.
        best_epoch: from 1; 0 if the weights from before the stage were kept.
        initial: loss and error of the weights from before the stage if they were a candidate (`keep_initial`).
    """

    validation_loss: tuple[float, ...]
    validation_error: tuple[float, ...]
    best_epoch: int
    initial: tuple[float, float] | None = None

    @property
    def best_loss(self) -> float:
        """Validation loss of the kept weights.

        If every loss was NaN or infinite and `initial` is None, it is the loss of the first epoch.
        """
        if self.best_epoch == 0 and self.initial is not None:
            return self.initial[0]
        return self.validation_loss[max(self.best_epoch - 1, 0)]

    @property
    def best_error(self) -> float:
        """Validation error at the same epoch as `best_loss`."""
        if self.best_epoch == 0 and self.initial is not None:
            return self.initial[1]
        return self.validation_error[max(self.best_epoch - 1, 0)]


class Curves(NamedTuple):
    """The validation results of a stage as tensors, for one network or for several side by side.

    `loss` and `error` are (epochs,) or (epochs, members), all others () or (members,). `criterion` is that of the best
    epoch, infinite if there is none.
    """

    loss: Tensor
    error: Tensor
    best_epoch: Tensor
    criterion: Tensor
    initial: Sequence[Tensor] | None


# Trains `predictor.body` in place on T, selects on V, and leaves it at its best epoch.
Engine = Callable[[Predictor, Examples, Examples, StageSettings, DataOrder, OnEpoch | None], Curves]


def train_stage(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    generators: Sequence[StageGenerators],
    *,
    groups: int = 1,
    engine: Engine | None = None,
    on_epoch: OnEpoch | None = None,
) -> list[StageReport]:
    """Train `predictor.body` in place, leave it in eval mode at its best epoch, and return one report per network.

    The data order and the augmentation are drawn on the CPU before the first step, so they are the same on every
    device. After that, only `patience` waits for the device. An epoch whose loss is NaN or infinite is never the best.
    If there is no other epoch, the weights from before the stage stay and a `RuntimeWarning` is issued.

    `generators` has one entry per network. With several, the body is stacked (`agents.networks.stacked`): each member
    has its own data order and best epoch. The numbers are those of one stage per member, to rounding, and the FLOPs are
    their sum. `train` and `valid` hold `groups` data sets of equal size, one after another. Each data set is for an
    equal number of members that follow one another.

    A body with a true attribute `cost_depends_on_data` is metered in full at each step. A body whose cost depends on a
    single number can report that number instead (`alma_env.metering.meter.cost_varies_with`).

    Raises:
        ValueError: `train` or `valid` is empty, or its inputs and labels differ in number; the engine does not support
            the network; several networks with `patience` or `clip`.
    """
    _require_examples(train=train, valid=valid)
    if len(generators) > 1:
        _require_independent(settings)
    device = next(predictor.parameters()).device
    data_order = DataOrder(len(train) // groups, settings, generators, groups)
    with _seeded(generators[0].noise if len(generators) == 1 else None, device):
        curves = (engine or plain_engine)(predictor, train.to(device), valid.to(device), settings, data_order, on_epoch)
    predictor.body.eval()
    return _reports(curves)


def plain_engine(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    data_order: DataOrder,
    on_epoch: OnEpoch | None,
) -> Curves:
    """Compute a stage step by step: the reference, for every network and device."""
    body, own = predictor.body, distributed.share(0, len(valid))
    valid_x, valid_y = (data_order.by_group(part) for part in (predictor.normalize(valid.x[own]), valid.y[own]))
    mini_batch = mini_batches(predictor.normalize, train.x, train.y, settings, data_order)
    optimizer, schedule = new_optimizer(body, settings)
    best = BestEpoch(body, settings, data_order.members)
    in_full = getattr(body, "cost_depends_on_data", False)
    step = train_mini_batch.fn if in_full else train_mini_batch
    distributed.require_shares(settings, data_order.per_epoch, len(valid))

    def score() -> tuple[Tensor, ...]:
        means = validate(body, valid_x, valid_y, settings.validation_batch, in_full=in_full)
        return distributed.mean_of_shares(means, len(valid_y), len(valid))

    initial = score() if settings.keep_initial else None
    if initial is not None:
        best.offer(*initial)
    losses: list[Tensor] = []
    errors: list[Tensor] = []
    all_used = not in_full or isinstance(body, SwitchTransformer)
    with distributed.replicated(body, partial(training_loss, settings=settings), all_used=all_used):
        for epoch in range(settings.epochs):
            body.train()
            for start in range(0, data_order.per_epoch, settings.batch_size):
                positions = distributed.share(start, min(start + settings.batch_size, data_order.per_epoch))
                step(body, optimizer, *mini_batch(epoch, positions), settings)
                if schedule is not None:
                    schedule.step()
            loss, error = score()
            best.offer(loss, error)
            losses.append(loss)
            errors.append(error)
            if on_epoch is not None:
                on_epoch(epoch + 1)
            if settings.patience is not None and epoch + 1 - int(best.epoch) >= settings.patience:
                break
    best.restore()
    return Curves(torch.stack(losses), torch.stack(errors), best.epoch, best.criterion, initial)


def _reports(curves: Curves) -> list[StageReport]:
    """Return one report per network."""
    if not curves.criterion.isfinite().all():
        warnings.warn(_NOT_FINITE, RuntimeWarning, stacklevel=3)
    epochs, networks = len(curves.loss), curves.best_epoch.numel()
    initial: Sequence[tuple[float, float] | None] = [None] * networks
    if curves.initial is not None:
        loss_before, error_before = (values.flatten().tolist() for values in curves.initial)
        initial = list(zip(loss_before, error_before, strict=True))
    per_network = zip(
        curves.loss.view(epochs, -1).T.tolist(),
        curves.error.view(epochs, -1).T.tolist(),
        curves.best_epoch.flatten().tolist(),
        initial,
        strict=True,
    )
    return [StageReport(tuple(loss), tuple(error), best, before) for loss, error, best, before in per_network]


_NOT_FINITE = (
    "no epoch of the stage had a finite validation loss: the weights from before the stage are kept; "
    "lower the learning rate or check the inputs"
)


@contextmanager
def _seeded(noise: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Seed the global generator from `noise` in this block and restore its state afterwards."""
    if noise is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed = noise.initial_seed() + distributed.rank()  # each rank sees other examples and needs other numbers
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def _require_independent(settings: StageSettings) -> None:
    """Raise ValueError if stacked members would depend on one another."""
    if settings.patience is not None:
        raise ValueError(
            f"patience={settings.patience}: members that train together cannot stop at different epochs; "
            "set patience=None, or train them one after another (together=False)"
        )
    if settings.clip is not None:
        raise ValueError(
            f"clip={settings.clip}: the gradients of members that train together have one common norm; set clip=None, "
            "or train them one after another (together=False)"
        )


def _require_examples(**parts: Examples) -> None:
    for name, part in parts.items():
        if len(part.x) != len(part.y):
            raise ValueError(f"{name}: {len(part.x)} inputs and {len(part.y)} labels; give one label per input")
        if len(part) == 0:
            raise ValueError(f"{name}: 0 examples; a stage needs at least 1, so use larger mega-batches")
