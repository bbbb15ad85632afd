"""One optimizer step on a mini-batch, and the validation of a network."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.stacked import SIDE_BY_SIDE, for_members
from agents.networks.switch import SwitchTransformer
from agents.training import distributed
from agents.training.settings import StageSettings
from alma_env.metering import meter
from alma_env.metering.function_cost import count_once


@count_once
def train_mini_batch(
    body: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, settings: StageSettings
) -> None:
    """Take one optimizer step on a mini-batch of normalised inputs and labels."""
    optimizer.zero_grad()
    parts, replica = settings.accumulation, distributed.replica_of(body)
    loss = partial(training_loss, body, settings=settings) if replica is None else replica
    if parts == 1:
        loss(x, y).backward()
    else:
        along = _batch_dimension(body, y)
        pairs = list(zip(x.chunk(parts, along), y.chunk(parts, along), strict=True))
        for part, (part_x, part_y) in enumerate(pairs, 1):
            with distributed.gradients_kept(replica, last=part == len(pairs)):
                # Weighted by size: the last mini-batch of an epoch may have fewer parts, and a smaller last part.
                (loss(part_x, part_y) / (y.shape[along] / part_y.shape[along])).backward()
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(body.parameters(), settings.clip)
    optimizer.step()


def training_loss(body: nn.Module, x: Tensor, y: Tensor, settings: StageSettings) -> Tensor:
    """Return the loss of a mini-batch: the mean cross-entropy, of stacked networks the sum of their means."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
        if isinstance(body, SIDE_BY_SIDE):
            logits = body(x, separate=y.dim() > 1)
            # The optimizers are elementwise, so the gradient of the sum trains each member on its own loss.
            return _members_cross_entropy(_float32(logits), for_members(y, body.members)).mean(1).sum()
        if isinstance(body, SwitchTransformer):
            return body.training_loss(x, y, settings.balance)
        logits = body(x)
    return _cross_entropy(_float32(logits), y, "mean")


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
    """Return the learning rate of the next update as a fraction of the peak, after `done` updates (METHODS E.3).

    For update u of U and a warm-up of W updates it is u / W up to update W, then (U − u) / (U − W).

    >>> settings = StageSettings(epochs=1, updates=6, warmup=2, schedule="linear")
    >>> [rate_factor(settings, done) for done in range(6)]
    [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    update, updates, warmup = done + 1, settings.updates or 0, settings.warmup
    if update <= warmup:
        return update / warmup
    return 1.0 if settings.schedule == "constant" else max(updates - update, 0) / (updates - warmup)


def validate(body: nn.Module, x: Tensor, y: Tensor, batch_size: int, *, in_full: bool = False) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy and the error fraction of `body` on normalised inputs, in eval mode.

    Both are () for one network, or (members,) for networks side by side, whose inputs are (n, ...) or (groups, n, ...).
    For text they are means over tokens. `in_full` meters each batch operation by operation.
    """
    body.eval()
    score = score_batch.fn if in_full else score_batch
    along = _batch_dimension(body, y)
    loss, wrong = torch.zeros((), device=x.device), torch.zeros((), device=x.device)
    for batch in zip(torch.split(x, batch_size, along), torch.split(y, batch_size, along), strict=True):
        batch_loss, batch_wrong = score(body, *batch)
        loss, wrong = loss + batch_loss, wrong + batch_wrong
    answers = y.shape[1] if along else y.numel()
    return loss / answers, wrong / answers


@count_once
@torch.no_grad()
def score_batch(body: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy and the number of wrong answers of one batch."""
    with meter.phase("validation"):
        if isinstance(body, SIDE_BY_SIDE):
            logits = body(x, separate=y.dim() > 1)
            y = for_members(y, body.members)
            return _members_cross_entropy(logits, y).sum(1), (logits.contiguous().argmax(-1) != y).sum(-1)
        logits = body(x)
        return _cross_entropy(logits, y, "sum"), (logits.argmax(-1) != y).sum()


def _batch_dimension(body: nn.Module, y: Tensor) -> int:
    """Return 1 if the first dimension of a batch is that of members or groups, else 0."""
    return int(isinstance(body, SIDE_BY_SIDE) and y.dim() > 1)


def _float32(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype == torch.bfloat16 else logits


def _cross_entropy(logits: Tensor, y: Tensor, reduction: Literal["mean", "sum"]) -> Tensor:
    """Return the cross-entropy () of logits (n, classes) with y (n,), or (n, T, vocabulary) with y (n, T)."""
    return F.cross_entropy(logits.flatten(0, -2), y.flatten().long(), reduction=reduction)


def _members_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy (members, n) of logits (members, n, classes) with y (members, n)."""
    # Classes as rows, the layout of the stacked linear layers: the softmax over short rows is up to ten times slower.
    return F.cross_entropy(logits.transpose(1, 2), y, reduction="none")
