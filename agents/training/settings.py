"""The recipe of one stage of training, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StageSettings:
    """The recipe of a stage.

    An epoch is better when its `select` criterion is below the best so far by more than `min_delta`; among equal
    epochs the first stays. `patience` ends the stage after so many epochs without a better one (None: never).
    `keep_initial` makes the weights from before the stage a candidate too. `momentum` belongs to sgd, `rho` to
    adadelta, `beta1` and `beta2` to adam, `eps` to both of these. `validation_batch` changes speed only.

    With `updates` a stage has so many mini-batch steps, however many examples there are: `epochs` then is the number of
    equal parts that they are cut into, with a validation after each, and the examples are gone through again and again,
    in a new order each time. `warmup` is the number of updates over which the learning rate rises linearly from 0; with
    `schedule` linear it then falls to 0 at the last update. A mini-batch is computed in `accumulation` equal parts, one
    after another; by several processes in as many parts each (`agents.parallel`). `clip` is the largest norm of a
    gradient, `balance` the factor of the loss with which a Switch Transformer's routers are balanced.
    """

    epochs: int = 100
    batch_size: int = 128
    optimizer: Literal["adadelta", "sgd", "adam"] = "sgd"
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
    updates: int | None = None
    accumulation: int = 1
    beta1: float = 0.9
    beta2: float = 0.98
    schedule: Literal["constant", "linear"] = "constant"
    warmup: int = 0
    clip: float | None = None
    balance: float = 0.01

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(choices)}")
        for name in ("epochs", "batch_size", "validation_batch", "accumulation"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        for name in ("learning_rate", "eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")
        for name in ("weight_decay", "min_delta", "warmup", "balance"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)}: must not be negative")
        for name in ("momentum", "rho", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 0 and below 1")
        self._check_updates()
        if not 0 <= self.padding <= 127:
            raise ValueError(f"padding={self.padding}: must be 0 to 127 pixels")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience={self.patience}: must be at least 1 epoch, or None to run all epochs")

    def _check_updates(self) -> None:
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip={self.clip}: must be above 0, or None to leave gradients as they are")
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"accumulation={self.accumulation} with batch_size={self.batch_size}: the parts of a mini-batch must "
                "be equal; choose a divisor"
            )
        if self.updates is None:
            if self.schedule != "constant" or self.warmup:
                raise ValueError(
                    f"schedule={self.schedule!r}, warmup={self.warmup}: a schedule needs to know the number of updates "
                    "in a stage; set updates, too"
                )
            return
        if self.updates < 1 or self.updates % self.epochs:
            raise ValueError(
                f"updates={self.updates} with epochs={self.epochs}: the updates of a stage are cut into `epochs` equal "
                f"parts, each followed by a validation; choose a multiple of {self.epochs}"
            )
        if self.warmup >= self.updates:
            raise ValueError(
                f"warmup={self.warmup} with updates={self.updates}: a stage begins with the warm-up; lower warmup, "
                f"for example to {self.updates // 10}, or raise updates"
            )
        if self.schedule == "linear" and self.updates == 1:
            raise ValueError(
                "updates=1 with schedule='linear': the learning rate of the last update is 0, so that nothing would be "
                "learned; use at least 2 updates, or schedule='constant'"
            )


_CHOICES = {
    "optimizer": ("adadelta", "sgd", "adam"),
    "schedule": ("constant", "linear"),
    "augmentation": ("none", "crop_flip"),
    "select": ("val_loss", "val_error"),
    "precision": ("fp32", "bf16"),
}
