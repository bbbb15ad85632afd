"""One optimizer step on a mini-batch, and the validation of a network."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.training import distributed
from agents.training.settings import StageSettings
from alma_env.metering import meter
from alma_env.metering.function_cost import count_once


@runtime_checkable
class HasLoss(Protocol):
    """A network with a training loss of its own; others have the mean cross-entropy of their logits."""

    def training_loss(self, x: Tensor, y: Tensor, balance: float) -> Tensor:
        """Return the loss () of a mini-batch; `balance` is the factor of a balance loss."""


@count_once
def train_mini_batch(
    body: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, settings: StageSettings
) -> None:
    """Take one optimizer step on a mini-batch of normalised inputs and labels."""
    optimizer.zero_grad()
    gradients.fn(body, x, y, settings)
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(body.parameters(), settings.clip)
    optimizer.step()


@count_once
def gradients(body: nn.Module, x: Tensor, y: Tensor, settings: StageSettings) -> None:
    """Add the gradients of the loss of a mini-batch: all FLOPs of a step, because clipping and optimizers are free."""
    parts, replica = settings.accumulation, distributed.replica_of(body)
    loss = partial(training_loss, body, settings=settings) if replica is None else replica
    if parts == 1:
        loss(x, y).backward()
        return
    pairs = list(zip(x.chunk(parts), y.chunk(parts), strict=True))
    for part, (part_x, part_y) in enumerate(pairs, 1):
        with distributed.gradients_kept(replica, last=part == len(pairs)):
            # Weighted by size: the last mini-batch of an epoch may have fewer parts, and a smaller last part.
            (loss(part_x, part_y) / (len(y) / len(part_y))).backward()


def training_loss(body: nn.Module, x: Tensor, y: Tensor, settings: StageSettings) -> Tensor:
    """Return the loss of a mini-batch: the mean cross-entropy, or what the method `training_loss` of `body` returns."""
    with torch.autocast(x.device.type, torch.bfloat16) if settings.precision == "bf16" else nullcontext():
        if isinstance(body, HasLoss):
            return body.training_loss(x, y, settings.balance)
        logits = body(x)
    return _cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, y, "mean")


def new_optimizer(
    body: nn.Module, settings: StageSettings
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler | None]:
    """Return a new optimizer, and a learning rate schedule if the settings fix the number of updates."""
    rate, decay = settings.learning_rate, settings.weight_decay
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "adadelta":
        optimizer = torch.optim.Adadelta(body.parameters(), rate, settings.rho, settings.eps, decay)
    elif settings.optimizer == "adam":
        betas = (settings.beta1, settings.beta2)
        optimizer = torch.optim.Adam(body.parameters(), rate, betas, settings.eps, decay, fused=True)
    else:
        optimizer = torch.optim.SGD(body.parameters(), rate, settings.momentum, weight_decay=decay)
    if settings.updates is None:
        return optimizer, None
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, partial(rate_factor, settings))


def rate_factor(settings: StageSettings, done: int) -> float:
    """Return the learning rate of the next update as a fraction of the peak, after `done` updates.

    For update u of U and a warm-up of W updates it is u / W up to update W, then (U − u) / (U − W) (ALMA paper, section
    5, text).

    >>> settings = StageSettings(epochs=1, updates=6, warmup=2, schedule="linear")
    >>> [rate_factor(settings, done) for done in range(6)]
    [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    update, updates, warmup = done + 1, settings.updates or 0, settings.warmup
    if update <= warmup:
        return update / warmup
    return 1.0 if settings.schedule == "constant" else max(updates - update, 0) / (updates - warmup)


def validate(body: nn.Module, x: Tensor, y: Tensor, batch_size: int, *, in_full: bool = False) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy () and the error fraction () of `body` on normalised inputs, in eval mode.

    For text they are means over tokens. `in_full` meters each batch operation by operation.
    """
    body.eval()
    score = score_batch.fn if in_full else score_batch
    loss, wrong = torch.zeros((), device=x.device), torch.zeros((), device=x.device)
    for batch in zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True):
        batch_loss, batch_wrong = score(body, *batch)
        loss, wrong = loss + batch_loss, wrong + batch_wrong
    return loss / y.numel(), wrong / y.numel()


@count_once
@torch.no_grad()
def score_batch(body: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy () and the number of wrong answers ()."""
    with meter.phase("validation"):
        logits = body(x)
        return _cross_entropy(logits, y, "sum"), (logits.argmax(-1) != y).sum()


def _cross_entropy(logits: Tensor, y: Tensor, reduction: Literal["mean", "sum"]) -> Tensor:
    """Return the cross-entropy () of logits (n, classes) with y (n,), or (n, T, vocabulary) with y (n, T)."""
    return F.cross_entropy(logits.flatten(0, -2), y.flatten().long(), reduction=reduction)
