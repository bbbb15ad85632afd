"""The observation of a learned policy: the progress of one run, or of many, as thirteen bounded numbers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agents.policies.progress import Progress

# Name, minimum, maximum, definition. B is the length of the stream.
FEATURES: tuple[tuple[str, float, float, str], ...] = (
    ("tick", 0, 1, "t / B"),
    ("log_tick", 0, 1, "ln t / ln B"),
    ("pending", 0, 1, "mega-batches gathered since the last stage, including the new one, / B"),
    ("log_pending", 0, 1, "ln(1 + pending) / ln(1 + B)"),
    ("pending_share", 0, 1, "pending / t; 1 before the first stage"),
    ("trained", 0, 1, "1 after the first stage, else 0"),
    ("log_stages", 0, 1, "ln(1 + stages) / ln(1 + B)"),
    (
        "validation_loss",
        0,
        1,
        "validation loss of the last stage / (2 ln C), at most 1; that of a uniform guess before the first stage",
    ),
    ("validation_error", 0, 1, "validation error of the last stage; that of a uniform guess before the first stage"),
    ("loss_trend", -1, 1, "decrease of that loss since the stage before / ln C; 0 before the second stage"),
    ("error_trend", -1, 1, "decrease of that error since the stage before; 0 before the second stage"),
    ("growth", 0, 1, "1 - parameters of the untrained predictor / parameters now"),
    ("flops", 0, 1, "(log10 of the FLOPs charged so far - 6) / 12"),
)
NAMES = tuple(name for name, *_ in FEATURES)


def feature_space() -> spaces.Box:
    """Return the space of `features`, float32 (13,); a new object at each call."""
    return space_of(FEATURES)


def space_of(table: Sequence[tuple[str, float, float, str]]) -> spaces.Box:
    """Return the space of a table of features, float32 (features,); a new object at each call."""
    low, high = (np.array([feature[side] for feature in table], np.float32) for side in (1, 2))
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
    """Return thirteen numbers in the order of `FEATURES`, each within its bounds, float32 (13,) or (n, 13).

    The arguments are the fields of `Progress`, as numbers or as arrays (n,) of n runs. A loss or error that does not
    exist yet is NaN.
    """
    out = np.empty((*np.shape(tick), len(FEATURES)), np.float32)
    nats = np.where(np.isfinite(validation_loss), validation_loss, guess_loss) / guess_loss
    wrong = np.where(np.isfinite(validation_error), validation_error, -np.expm1(-guess_loss))
    less_loss = (np.asarray(previous_validation_loss) - validation_loss) / guess_loss
    less_error = np.asarray(previous_validation_error) - validation_error
    write_waiting(out, tick=tick, ticks=ticks, pending=pending)
    out[..., 5] = np.greater(stages, 0)
    out[..., 6] = np.log1p(stages) / math.log1p(ticks)
    out[..., 7] = np.clip(nats / 2, 0, 1)
    out[..., 8] = np.clip(wrong, 0, 1)
    out[..., 9] = np.clip(np.where(np.isfinite(less_loss), less_loss, 0), -1, 1)
    out[..., 10] = np.clip(np.where(np.isfinite(less_error), less_error, 0), -1, 1)
    out[..., 11] = np.clip(1 - np.divide(first_parameters, np.maximum(parameters, 1)), 0, 1)
    out[..., 12] = np.clip((np.log10(np.maximum(flops, 1e6)) - 6) / 12, 0, 1)
    return out


def write_waiting(out: NDArray[np.float32], *, tick: Any, ticks: int, pending: Any) -> None:
    """Write the features that change while a learner waits, the first five, into ``out``, (13,) or (n, 13)."""
    out[..., 0] = np.divide(tick, ticks)
    out[..., 1] = np.log(tick) / math.log(max(ticks, 2))
    out[..., 2] = np.divide(pending, ticks)
    out[..., 3] = np.log1p(pending) / math.log1p(ticks)
    out[..., 4] = np.divide(pending, tick)


def features_of(now: Progress) -> NDArray[np.float32]:
    """Return the features of one run, float32 (13,).

    Raises:
        ValueError: the progress has no loss of the uniform guess or no FLOPs.
    """
    return features(**arguments_of(now))


def arguments_of(now: Progress) -> dict[str, Any]:
    """Return the arguments of `features` for one run.

    Raises:
        ValueError: the progress has no loss of the uniform guess or no FLOPs.
    """
    for name, remedy in (
        ("guess_loss", "give AnytimeAgent the argument classes="),
        ("flops", "call the policy inside `with env.meter:`"),
    ):
        if getattr(now, name) is None:
            raise ValueError(f"{name}=None in the progress: the observation of a learned policy needs it; {remedy}")
    values = {name: getattr(now, name) for name in _ARGUMENTS}
    return {name: math.nan if value is None else value for name, value in values.items()}


_ARGUMENTS = tuple(inspect.signature(features).parameters)
