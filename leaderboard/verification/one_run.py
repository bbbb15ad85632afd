"""Execute one run in isolation: contestant and evaluator in sandboxes, the judge between them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from agents.training.native.library import library_folder
from alma_env import AlmaEnv, Ledger, Row
from alma_env.data.datasets import DataSet
from leaderboard.sandbox.channel import Channel, pipe_pair
from leaderboard.sandbox.isolation import FIRST_DESCRIPTOR
from leaderboard.sandbox.sandbox import Limits, Sandbox, sandboxed
from leaderboard.sandbox.view import CACHE
from leaderboard.verification.evidence import Evidence
from leaderboard.verification.judge import EvaluatorError, Judge
from leaderboard.verification.reported import RunFailedError, printable

PROGRAM_BYTES = 256 * 2**20  # of a program, which the judge holds in memory while it is scored
DESCRIPTORS = (str(FIRST_DESCRIPTOR), str(FIRST_DESCRIPTOR + 1))  # of the connection to the judge, inside
OUTPUT_BYTES = 256 * 1024  # kept of a submission's output, half from the beginning and half from the end
SHOWN_CHARACTERS = 1_000  # of the end of the output, if the process ended in an unusual way


@dataclass(frozen=True)
class SandboxedRun:
    """A run in the sandbox, complete or failed.

    Attributes:
        ledger: of a failed run, the rows before the failure.
        evidence: measurements of the judge, by tick.
        failure: reason of the failure; None if the run is complete.
        output: of the submission.
        level: ``isolated`` or ``limited``.
        memory_peak: bytes; None if the kernel does not count them.
        guess: error of the uniform guess.
        input_size: number of scalars of one input.
        counts_all_cpu: whether the CPU seconds of the evidence are those of all processes, or a lower bound.
    """

    ledger: Ledger
    evidence: tuple[Evidence, ...]
    failure: str | None
    output: str
    level: str
    memory_peak: int | None
    guess: float = 1.0
    input_size: int = 0
    counts_all_cpu: bool = True


def run_sandboxed(
    env: AlmaEnv,
    submission: Path,
    seed: int,
    limits: Limits | None = None,
    *,
    allow_limited: bool = False,
    on_row: Callable[[Row], None] = lambda row: None,
) -> SandboxedRun:
    """Run a submission on the stream of a seed.

    Args:
        env: the environment; it is not stepped.
        submission: folder with ``agent.py``; only the sandbox executes its code.
        seed: of the stream and of the agent.
        limits: of the sandbox.
        allow_limited: whether to run with limits only if isolation is not available.
        on_row: called with every new row.

    Raises:
        SandboxError: isolation is not available, and ``allow_limited`` is False.
        EvaluatorError: the evaluator does not start.
    """
    limits = limits or Limits()
    with ExitStack() as stack:

        def start(
            program: str, arguments: Sequence[str], limits: Limits, folders: Mapping[str, Path], most: int
        ) -> tuple[Sandbox, Channel, _Output]:
            # Each program has its own pipe: a process that has one end of a pipe can also open the other end, so with a
            # common pipe the contestant could read the evaluator's output.
            output = stack.enter_context(closing(_Output()))
            ours, theirs = pipe_pair()
            channel = stack.enter_context(closing(Channel(*ours, most=most)))
            try:
                context = sandboxed(
                    "leaderboard.sandbox.sandbox_main",
                    [f"leaderboard.verification.{program}", *DESCRIPTORS, *arguments],
                    limits,
                    folders=folders,
                    pass_fds=theirs,
                    output=output.descriptor,
                    allow_limited=allow_limited,
                )
                sandbox = stack.enter_context(context)
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
            return sandbox, channel, output

        inside = "/submission"
        folders = {inside: submission} | _native_engine()
        contestant, requests, output = start("contestant", [inside], limits, folders, PROGRAM_BYTES)
        # A program needs little memory besides its tensors, no scratch folder and few processes.
        # Logits of 64 bits. The judge refuses text.
        most = 8 * len(env.data.test_y) * env.data.classes if isinstance(env.data, DataSet) else 0
        _, answers, evaluator_output = start("evaluator", [], replace(limits, processes=64), {}, most)
        deadline = time.monotonic() + limits.wall_seconds
        judge = Judge(env, seed, requests, answers, deadline, contestant.cpu_seconds, on_row)
        failure = status = None
        try:
            judge.run()
        except RunFailedError as error:
            failure, status = str(error), _unusual_status(contestant)
        except EvaluatorError as error:
            raise EvaluatorError(f"{error}\n{evaluator_output.text()}") from error
        peak = None if contestant.group is None else contestant.group.memory_peak()
        counts_all_cpu = contestant.counts_all_cpu
        contestant.kill()
    if failure is not None and status is not None:
        failure = f"{failure}; {_unusual_end(status, output.text())}"
    return SandboxedRun(
        judge.ledger,
        tuple(judge.evidence),
        failure,
        output.text(),
        contestant.level,
        peak,
        guess=env.data.task.guess,
        input_size=math.prod(env.data.input_shape),
        counts_all_cpu=counts_all_cpu,
    )


def _native_engine() -> dict[str, Path]:
    """Return the folder of the native engine's functions at its path inside, so that no run has to build them."""
    folder = library_folder()
    return {} if folder is None else {f"{CACHE}/native/{folder.name}": folder}


def _unusual_status(sandbox: Sandbox) -> int | None:
    """Return the exit status of a process that ended neither by itself nor with an exception of Python, or None."""
    try:
        status = sandbox.process.wait(0.5)
    except Exception:  # the process is still running
        return None
    return None if status in (0, 1, 3) else status


def _unusual_end(status: int, output: str) -> str:
    if status in (-9, 137, -24, 152):
        return f"the process ended with status {status} (out of memory or CPU time)"
    end = printable(output[-SHOWN_CHARACTERS:]).strip()
    shown = f"; the end of its output:\n{end}" if end else ", without output"
    return f"the process ended with status {status}{shown}"


class _Output:
    """Collects what is written to a pipe, and keeps only the beginning and the end."""

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
        """Close the pipe after all writers have ended."""
        os.close(self.descriptor)
        self._thread.join(10)
        os.close(self._reading)

    def text(self) -> str:
        """Return the kept output."""
        middle = f"\n[… {self._dropped:,} bytes left out …]\n" if self._dropped else ""
        return self._head.decode(errors="replace") + middle + self._tail.decode(errors="replace")
