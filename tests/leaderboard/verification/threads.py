"""Runs whose parties are threads of the test instead of sandboxes, whose start takes seconds, most for PyTorch.

Contestant, evaluator and judge are the real ones. Use it where neither isolation nor another process matters.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leaderboard.sandbox.channel import Channel, ChannelError
from leaderboard.sandbox.sandbox import ISOLATED, Limits, sandboxed
from leaderboard.verification import evaluator, one_run
from leaderboard.verification.contestant import main

Party = Callable[[Channel], None]


@contextlib.contextmanager
def parties_in_threads(
    *, contestant: bool | Party = True, sandboxes: int = 0, own_evaluator: bool = False
) -> Iterator[None]:
    """Let `run_sandboxed` start the evaluator as a thread, and the contestant too.

    Args:
        contestant: False for a sandbox; True for a thread with the submission; or what the thread does instead.
        sandboxes: number of contestants that have a sandbox nevertheless; the first ones.
        own_evaluator: whether the evaluator has a sandbox.
    """
    started = itertools.count(1)
    parties: list[Future[None]] = []

    @contextlib.contextmanager
    def start(
        module: str, words: Sequence[str], limits: Limits, folders: Mapping[str, Path], output: int, **more: Any
    ) -> Iterator[Any]:
        evaluates = words[0].endswith(".evaluator")
        if own_evaluator if evaluates else contestant is False or next(started) <= sandboxes:
            with sandboxed(module, words, limits, folders=folders, output=output, **more) as sandbox:
                yield sandbox
            return
        act: Any = evaluator.serve if evaluates else contestant
        if act is True:
            act = partial(_submission, folder=folders[words[-1]], output=output)
        parties.append(threads.submit(_attend, act, Channel(*map(os.dup, more["pass_fds"]))))
        # One CPU second per tick, and the exit status of a process that ended with an exception of Python.
        seconds = map(float, itertools.count())
        yield SimpleNamespace(
            level=ISOLATED,
            group=None,
            counts_all_cpu=True,
            cpu_seconds=lambda: next(seconds),
            process=SimpleNamespace(wait=lambda timeout: 1),
            kill=lambda: None,
        )

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor() as threads:
        patched.setattr(one_run, "sandboxed", start)
        yield
    for one in parties:
        one.result()  # raises the error of a party


def _attend(act: Party, channel: Channel) -> None:
    with contextlib.closing(channel), contextlib.suppress(ChannelError):  # the run has ended
        act(channel)


def _submission(channel: Channel, folder: Path, output: int) -> None:
    """Be the contestant with this submission."""
    path = list(sys.path)
    try:
        with open(os.dup(output), "w") as printed, contextlib.redirect_stdout(printed):
            main([str(channel.reading), str(channel.writing), str(folder)])
    finally:
        sys.path[:] = path
        sys.modules.pop("agent", None)
