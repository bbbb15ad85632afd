"""One stage of training: fine-tune a predictor on the gathered mega-batches and keep its best epoch.

ALMA paper, Algorithm 1, the call `model.train(T, V)`: epochs over T in random order, a fresh optimizer, the validation
part V scored after every epoch, and the weights of the best epoch deployed and carried to the next stage. `train_stage`
is the reference; small networks may run the same stage through `agents.compiled`: the same result, faster.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents import compiled, parallel
from agents.best_epoch import BestEpoch
from agents.draws import Draws, mini_batches
from agents.networks import Predictor
from agents.settings import StageSettings
from agents.stacked import SIDE_BY_SIDE, Mixtures, Stacked, for_members
from agents.switch import SwitchTransformer
from agents.token_loss import token_cross_entropy
from alma_env import meter

__all__ = [
    "Engine",
    "Examples",
    "OnEpoch",
    "StageReport",
    "StageSettings",
    "train_stage",
    "train_together",
    "validate",
]

Engine = Literal["plain", "compiled"]
OnEpoch = Callable[[int], None]  # told the number of epochs done


@dataclass(frozen=True)
class Examples:
    """Raw inputs `x` (n, ...), uint8 or float32, and labels `y` (n,), int64; of text both are int32 (n, T)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> Examples:
        """The same examples on another device."""
        return Examples(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class StageReport:
    """What a stage did.

    `validation_loss` (mean cross-entropy) and `validation_error` (fraction) hold one value per epoch that was run.
    `best_epoch` counts from 1; 0 stands for the weights from before the stage, whose loss and error are `initial` where
    they were a candidate (`keep_initial`).
    """

    validation_loss: tuple[float, ...]
    validation_error: tuple[float, ...]
    best_epoch: int
    initial: tuple[float, float] | None = None

    @property
    def epochs_run(self) -> int:
        """Epochs that were trained, and charged, whether or not they were the best."""
        return len(self.validation_loss)

    @property
    def best_loss(self) -> float:
        """Validation loss of what was kept; of the first epoch where none was finite, and nothing was a candidate."""
        if self.best_epoch == 0 and self.initial is not None:
            return self.initial[0]
        return self.validation_loss[max(self.best_epoch - 1, 0)]

    @property
    def best_error(self) -> float:
        """Validation error of the same weights."""
        if self.best_epoch == 0 and self.initial is not None:
            return self.initial[1]
        return self.validation_error[max(self.best_epoch - 1, 0)]


def train_stage(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    *,
    order: torch.Generator,
    augment: torch.Generator,
    noise: torch.Generator | None = None,
    engine: Engine = "plain",
    on_epoch: OnEpoch | None = None,
) -> StageReport:
    """Train `predictor.body` in place and leave it, in eval mode, with the weights and buffers of its best epoch.

    All draws are made on the CPU before the first step, so that they are the same on every device. After that no step
    waits on the host, unless `patience` asks it to. What the network itself draws while it trains (dropout, routing)
    comes from `noise`, if given. An epoch with a loss that is not finite is never the best; when all are, the weights
    from before the stage stay and a `RuntimeWarning` tells.

    A body with an attribute `cost_depends_on_data` that is true has each of its steps counted in full. Where a single
    number decides the cost, a body says it in place of that (`alma_env.meter.cost_varies_with`).

    Raises:
        ValueError: `train` or `valid` is empty, or its inputs and labels differ in number; the engine cannot run it.
    """
    draws = Draws(len(train), settings, [order], [augment], noise)
    return _train(predictor, train, valid, settings, draws, engine, on_epoch)[0]


def train_together(
    normalize: nn.Module,
    stacked: Stacked | Mixtures,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    *,
    orders: Sequence[torch.Generator],
    augments: Sequence[torch.Generator],
    groups: int = 1,
    engine: Engine = "plain",
    on_epoch: OnEpoch | None = None,
) -> list[StageReport]:
    """`train_stage` for all members of a stack at once: each has its own draws and keeps its own best epoch.

    With `groups`, `train` and `valid` hold so many equal sets, one after another, each for as many members that follow
    one another. The numbers are those of one call per member, to rounding, and the FLOPs are their sum.

    Raises:
        ValueError: as `train_stage`; `patience`, which would stop the members at different epochs; `clip`, since they
            have one norm.
    """
    if settings.patience is not None:
        raise ValueError(
            f"patience={settings.patience}: members that are trained together cannot stop at different epochs; "
            "set patience=None, or train one after another (together=False)"
        )
    if settings.clip is not None:
        raise ValueError(
            f"clip={settings.clip}: the gradient of members that are trained together has one norm; set clip=None, or "
            "train one after another (together=False)"
        )
    draws = Draws(len(train) // groups, settings, orders, augments, None, groups)
    return _train(Predictor(normalize, stacked), train, valid, settings, draws, engine, on_epoch)


def _train(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    draws: Draws,
    engine: Engine,
    on_epoch: OnEpoch | None,
) -> list[StageReport]:
    _require_examples(train=train, valid=valid)
    device = next(predictor.parameters()).device
    train, valid = train.to(device), valid.to(device)
    if engine == "compiled" and device.type == "cpu":
        if parallel.ranks() > 1:
            raise ValueError(f"engine='compiled' with {parallel.ranks()} ranks: it runs alone; use engine='plain'")
        return _train_compiled(predictor, train, valid, settings, draws, on_epoch)
    with _seeded(draws.noise, device):
        return _train_plain(predictor, train, valid, settings, draws, on_epoch)


def _train_plain(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    draws: Draws,
    on_epoch: OnEpoch | None,
) -> list[StageReport]:
    body, own = predictor.body, parallel.share(0, len(valid))
    valid_x, valid_y = draws.by_set(predictor.normalize(valid.x[own])), draws.by_set(valid.y[own])
    mini_batch = mini_batches(predictor.normalize, train.x, train.y, settings, draws)
    optimizer, schedule = _fresh_optimizer(body, settings)
    best = BestEpoch(body, settings, draws.members)
    in_full = getattr(body, "cost_depends_on_data", False)
    train_batch = _train_batch.fn if in_full else _train_batch
    parallel.require_shares(settings, draws.per_epoch, len(valid))

    def score() -> tuple[Tensor, ...]:
        means = validate(body, valid_x, valid_y, settings.validation_batch, in_full=in_full)
        return parallel.mean_of_shares(means, len(valid_y), len(valid))

    initial = score() if settings.keep_initial else None
    if initial is not None:
        best.offer(*initial)
    losses: list[Tensor] = []
    errors: list[Tensor] = []
    all_used = not in_full or isinstance(body, SwitchTransformer)
    with parallel.replicated(body, partial(_loss, settings=settings), all_used=all_used):
        for epoch in range(settings.epochs):
            body.train()
            for start in range(0, draws.per_epoch, settings.batch_size):
                batch = parallel.share(start, min(start + settings.batch_size, draws.per_epoch))
                train_batch(body, optimizer, *mini_batch(epoch, batch), settings)
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
    body.eval()
    return _reports(torch.stack(losses), torch.stack(errors), best.epoch, best.criterion, initial)


def _train_compiled(
    predictor: Predictor,
    train: Examples,
    valid: Examples,
    settings: StageSettings,
    draws: Draws,
    on_epoch: OnEpoch | None,
) -> list[StageReport]:
    body = predictor.body
    if not compiled.supports(body, settings):
        raise ValueError(
            f"engine='compiled' with {type(body).__name__}, augmentation={settings.augmentation!r}, "
            f"precision={settings.precision!r}: it runs MLPs in fp32 without augmentation; use engine='plain'"
        )
    # A mini-batch that is the whole epoch is the same in any order.
    orders = None if draws.epoch_is_one_batch else draws.orders()
    (losses, errors), end, initial = compiled.run_stage(
        body,
        settings,
        (predictor.normalize(train.x), train.y),
        (draws.by_set(predictor.normalize(valid.x)), draws.by_set(valid.y)),
        orders,
        on_epoch,
    )
    body.eval()
    return _reports(losses, errors, end.best_epoch, end.criterion, initial)


def _reports(
    losses: Tensor, errors: Tensor, best_epoch: Tensor, criterion: Tensor, initial: Sequence[Tensor] | None
) -> list[StageReport]:
    """One report per member: losses and errors (epochs,) or (epochs, members), the others () or (members,)."""
    if not criterion.isfinite().all():
        warnings.warn(_DIVERGED, RuntimeWarning, stacklevel=4)
    epochs = len(losses)
    members = zip(
        losses.view(epochs, -1).T.tolist(),
        errors.view(epochs, -1).T.tolist(),
        best_epoch.flatten().tolist(),
        [None] * best_epoch.numel() if initial is None else zip(*(i.flatten().tolist() for i in initial), strict=True),
        strict=True,
    )
    return [StageReport(tuple(loss), tuple(error), best, before) for loss, error, best, before in members]


@contextmanager
def _seeded(noise: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Have layers that draw from the global generator draw from `noise`, and leave the global one as it was."""
    if noise is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed = noise.initial_seed() + parallel.rank()  # ranks that see different examples need different draws
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def validate(body: nn.Module, x: Tensor, y: Tensor, batch_size: int, *, in_full: bool = False) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy and error fraction of `body`, put into eval mode, on normalised inputs.

    Two scalars, or two tensors (members,) of networks side by side, whose inputs may be (n, ...) or (groups, n, ...).
    Of text, both are means over tokens. `in_full` has each batch counted operation by operation.
    """
    body.eval()
    score = _score_batch.fn if in_full else _score_batch
    along = int(isinstance(body, SIDE_BY_SIDE) and y.dim() > 1)
    loss, wrong = torch.zeros((), device=x.device), torch.zeros((), device=x.device)
    for batch in zip(torch.split(x, batch_size, along), torch.split(y, batch_size, along), strict=True):
        batch_loss, batch_wrong = score(body, *batch)
        loss, wrong = loss + batch_loss, wrong + batch_wrong
    answers = y.shape[1] if along else y.numel()
    return loss / answers, wrong / answers


@meter.count_once
@torch.no_grad()
def _score_batch(body: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy and number of wrong answers. Of a batch: what is counted first runs on copies."""
    with meter.phase("validation"):
        if isinstance(body, SIDE_BY_SIDE):
            logits = body(x, separate=y.dim() > 1)
            y = for_members(y, body.members)
            return _members_cross_entropy(logits, y).sum(1), (logits.contiguous().argmax(-1) != y).sum(-1)
        logits = body(x)
        return _cross_entropy(logits, y, "sum"), (logits.argmax(-1) != y).sum()


@meter.count_once
def _train_batch(
    body: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, settings: StageSettings
) -> None:
    optimizer.zero_grad()
    parts, replica = settings.accumulation, parallel.replica_of(body)
    loss = partial(_loss, body, settings=settings) if replica is None else replica
    if parts == 1:
        loss(x, y).backward()
    else:
        along = int(isinstance(body, SIDE_BY_SIDE) and y.dim() > 1)  # members come first where each has its own batch
        pairs = list(zip(x.chunk(parts, along), y.chunk(parts, along), strict=True))
        for part, (part_x, part_y) in enumerate(pairs, 1):
            with parallel.gradients_kept(replica, last=part == len(pairs)):
                # By its share: a mini-batch at the end of an epoch may have fewer parts, and a smaller one.
                (loss(part_x, part_y) / (y.shape[along] / part_y.shape[along])).backward()
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(body.parameters(), settings.clip)
    optimizer.step()


def _loss(body: nn.Module, x: Tensor, y: Tensor, settings: StageSettings) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
        if isinstance(body, SIDE_BY_SIDE):
            logits = body(x, separate=y.dim() > 1)
            # The optimizers work number by number, so the sum of the losses trains each member as its own would.
            return _members_cross_entropy(_unrounded(logits), for_members(y, body.members)).mean(1).sum()
        if isinstance(body, SwitchTransformer):
            logits, balance = body.forward_with_balance(x)
            return token_cross_entropy(logits.flatten(0, 1), y.flatten().long()) + settings.balance * balance
        logits = body(x)
    return _cross_entropy(_unrounded(logits), y, "mean")


def _unrounded(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype == torch.bfloat16 else logits


def _cross_entropy(logits: Tensor, y: Tensor, reduction: Literal["mean", "sum"]) -> Tensor:
    """() of logits (n, classes) with y (n,), or (n, T, vocabulary) with y (n, T)."""
    if y.dim() == 1:
        return F.cross_entropy(logits, y, reduction=reduction)
    return F.cross_entropy(logits.flatten(0, 1), y.flatten().long(), reduction=reduction)


def _members_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """(members, n) of logits (members, n, classes) with y (members, n)."""
    # Classes as rows, as `stacked.linear` leaves them: the softmax over short rows takes up to ten times as long.
    return F.cross_entropy(logits.transpose(1, 2), y, reduction="none")


_DIVERGED = (
    "no epoch of the stage had a finite validation loss: the weights from before the stage are kept; "
    "lower the learning rate or look for bad inputs"
)


def _fresh_optimizer(
    body: nn.Module, settings: StageSettings
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler | None]:
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
    """The learning rate of the update after so many, as a part of the peak (METHODS E.3).

    u / W up to update W, then (U − u) / (U − W), for update u of U and a warm-up of W.

    >>> settings = StageSettings(epochs=1, updates=6, warmup=2, schedule="linear")
    >>> [rate_factor(settings, done) for done in range(6)]
    [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    update, updates, warmup = done + 1, settings.updates or 0, settings.warmup
    if update <= warmup:
        return update / warmup
    return 1.0 if settings.schedule == "constant" else max(updates - update, 0) / (updates - warmup)


def _require_examples(**parts: Examples) -> None:
    for name, part in parts.items():
        if len(part.x) != len(part.y):
            raise ValueError(
                f"{name}: {len(part.x)} inputs and {len(part.y)} labels; there must be one label per input"
            )
        if len(part) == 0:
            raise ValueError(f"{name}: 0 examples; a stage needs at least one, so use larger mega-batches")
