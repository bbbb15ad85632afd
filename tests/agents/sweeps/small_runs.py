"""Small runs on digits, and a console for the messages of their sweep."""

from __future__ import annotations

import io

from rich.console import Console

from agents import RunSpec

DIGITS = "Digits-ALMA-v0"
GOOD = RunSpec(DIGITS, width=4, wait=2, settings={"epochs": 1, "ticks": 4})
ENDLESS = RunSpec(DIGITS, width=4, wait=1, settings={"epochs": 10**7, "ticks": 4})


def new_console() -> Console:
    return Console(file=io.StringIO(), width=200)
