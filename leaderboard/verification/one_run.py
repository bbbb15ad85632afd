"""One verified run: contestant and evaluator in sandboxes, the judge between them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from alma_env import AlmaEnv, Ledger, Row
from leaderboard import wire
from leaderboard.judge import EvaluatorError, Judge, Observed, RunFailedError
from leaderboard.sandbox import Limits, Sandbox, sandboxed

PROGRAM_BYTES = 2**30  # of a program, which the judge keeps in memory for a tick
OUTPUT_BYTES = 256 * 1024  # of what a submission prints, its beginning and its end


@dataclass(frozen=True)
class Played:
    """A run as far as it went.

    Attributes:
        seed: of the stream.
        ledger: its rows; all of them if there is no failure.
        observed: what was seen from outside, by tick.
        failure: why it came to no end; None if it did.
        output: what the submission printed.
        level: ``isolated`` or ``limited``.
        memory_peak: bytes; None where it is not accounted.
        guess: error of the uniform guess.
        input_size: scalars of one input.
    """

    seed: int
    ledger: Ledger
    observed: tuple[Observed, ...]
    failure: str | None
    output: str
    level: str
    memory_peak: int | None
    guess: float = 1.0
    input_size: int = 0


def play(
    env: AlmaEnv,
    submission: Path,
    seed: int,
    limits: Limits | None = None,
    *,
    allow_limited: bool = False,
    on_row: Callable[[Row], None] = lambda row: None,
) -> Played:
    """Run a submission on the stream of a seed.

    Args:
        env: the environment, from ``alma_env.make``; it is not stepped.
        submission: folder with ``agent.py``; its code runs in the sandbox alone.
        seed: of the stream and for the agent.
        limits: of the sandbox.
        allow_limited: whether limits alone will do where isolation is not to be had.
        on_row: told of every row.

    Raises:
        SandboxError: no sandbox can be made here.
        EvaluatorError: the evaluator does not run here.
    """
    limits = limits or Limits()
    with ExitStack() as stack:
        # Two pipes: who has one end of a pipe can open the other, too, and would read what the evaluator prints.
        output, told = stack.enter_context(_collected()), stack.enter_context(_collected())
        mine, theirs = wire.pair()
        contestant = stack.enter_context(
            _connected(
                "contestant",
                theirs,
                ["/submission"],
                limits,
                output,
                {"/submission": submission},
                allow_limited,
            )
        )
        channel = wire.Channel(*mine, most=PROGRAM_BYTES)
        stack.callback(channel.close)
        judging, answering = wire.pair()
        # What a program needs beyond its tensors is small; it has no use for scratch or other processes.
        stack.enter_context(
            _connected("evaluator", answering, [], replace(limits, processes=64), told, {}, allow_limited)
        )
        evaluator = wire.Channel(*judging)
        stack.callback(evaluator.close)
        judge = Judge(
            env,
            seed,
            channel,
            evaluator,
            deadline=time.monotonic() + limits.wall_seconds,
            cpu_seconds=contestant.cpu_seconds,
            on_row=on_row,
        )
        failure = None
        try:
            judge.run()
        except RunFailedError as error:
            failure = _with_exit(str(error), contestant)
        except EvaluatorError as error:
            raise EvaluatorError(f"{error}\n{told.text()}") from error
        peak = None if contestant.group is None else contestant.group.memory_peak()
        level = contestant.level
        contestant.kill()
    return Played(
        seed,
        judge.ledger,
        tuple(judge.observed),
        failure,
        output.text(),
        level,
        peak,
        guess=env.data.task.guess,
        input_size=math.prod(env.data.input_shape),
    )


def _with_exit(failure: str, sandbox: Sandbox) -> str:
    """The failure, and how the process ended if it did."""
    try:
        status = sandbox.process.wait(0.5)
    except Exception:  # it still runs
        return failure
    if status in (0, 1, 3):
        return failure
    killed = "out of memory, or of CPU time" if status in (-9, 137, -24, 152) else "see what it printed"
    return f"{failure}; its process ended with status {status} ({killed})"


@contextmanager
def _connected(
    program: str,
    descriptors: tuple[int, int],
    words: list[str],
    limits: Limits,
    output: _Output,
    folders: dict[str, Path],
    allow_limited: bool,
) -> Iterator[Sandbox]:
    """A sandbox that has these descriptors, which are closed here."""
    try:
        made = sandboxed(
            "leaderboard.inside",
            [program, *map(str, descriptors), *words],
            limits,
            folders=folders,
            pass_fds=descriptors,
            output=output.descriptor,
            allow_limited=allow_limited,
        )
        sandbox = made.__enter__()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    try:
        yield sandbox
    finally:
        made.__exit__(None, None, None)


class _Output:
    """Keeps the beginning and the end of what is written to a pipe, however much it is."""

    def __init__(self) -> None:
        self._reading, self.descriptor = os.pipe()
        self._head, self._tail = bytearray(), bytearray()
        self._dropped = 0
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        while part := os.read(self._reading, 65536):
            room = OUTPUT_BYTES // 2 - len(self._head)
            self._head += part[:room]
            self._tail += part[room:]
            if (over := len(self._tail) - OUTPUT_BYTES // 2) > 0:
                del self._tail[:over]
                self._dropped += over

    def close(self) -> None:
        """All writers have ended."""
        os.close(self.descriptor)
        self._thread.join(10)
        os.close(self._reading)

    def text(self) -> str:
        """What was kept."""
        middle = f"\n[… {self._dropped:,} bytes left out …]\n" if self._dropped else ""
        return self._head.decode(errors="replace") + middle + self._tail.decode(errors="replace")


@contextmanager
def _collected() -> Iterator[_Output]:
    output = _Output()
    try:
        yield output
    finally:
        output.close()
