"""A small decision environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

SMALL = {"ticks": 6, "width": 8, "epochs": 2}
ID = "alma_env:Digits-ALMA-Wait-v0"


def make(**changes: Any) -> gym.Env[Any, Any]:
    return gym.make(ID, **(SMALL | changes))
