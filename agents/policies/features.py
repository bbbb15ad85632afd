"""What a policy sees: the stream's progress as thirteen bounded numbers, the same for one run and for thousands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies import Progress

# Name, least and greatest value, and what it is; n / B are shares of the stream's length.
FEATURES: tuple[tuple[str, float, float, str], ...] = (
    ("tick", 0, 1, "t / B"),
    ("log_tick", 0, 1, "ln t / ln B"),
    ("pending", 0, 1, "mega-batches since the last training, the new one included, / B"),
    ("log_pending", 0, 1, "ln(1 + pending) / ln(1 + B)"),
    ("pending_share", 0, 1, "pending / t: 1 before the first training"),
    ("trained", 0, 1, "1 once there was a training"),
    ("log_stages", 0, 1, "ln(1 + trainings) / ln(1 + B)"),
    ("validation_loss", 0, 1, "loss of the last training's best epoch / (2 ln C), at most 1; a guess before the first"),
    ("validation_error", 0, 1, "fraction of wrong validation answers there; a guess before the first"),
    ("loss_trend", -1, 1, "fall of that loss since the training before / ln C; 0 before the second"),
    ("error_trend", -1, 1, "fall of that error since the training before; 0 before the second"),
    ("growth", 0, 1, "1 - untrained parameters / parameters now"),
    ("flops", 0, 1, "(log10 of the FLOPs spent - 6) / 12"),
)
NAMES = tuple(name for name, *_ in FEATURES)


def feature_space() -> spaces.Box:
    """The space of `features`, float32 (13,); a new object at each call."""
    low, high = (np.array([feature[side] for feature in FEATURES], np.float32) for side in (1, 2))
    return spaces.Box(low, high, dtype=np.float32)


def features(
    *,
    tick: Any,
    ticks: int,
    pending: Any,
    stages: Any,
    validation_loss: Any,
    validation_error: Any,
    previous_validation_loss: Any,
    previous_validation_error: Any,
    guess_loss: Any,
    parameters: Any,
    first_parameters: Any,
    flops: Any,
) -> NDArray[np.float32]:
    """Thirteen numbers in the order of `FEATURES`, each within its bounds.

    Arguments are those of `Progress`, as numbers or as arrays (n,) for n runs; a loss or error that is not there yet,
    or was not finite, is NaN.

    Returns:
        float32 (13,) or (n, 13).
    """
    out = np.empty((*np.shape(tick), len(FEATURES)), np.float32)
    nats = np.where(np.isfinite(validation_loss), validation_loss, guess_loss) / guess_loss
    wrong = np.where(np.isfinite(validation_error), validation_error, -np.expm1(-guess_loss))
    falls = (
        (np.asarray(previous_validation_loss) - validation_loss) / guess_loss,
        np.asarray(previous_validation_error) - validation_error,
    )
    out[..., 0] = np.divide(tick, ticks)
    out[..., 1] = np.log(tick) / math.log(max(ticks, 2))
    out[..., 2] = np.divide(pending, ticks)
    out[..., 3] = np.log1p(pending) / math.log1p(ticks)
    out[..., 4] = np.divide(pending, tick)
    out[..., 5] = np.greater(stages, 0)
    out[..., 6] = np.log1p(stages) / math.log1p(ticks)
    out[..., 7] = np.clip(nats / 2, 0, 1)
    out[..., 8] = np.clip(wrong, 0, 1)
    for column, fall in zip((9, 10), falls, strict=True):
        out[..., column] = np.clip(np.where(np.isfinite(fall), fall, 0), -1, 1)
    out[..., 11] = np.clip(1 - np.divide(first_parameters, np.maximum(parameters, 1)), 0, 1)
    out[..., 12] = np.clip((np.log10(np.maximum(flops, 1e6)) - 6) / 12, 0, 1)
    return out


def features_of(now: Progress) -> NDArray[np.float32]:
    """The features of one run, float32 (13,).

    Raises:
        ValueError: the progress lacks the loss of a guess or the FLOPs.
    """
    for name, remedy in (("guess_loss", "give AnytimeAgent classes="), ("flops", "ask inside `with env.meter:`")):
        if getattr(now, name) is None:
            raise ValueError(f"{name}=None in the policy's progress: the observation of a policy needs it; {remedy}")
    losses = {
        name: math.nan if getattr(now, name) is None else getattr(now, name)
        for name in (
            "validation_loss",
            "validation_error",
            "previous_validation_loss",
            "previous_validation_error",
        )
    }
    return features(
        tick=now.tick,
        ticks=now.ticks,
        pending=now.pending,
        stages=now.stages,
        guess_loss=now.guess_loss,
        parameters=now.parameters,
        first_parameters=now.first_parameters,
        flops=now.flops,
        **losses,
    )
