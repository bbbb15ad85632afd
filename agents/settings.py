"""The recipe of one stage of training, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
