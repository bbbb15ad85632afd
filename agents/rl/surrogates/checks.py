"""Checks of what a vectorised surrogate is given: curves, probabilities, actions, masks of episodes, modes."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from agents.rl.models.learning_curve import Curve

Fit = TypeVar("Fit")


def checked_fits(name: str, given: Any, kind: type[Fit], remedy: str = "") -> list[Fit]:
    """Return the fitted curves or models of an environment.

    Args:
        name: ``curves`` or ``models``.
        given: the value of this keyword.
        kind: what each of them must be.
        remedy: what to give instead, if the environment has no recorded runs by default.

    Raises:
        ValueError: the value is not a sequence of at least one of them.
    """
    fits = list(given) if isinstance(given, Iterable) else []
    if not fits or not all(isinstance(one, kind) for one in fits):
        remedy = f"give {remedy}" if remedy else f"leave {name} out to use recorded runs"
        raise ValueError(f"{name}={reprlib.repr(given)}: must be a list with at least one {kind.__name__}; {remedy}")
    return fits


def checked_probability(name: str, given: float) -> float:
    """Return a probability below 1 as a float.

    Raises:
        ValueError: the number is negative, not below 1, or NaN.
    """
    if not 0 <= given < 1:
        raise ValueError(f"{name}={given}: must be a probability from 0 to below 1, such as {name}=0.01")
    return float(given)


def require_recorded(curves: Sequence[Curve], actions: str, replay: bool, grow: bool) -> None:
    """Raise ValueError if the actions replay or grow, and a curve was fitted to runs without replay or growth."""
    missing = [
        name
        for name, wanted in (("replay", replay or actions != "train"), ("grow", grow))
        if wanted and not all(getattr(curve, f"{name}s") for curve in curves)
    ]
    if missing:
        raise ValueError(
            f"actions={actions!r}, replay={replay}, grow={grow}: no recorded run has {' and '.join(missing)}; "
            f"use actions='train' without {' and '.join(missing)}, or record such runs and give recorded=FILE"
        )


def require_running(ended: int, mode: AutoresetMode) -> None:
    """Raise RuntimeError if some episodes have ended and do not start again without a reset."""
    if ended and mode is AutoresetMode.DISABLED:
        raise RuntimeError(
            f"step() after the end of {ended} episodes: autoreset is disabled; start them again with "
            "reset(options={'reset_mask': terminated})"
        )


def checked_actions(actions: Any, num_envs: int, space: gym.Space[Any]) -> NDArray[np.int64]:
    """Return the actions of all episodes as integers.

    Args:
        actions: one action for each episode.
        num_envs: number of episodes.
        space: of one action, Discrete or MultiDiscrete from 0 on.

    Raises:
        ValueError: the actions are of another shape, no integers, or outside the space.
    """
    chosen = np.asarray(actions)
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    highest = np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1
    highest = np.broadcast_to(highest, (num_envs, *np.shape(highest)))  # a view, for thousands of episodes at once
    if chosen.shape != highest.shape:
        raise ValueError(f"actions of shape {chosen.shape}: must be {highest.shape}; give one action for each episode")
    if chosen.dtype.kind not in "biu":
        raise ValueError(
            f"actions of type {chosen.dtype}: must be integers, which are the numbers of the actions; convert them "
            "with astype(int)"
        )
    outside = (chosen < 0) | (chosen > highest)
    if outside.any():
        place = tuple(np.argwhere(outside)[0])
        raise ValueError(
            f"action={chosen[place[0]]} of episode {place[0]}: {chosen[place]} is outside the numbers from 0 to "
            f"{highest[place]} of the action space; give one of these numbers"
        )
    return chosen.astype(np.int64)


def checked_mask(mask: Any, num_envs: int, started: bool) -> NDArray[np.bool_]:
    """Return the mask of the episodes that ``reset`` starts.

    Args:
        mask: bool (n,).
        num_envs: number of episodes, n.
        started: whether all episodes have been started before.

    Raises:
        ValueError: the mask is of another shape or dtype, or it leaves out an episode that was never started.
    """
    starts = np.asarray(mask)
    if starts.shape != (num_envs,) or starts.dtype != bool:
        raise ValueError(
            f"reset_mask of shape {starts.shape} and dtype {starts.dtype}: must be one bool for each of {num_envs} "
            "episodes"
        )
    if not started and not starts.all():
        raise ValueError(
            f"reset_mask with {starts.sum()} of {num_envs} episodes: the first reset must start all of them, because "
            "the others have no state yet; call reset() without a mask first"
        )
    return starts


def checked_mode(given: AutoresetMode | str) -> AutoresetMode:
    """Return the mode of autoreset.

    Raises:
        ValueError: the mode is unknown.
    """
    try:
        return AutoresetMode(given)
    except ValueError as error:
        modes = ", ".join(repr(mode.value) for mode in AutoresetMode)
        raise ValueError(f"autoreset_mode={given!r}: must be one of {modes}") from error
