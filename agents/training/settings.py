"""The settings of one stage, as data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

from agents.policies.validation import check_choices, check_types

EngineName = Literal["plain", "native", "graphs"]
ENGINES = get_args(EngineName)
OnEpoch = Callable[[int], None]  # called with the number of epochs done


@dataclass(frozen=True)
class StageSettings:
    """The settings of a stage.

    Without `updates`, an epoch is one pass over the examples. With `updates`, the number of mini-batch steps of a stage
    is fixed, and the examples repeat in a new random order each time. Among equal epochs the first stays the best;
    docs/differences.md compares this rule with the paper.

    Attributes:
        epochs: passes over the examples; with `updates`, the number of equal parts of the stage, each followed by a
            validation.
        batch_size: examples in a mini-batch.
        optimizer: ``adadelta``, ``sgd`` or ``adam``; every stage starts with a new one.
        learning_rate: the step size, above 0.
        momentum: of sgd, from 0 to below 1.
        weight_decay: the factor of the weights that is added to their gradients, at least 0.
        rho: the decay of the averages of adadelta, from 0 to below 1.
        eps: the small number in the denominators of adadelta and adam, above 0.
        augmentation: ``none``, or ``crop_flip`` for images: a random crop after padding, and a random flip.
        padding: pixels of padding on each side before a crop, 0 to 127.
        select: the number that the best epoch minimises on V: ``val_loss``, the mean cross-entropy, or ``val_error``.
        patience: epochs without a better one after which the stage ends; None: never.
        min_delta: the amount by which `select` must fall below the best so far for an epoch to be better.
        keep_initial: whether the weights from before the stage are a candidate for the best epoch.
        precision: ``fp32``, or ``bf16`` for matrix products in bfloat16.
        validation_batch: validation examples in a forward pass; it changes the speed only.
        updates: mini-batch steps of a stage; None: as many as `epochs` passes have.
        accumulation: equal parts of a mini-batch, computed one after another; each of several ranks computes that
            number of parts (`agents.training.distributed`).
        beta1: the decay of adam's average of gradients, from 0 to below 1.
        beta2: the decay of adam's average of squared gradients, from 0 to below 1.
        schedule: of the learning rate after the warm-up: ``constant``, or ``linear`` to 0 at the last update.
        warmup: updates over which the learning rate rises linearly from 0.
        clip: the maximum norm of the gradient; None: no limit.
        balance: the factor of the balance loss of a Switch Transformer.
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
        for name, value in check_types(vars(self), STAGE_TYPES, _DEFAULTS).items():
            object.__setattr__(self, name, value)
        check_choices(vars(self), STAGE_TYPES)
        for name in ("epochs", "batch_size", "validation_batch", "accumulation"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1; use {name}={_DEFAULTS[name]}")
        for rule, holds, names in _RANGES:
            for name in names:
                if not holds(getattr(self, name)):
                    raise ValueError(f"{name}={getattr(self, name)}: {rule}; leave {name} out for the default")
        self._check_updates()
        if not 0 <= self.padding <= 127:
            raise ValueError(f"padding={self.padding}: must be from 0 to 127 pixels; use padding=4")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience={self.patience}: must be at least 1 epoch; use patience=None to run all epochs")

    def _check_updates(self) -> None:
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip={self.clip}: must be above 0; use clip=None to leave gradients unclipped")
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"accumulation={self.accumulation} with batch_size={self.batch_size}: the parts of a "
                "mini-batch must be equal; choose a divisor of the batch size"
            )
        if self.updates is None:
            if self.schedule != "constant" or self.warmup:
                raise ValueError(
                    f"schedule={self.schedule!r}, warmup={self.warmup}: a schedule needs the number of updates of a "
                    "stage; set updates"
                )
            return
        if self.updates < 1 or self.updates % self.epochs:
            raise ValueError(
                f"updates={self.updates} with epochs={self.epochs}: a stage divides its updates into `epochs` equal "
                f"parts; choose a multiple of {self.epochs}"
            )
        if self.warmup >= self.updates:
            raise ValueError(
                f"warmup={self.warmup} with updates={self.updates}: the warm-up must be shorter than the stage; "
                f"lower warmup, for example to {self.updates // 10}, or raise updates"
            )
        if self.schedule == "linear" and self.updates == 1:
            raise ValueError(
                "updates=1 with schedule='linear': the learning rate of the only update would be 0; use at least 2 "
                "updates, or schedule='constant'"
            )


def settings_without_effect(settings: StageSettings) -> dict[str, str]:
    """Return what each setting that changes nothing would need, by the name of the setting.

    >>> settings_without_effect(StageSettings(optimizer="sgd", augmentation="crop_flip"))["rho"]
    "optimizer='adadelta'"
    """
    needs = {
        name: " or ".join(f"optimizer={optimizer!r}" for optimizer in optimizers)
        for name, optimizers in _OPTIMIZERS.items()
        if settings.optimizer not in optimizers
    }
    return needs if settings.augmentation == "crop_flip" else {**needs, "padding": "augmentation='crop_flip'"}


_OPTIMIZERS = {
    "momentum": ("sgd",),
    "rho": ("adadelta",),
    "eps": ("adadelta", "adam"),
    "beta1": ("adam",),
    "beta2": ("adam",),
}
STAGE_TYPES = get_type_hints(StageSettings)
_DEFAULTS = {field.name: field.default for field in fields(StageSettings)}
_RANGES: tuple[tuple[str, Callable[[float], bool], tuple[str, ...]], ...] = (
    ("must be above 0 and finite", lambda value: 0 < value < math.inf, ("learning_rate",)),
    ("must be at least 1.2e-38, a number of float32", lambda value: 1.2e-38 <= value < math.inf, ("eps",)),
    (
        "must be at least 0 and finite",
        lambda value: 0 <= value < math.inf,
        ("weight_decay", "min_delta", "warmup", "balance"),
    ),
    ("must be at least 0 and below 1", lambda value: 0 <= value < 1, ("momentum", "rho", "beta1", "beta2")),
)
