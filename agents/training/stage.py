"""One stage: fine-tune a predictor on the gathered mega-batches and keep its best epoch.

ALMA paper, Algorithm 1, the call `model.train(T, V)`: epochs over T in random order with a new optimizer, a score on
the validation part V after every epoch, and the weights of the best epoch at the end. `plain_engine` is the reference
for every network and device. Other engines compute the same stage faster.
"""

from __future__ import annotations

import math
import reprlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents.networks.mlp_vgg import Predictor
from agents.training.best_checkpoint import BestEpoch
from agents.training.data_order import DataOrder, MiniBatches
from agents.training.processes import SingleProcess
from agents.training.seeding import StageGenerators
from agents.training.settings import OnEpoch, StageSettings
from agents.training.step import new_optimizer, train_mini_batch, training_loss, validate
from alma_env.errors import AlmaError


class LearnerError(AlmaError, ValueError):
    """A learner gave a wrong report of its training, or its predictor is no module."""


class CannotGrowError(LearnerError):
    """A policy decided that a learner grows, and this learner has a fixed size: raised by its method ``grow``."""


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

    Raises:
        LearnerError: there is no epoch, a loss or an error is no number, an error is no fraction, or `best_epoch` is
            none of the epochs.
    """

    validation_loss: tuple[float, ...]
    validation_error: tuple[float, ...]
    best_epoch: int
    initial: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("validation_loss", "validation_error"):
            given = getattr(self, name)
            numbers = [as_number(value) for value in given] if isinstance(given, tuple | list) else []
            if not numbers or None in numbers:
                raise LearnerError(
                    f"StageReport({name}={reprlib.repr(given)}): must be a tuple with a number for each epoch; give "
                    f"{name}=(0.5,)"
                )
            object.__setattr__(self, name, tuple(numbers))
        if wrong := [error for error in self.validation_error if math.isfinite(error) and not 0 <= error <= 1]:
            raise LearnerError(
                f"StageReport(validation_error={reprlib.repr(self.validation_error)}): {wrong[0]:g} is no fraction; "
                "give the part of wrong answers, from 0 to 1, and not percent"
            )
        epochs = len(self.validation_loss)
        if len(self.validation_error) != epochs:
            raise LearnerError(
                f"StageReport with {epochs} values of validation_loss and {len(self.validation_error)} of "
                "validation_error: must have one for each epoch; give equal numbers of both"
            )
        whole = isinstance(self.best_epoch, Integral) and not isinstance(self.best_epoch, bool)
        if not whole or not 0 <= self.best_epoch <= epochs:
            raise LearnerError(
                f"StageReport(best_epoch={reprlib.repr(self.best_epoch)}): must be the number of the best epoch, 1 to "
                f"{epochs}, or 0 if the weights from before the training were kept; give best_epoch=1"
            )

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


def as_number(value: object) -> float | None:
    """Return a number, or a tensor or array without dimensions, as a float; None for anything else."""
    if isinstance(value, Real) or (isinstance(value, Tensor | np.ndarray) and value.ndim == 0):
        return float(value)
    return None


class Curves(NamedTuple):
    """The validation results of a stage as tensors on the device of the network.

    `loss` and `error` are (epochs,), all others (). `criterion` is that of the best epoch, infinite if there is none.
    """

    loss: Tensor
    error: Tensor
    best_epoch: Tensor
    criterion: Tensor
    initial: tuple[Tensor, Tensor] | None

    def report(self) -> StageReport:
        """Return the report of the stage; warn if no epoch had a finite loss. This waits for the device."""
        if not self.criterion.isfinite():
            warnings.warn(_NOT_FINITE, RuntimeWarning, stacklevel=4)
        initial = None if self.initial is None else (self.initial[0].item(), self.initial[1].item())
        return StageReport(tuple(self.loss.tolist()), tuple(self.error.tolist()), int(self.best_epoch), initial)


_NOT_FINITE = (
    "no epoch of the stage had a finite validation loss: the weights from before the stage are kept; "
    "lower the learning rate or check the inputs"
)

# Trains `predictor.body` in place on T, selects on V, and leaves it at its best epoch.
Engine = Callable[[Predictor, Examples, Examples, DataOrder, OnEpoch | None], Curves]


def train_stage(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    generators: StageGenerators,
    *,
    engine: Engine | None = None,
    on_epoch: OnEpoch | None = None,
) -> StageReport:
    """Train `predictor.body` in place on T = `train` and leave it in eval mode at its best epoch on V = `valid`.

    The data order and the augmentation are drawn on the CPU, so they are the same on every device. An epoch whose loss
    is NaN or infinite is never the best. If there is no other epoch, the weights from before the stage stay and a
    `RuntimeWarning` is issued. `engine` is `plain_engine` if None.

    Raises:
        ValueError: `train` or `valid` is empty, or its inputs and labels differ in number.
    """
    _require_examples(train=train, valid=valid)
    device = next(predictor.parameters()).device
    order = DataOrder(len(train), settings, generators)
    curves = (engine or plain_engine)(predictor, train.to(device), valid.to(device), order, on_epoch)
    predictor.body.eval()
    return curves.report()


def _require_examples(**parts: Examples) -> None:
    """Raise ValueError if a part of the data is empty, or its inputs and labels differ in number."""
    for name, part in parts.items():
        if len(part.x) != len(part.y):
            raise ValueError(f"{name}: {len(part.x)} inputs and {len(part.y)} labels; give one label per input")
        if len(part) == 0:
            raise ValueError(f"{name}: 0 examples; a stage needs at least 1, so use larger mega-batches")


def plain_engine(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    order: DataOrder,
    on_epoch: OnEpoch | None,
    *,
    processes: SingleProcess | None = None,
) -> Curves:
    """Compute a stage step by step. Only `patience` waits for the device. `processes` divides the examples.

    A body with a true attribute `cost_depends_on_data` is metered in full at each step. A body whose cost depends on a
    single number can report that number instead (`alma_env.metering.function_cost.cost_varies_with`).
    """
    processes = processes or SingleProcess()
    body, settings, own = predictor.body, order.settings, processes.share(0, len(valid))
    mini_batches = MiniBatches(predictor.normalize, train.x, train.y, order)
    valid_x, valid_y = predictor.normalize(valid.x[own]), valid.y[own]
    in_full = getattr(body, "cost_depends_on_data", False)
    step = train_mini_batch.fn if in_full else train_mini_batch
    optimizer, schedule = new_optimizer(body, settings)
    best = BestEpoch(body, settings)

    def score() -> tuple[Tensor, Tensor]:
        means = validate(body, valid_x, valid_y, settings.validation_batch, in_full=in_full)
        loss, error = processes.means(means, len(valid))
        best.offer(loss, error)
        return loss, error

    curve: list[tuple[Tensor, Tensor]] = []
    loss = partial(training_loss, settings=settings)
    seeded = _seeded(order.generators.noise, train.y.device, processes.number)
    with seeded, processes.replicas(body, loss, order, len(valid)):
        initial = score() if settings.keep_initial else None
        for epoch in range(settings.epochs):
            body.train()
            for start in range(epoch * order.per_epoch, (epoch + 1) * order.per_epoch, settings.batch_size):
                end = min(start + settings.batch_size, (epoch + 1) * order.per_epoch)
                x, y = mini_batches.at(processes.share(start, end))
                step(body, optimizer, x, y, settings)
                if schedule is not None:
                    schedule.step()
            curve.append(score())
            if on_epoch is not None:
                on_epoch(epoch + 1)
            if settings.patience is not None and epoch + 1 - int(best.epoch) >= settings.patience:
                break
    best.restore()
    losses, errors = zip(*curve, strict=True)
    return Curves(torch.stack(losses), torch.stack(errors), best.epoch, best.criterion, initial)


@contextmanager
def _seeded(noise: torch.Generator | None, device: torch.device, process: int) -> Iterator[None]:
    """Seed the global generator from `noise` in this block and restore its state afterwards."""
    if noise is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed = noise.initial_seed() + process  # each process sees other examples and needs other numbers
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield
