"""Checks of what an environment or a training is given: numbers, the arguments of ``reset``, and single actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from alma_env.integers import require_integer
from alma_env.protocol import read_options


def checked_count(name: str, given: Any, unit: str, default: int) -> int:
    """Return a number of episodes or steps as an int.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is below 1.
    """
    count = require_integer(given, name)
    if count < 1:
        raise ValueError(f"{name}={count}: must be at least 1 {unit}; the default is {default}")
    return count


def checked_seed(seed: Any) -> int | None:
    """Return the seed of a ``reset`` as an int or None: Gymnasium takes no integers of NumPy.

    Raises:
        TypeError: the seed is not an integer.
    """
    return None if seed is None else require_integer(seed, "seed")


def refuse_options(options: Any) -> None:
    """Check the options of a ``reset`` that has none.

    Raises:
        TypeError: they are no dictionary.
        ValueError: there are some.
    """
    if given := read_options(options, "{}"):
        raise ValueError(f"options {sorted(given)}: reset of this environment has none; leave them out")


def checked_action(action: Any, space: gym.Space[Any]) -> Any:
    """Return an action; a bool, which NumPy takes for a mask, as an int.

    Raises:
        ValueError: the action is not in the space.
    """
    action = int(action) if isinstance(action, bool | np.bool_) else action
    if not space.contains(action):
        raise ValueError(f"action={action!r}: not in {space}; give an action of this space, as its sample() does")
    return action
