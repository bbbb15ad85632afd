"""Calls of a function in several threads at one moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def at_once(act: Callable[[Argument], Result], *arguments: Argument) -> list[Result]:
    """Call a function with each argument, all at the same moment, and return the results."""
    start = threading.Barrier(len(arguments))

    def call(argument: Argument) -> Result:
        start.wait()
        return act(argument)

    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(call, arguments))
