"""A contestant in a sandbox that is Python and its standard library only, for attacks that need no PyTorch.

It starts in a part of a second. It speaks with the judge as `leaderboard.verification.contestant` does, and deploys
nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from leaderboard.verification import one_run

from ..threads import parties_in_threads

SPEAK = """
import json, os, struct, sys

def send(kind, **fields):
    header = json.dumps([kind, fields, []]).encode()
    os.write(int(WRITING), struct.pack(">Q", len(header)) + header)

def enter(tick):
    send("enter", tick=tick, flops={}, paper_flops=0, declared=[])
"""
START = """
try:
    play()
except BaseException as error:
    send("failed", error=repr(error), traceback="")
sys.stdout.flush()
"""


def bare_contestant(play: str) -> str:
    """Return a program of a function ``play()``, which can call ``send`` and ``enter``."""
    return SPEAK + textwrap.dedent(play) + START


@contextmanager
def bare_contestants() -> Iterator[None]:
    """Let `run_sandboxed` execute agent.py alone in the sandbox, and the evaluator in a thread."""

    @contextmanager
    def start(module: str, words: list[str], *more: Any, **others: Any) -> Iterator[Any]:
        program, reading, writing, *_ = words
        if program.endswith(".contestant"):
            run = f"exec(open('/submission/agent.py').read(), {{'READING': {reading}, 'WRITING': {writing}}})"
            module, words = "timeit", ["-n1", "-r1", run]
        with whole(module, words, *more, **others) as sandbox:
            yield sandbox

    with parties_in_threads(contestant=False), pytest.MonkeyPatch.context() as patched:
        whole = one_run.sandboxed
        patched.setattr(one_run, "sandboxed", start)
        yield
