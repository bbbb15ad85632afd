"""One stage of training: fine-tune a predictor on the gathered mega-batches and keep its best epoch.

ALMA paper, Algorithm 1, the call `model.train(T, V)`: epochs over T in random order, a fresh optimizer, the validation
part V scored after every epoch, and the weights of the best epoch deployed and carried to the next stage. `train_stage`
is the reference; small networks may run the same stage through `agents.compiled`: the same result, faster.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents import compiled
from agents.augment import PaddedImages, draw_crop_flip
from agents.networks import MLP, Predictor
from alma_env import meter

Engine = Literal["plain", "compiled"]
OnEpoch = Callable[[int], None]  # told the number of epochs done


@dataclass(frozen=True)
class Examples:
    """Raw inputs `x` (n, ...), uint8 or float32, and labels `y` (n,), int64."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> Examples:
        """The same examples on another device."""
        return Examples(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class StageSettings:
    """The recipe of a stage.

    An epoch is better when its `select` criterion is below the best so far by more than `min_delta`; among equal
    epochs the first stays. `patience` ends the stage after so many epochs without a better one (None: never).
    `keep_initial` makes the weights from before the stage a candidate too. `momentum` belongs to sgd, `rho` and `eps`
    to adadelta. `validation_batch` changes speed only.
    """

    epochs: int = 100
    batch_size: int = 128
    optimizer: Literal["adadelta", "sgd"] = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    rho: float = 0.9
    eps: float = 1e-6
    augmentation: Literal["none", "crop_flip"] = "none"
    padding: int = 4
    select: Literal["val_loss", "val_error"] = "val_loss"
    patience: int | None = None
    min_delta: float = 0.0
    keep_initial: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"
    validation_batch: int = 512

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(choices)}")
        for name in ("epochs", "batch_size", "validation_batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        for name in ("learning_rate", "eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")
        for name in ("weight_decay", "min_delta"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)}: must not be negative")
        for name in ("momentum", "rho"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 0 and below 1")
        if not 0 <= self.padding <= 127:
            raise ValueError(f"padding={self.padding}: must be 0 to 127 pixels")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience={self.patience}: must be at least 1 epoch, or None to run all epochs")


_CHOICES = {
    "optimizer": ("adadelta", "sgd"),
    "augmentation": ("none", "crop_flip"),
    "select": ("val_loss", "val_error"),
    "precision": ("fp32", "bf16"),
}


@dataclass(frozen=True)
class StageReport:
    """What a stage did.

    `validation_loss` (mean cross-entropy) and `validation_error` (fraction) hold one value per epoch that was run.
    `best_epoch` counts from 1; 0 stands for the weights from before the stage.
    """

    validation_loss: tuple[float, ...]
    validation_error: tuple[float, ...]
    best_epoch: int

    @property
    def epochs_run(self) -> int:
        """Epochs that were trained, and charged, whether or not they were the best."""
        return len(self.validation_loss)


def train_stage(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    *,
    order: torch.Generator,
    augment: torch.Generator,
    engine: Engine = "plain",
    on_epoch: OnEpoch | None = None,
) -> StageReport:
    """Train `predictor.body` in place and leave it, in eval mode, with the weights and buffers of its best epoch.

    All draws are made on the CPU before the first step, so that they are the same on every device. After that no step
    waits on the host, unless `patience` asks it to. An epoch with a loss that is not finite is
    never the best; when all are, the weights from before the stage stay and a `RuntimeWarning` tells.

    Raises:
        ValueError: `train` or `valid` is empty, or its inputs and labels differ in number.
    """
    _require_examples(train=train, valid=valid)
    device = next(predictor.parameters()).device
    train, valid = train.to(device), valid.to(device)
    if engine == "compiled" and device.type == "cpu":
        return _train_compiled(predictor, train, valid, settings, order, on_epoch)
    orders = draw_orders(len(train), settings.epochs, order).to(device)  # (epochs, n)
    inputs = _training_inputs(predictor, train, settings, augment)
    body, valid_x = predictor.body, predictor.normalize(valid.x)
    optimizer = _fresh_optimizer(body, settings)
    best = _BestEpoch(body, settings, first=0 if settings.keep_initial else 1)
    if settings.keep_initial:
        best.offer(*validate(body, valid_x, valid.y, settings.validation_batch))
    losses: list[Tensor] = []
    errors: list[Tensor] = []
    for epoch in range(settings.epochs):
        body.train()
        for start in range(0, len(train), settings.batch_size):
            batch = slice(start, start + settings.batch_size)
            index = orders[epoch, batch]
            _train_batch(body, optimizer, inputs(index, epoch, batch), train.y[index], settings.precision)
        loss, error = validate(body, valid_x, valid.y, settings.validation_batch)
        best.offer(loss, error)
        losses.append(loss)
        errors.append(error)
        if on_epoch is not None:
            on_epoch(epoch + 1)
        if settings.patience is not None and epoch + 1 - int(best.epoch) >= settings.patience:
            break
    best.restore()
    body.eval()
    return _report(torch.stack(losses), torch.stack(errors), best.epoch, best.criterion)


def _train_compiled(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    order: torch.Generator,
    on_epoch: OnEpoch | None,
) -> StageReport:
    body = predictor.body
    if not (isinstance(body, MLP) and compiled.supports(predictor, settings)):
        raise ValueError(
            f"engine='compiled' with {type(body).__name__}, augmentation={settings.augmentation!r}, "
            f"precision={settings.precision!r}: it runs the MLP in fp32 without augmentation; use engine='plain'"
        )
    # A mini-batch that is the whole epoch is the same in any order.
    orders = draw_orders(len(train), settings.epochs, order) if len(train) > settings.batch_size else None
    (losses, errors), end = compiled.run_stage(
        body,
        settings,
        (predictor.normalize(train.x), train.y),
        (predictor.normalize(valid.x), valid.y),
        orders,
        on_epoch,
    )
    body.eval()
    return _report(losses, errors, end.best_epoch, end.criterion)


def _report(losses: Tensor, errors: Tensor, best_epoch: Tensor, criterion: Tensor) -> StageReport:
    if not criterion.isfinite():
        warnings.warn(_DIVERGED, RuntimeWarning, stacklevel=3)
    return StageReport(tuple(losses.tolist()), tuple(errors.tolist()), int(best_epoch))


def draw_orders(examples: int, epochs: int, generator: torch.Generator) -> Tensor:
    """One random order of the examples per epoch: int64 (epochs, examples), on the CPU."""
    return torch.stack([torch.randperm(examples, generator=generator) for _ in range(epochs)])


@meter.count_once
@torch.no_grad()
def validate(body: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy and error fraction of `body`, put into eval mode, on normalised inputs: two scalars."""
    body.eval()
    loss = torch.zeros((), device=x.device)
    wrong = torch.zeros((), device=x.device)
    with meter.phase("validation"):
        for part_x, part_y in zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True):
            logits = body(part_x)
            loss = loss + F.cross_entropy(logits, part_y, reduction="sum")
            wrong = wrong + (logits.argmax(1) != part_y).sum()
    return loss / len(y), wrong / len(y)


@meter.count_once
def _train_batch(body: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, precision: str) -> None:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
        logits = body(x)
    loss = F.cross_entropy(logits.float(), y)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@meter.count_once
def _keep_better(score: Tensor, loss: Tensor, min_delta: float, live: list[Tensor], kept: list[Tensor]) -> None:
    """`live` and `kept` begin with the number of the epoch and its criterion; the weights and buffers follow."""
    live[1].copy_(score)
    better = (score < kept[1] - min_delta) & loss.isfinite()
    for new, old in zip(live, kept, strict=True):
        torch.where(better, new, old, out=old)
    live[0].add_(1)


class _BestEpoch:
    """The weights and buffers of the best epoch so far, chosen on the device without waiting for the host.

    `first` is the number of the first epoch that is offered.
    """

    def __init__(self, body: nn.Module, settings: StageSettings, first: int) -> None:
        self._settings = settings
        self._weights = [tensor.detach() for tensor in (*body.parameters(), *body.buffers())]
        device = self._weights[0].device
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)
        self.criterion = torch.full((), torch.inf, device=device)
        self._live = [torch.full_like(self.epoch, first), self.criterion.clone(), *self._weights]
        self._kept = [self.epoch, self.criterion, *(tensor.clone() for tensor in self._weights)]

    def offer(self, loss: Tensor, error: Tensor) -> None:
        score = loss if self._settings.select == "val_loss" else error
        _keep_better(score, loss, self._settings.min_delta, self._live, self._kept)

    def restore(self) -> None:
        for live, kept in zip(self._weights, self._kept[2:], strict=True):
            live.copy_(kept)


_DIVERGED = (
    "no epoch of the stage had a finite validation loss: the weights from before the stage are kept; "
    "lower the learning rate or look for bad inputs"
)


def _fresh_optimizer(body: nn.Module, settings: StageSettings) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "adadelta":
        return torch.optim.Adadelta(body.parameters(), rate, settings.rho, settings.eps, decay)
    return torch.optim.SGD(body.parameters(), rate, settings.momentum, weight_decay=decay)


def _training_inputs(
    predictor: Predictor, train: Examples, settings: StageSettings, augment: torch.Generator
) -> Callable[[Tensor, int, slice], Tensor]:
    """A function of (indices, epoch, their places in the epoch) that gives the normalised inputs of a mini-batch."""
    if settings.augmentation == "none":
        normalised = predictor.normalize(train.x)
        return lambda index, epoch, batch: normalised.index_select(0, index)  # faster than brackets on a CPU
    images = PaddedImages(train.x, settings.padding)
    draws = draw_crop_flip((settings.epochs, len(train)), settings.padding, augment).to(train.x.device)
    return lambda index, epoch, batch: predictor.normalize(images.crop_flip(index, draws[epoch, batch]))


def _require_examples(**parts: Examples) -> None:
    for name, part in parts.items():
        if len(part.x) != len(part.y):
            raise ValueError(
                f"{name}: {len(part.x)} inputs and {len(part.y)} labels; there must be one label per input"
            )
        if len(part) == 0:
            raise ValueError(f"{name}: 0 examples; a stage needs at least one, so use larger mega-batches")
