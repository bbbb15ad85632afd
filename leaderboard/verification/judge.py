"""The judge: keeps stream, labels and ledger, and releases mega-batch t after the answer to tick t − 1.

Three processes take part in a verified run. The *contestant* (`leaderboard.verification.contestant`) executes submitted
code in a sandbox and has received mega-batches 1..t. The *evaluator* (`leaderboard.verification.evaluator`) runs the
deployed programs on the test inputs in another sandbox and has no labels. The judge has the stream and the labels, and
executes neither submitted code nor programs.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import xxhash

from alma_env import AlmaEnv, Ledger, Row
from alma_env.data.datasets import DataSet
from alma_env.data.stream import Stream
from alma_env.errors import AlmaError, PredictorError
from leaderboard.errors import ProgramError
from leaderboard.sandbox.channel import Channel, ChannelError, Message, array_header, as_array, as_blob
from leaderboard.verification.tensor_digests import TensorDigests, changed_scalars, tensor_digests

ANSWER_SECONDS = 600.0  # time limit of the evaluator for one program
REFUSALS = 20  # limit of programs per tick that cannot be scored
PHASES = 16
_LARGEST = 2**63
Blob = bytes | bytearray | memoryview


class EvaluatorError(AlmaError):
    """The evaluator did not start: a fault of the machine, not of the submission."""


class RunFailedError(AlmaError):
    """A run failed: the agent raised, exceeded a limit, or broke the protocol."""


@dataclass
class Evidence:
    """Measurements at a tick that submitted code cannot influence, except for ``reported_flops``; for the audit.

    Attributes:
        cpu_seconds: CPU time of the contestant's sandbox; None if the kernel does not count it.
        deployed: whether a program was deployed at this tick.
        changed: number of scalars in the program's tensors that are new or differ from the previous program, rounded
            up to blocks of 4 KiB.
        reported_flops: FLOPs of the tick as the contestant reports them.
        literals: count of numbers among the arguments of the program's operations.
        wide: number of scalars of more than 32 bits in the program's tensors.
        free_elements: elements per example that pass through operations without FLOPs.
        batch_dependent: share of test examples whose answer changes in another batch.
    """

    tick: int
    cpu_seconds: float | None
    deployed: bool
    changed: int
    reported_flops: int
    literals: int = 0
    wide: int = 0
    free_elements: float = 0.0
    batch_dependent: float = 0.0


@dataclass
class Judge:
    """The judge of one run. It uses data and settings of the environment, and does not step it.

    Args:
        deadline: of the run, on the clock `time.monotonic`.
        cpu_seconds: returns the CPU time of the contestant's sandbox so far.
        on_row: called with every new row.
    """

    env: AlmaEnv
    seed: int
    contestant: Channel
    evaluator: Channel
    deadline: float
    cpu_seconds: Callable[[], float | None] = lambda: None
    on_row: Callable[[Row], None] = lambda row: None
    ledger: Ledger = field(default_factory=Ledger)
    evidence: list[Evidence] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.env.data, DataSet):
            raise ValueError(f"env of {self.env.data!r}: must have images or arrays; text cannot be verified yet")
        budgets = {name: getattr(self.env, name) for name in ("flops_budget", "parameter_budget")}
        if any(budget is not None for budget in budgets.values()):
            raise ValueError(f"env with {budgets}: the judge cannot enforce a budget; verify without one")
        env, data = self.env, self.env.data
        self._data = data
        self._stream = Stream(data, env.ticks, seed=self.seed, valid_fraction=env.valid_fraction, scheme=env.partition)
        self._answered: _Answer | None = None  # deployed at the current tick, which has no row yet
        self._deployed = _Answer(data.task.guess)
        self._refusals = 0
        self._clock = time.monotonic()
        self._cpu: float | None = None

    def run(self) -> None:
        """Judge the whole run.

        Raises:
            RunFailedError: the run failed; `ledger` and `evidence` have the ticks before the failure.
            EvaluatorError: the evaluator does not start.
        """
        try:
            self._begin()
            while len(self.ledger) <= self.env.ticks:
                self._serve(self.contestant.receive(deadline=self.deadline))
        except ChannelError as error:
            raise self._failure(str(error)) from error

    def _failure(self, reason: str) -> RunFailedError:
        return RunFailedError(f"tick {len(self.ledger)}: {reason}")

    def _begin(self) -> None:
        env, data = self.env, self._data
        x, _ = self._stream.test
        given = {"x": array_header(x), "classes": data.classes, "batch_size": env.evaluation_batch_size}
        deadline = min(self.deadline, time.monotonic() + ANSWER_SECONDS)
        try:
            self.evaluator.send(Message("begin", given, [as_blob(x)]), deadline=deadline)
            self.evaluator.receive(deadline=deadline)
        except ChannelError as error:
            raise EvaluatorError(f"the evaluator did not start: {error}; see its output") from error
        examples = data.train_x[self._stream.indices(1)[0][:2]]  # of the first mega-batch, which is released next
        fields = {
            "seed": self.seed,
            "ticks": env.ticks,
            "data": data.protocol(),
            "n_train": len(data.train_y),
            "keywords": {name: getattr(env, name) for name in ("valid_fraction", "partition", "evaluation_batch_size")},
            "examples": array_header(examples),
        }
        self.contestant.send(Message("begin", fields, [as_blob(examples)]), deadline=self.deadline)

    def _serve(self, message: Message) -> None:
        """Handle one request of the contestant."""
        match message.kind:
            case "megabatch":
                self._release(message.fields)
            case "answer":
                self._score(message)
            case "enter":
                self._enter(message.fields)
            case "failed":
                error, traceback = (_printable(message.fields.get(name)) for name in ("error", "traceback"))
                raise self._failure(f"the agent raised {error}\n{traceback}")
            case kind:
                raise self._failure(f"the contestant sent {kind[:50]!r}, which is not a request")

    def _release(self, fields: Mapping[str, Any]) -> None:
        tick = _whole(fields.get("tick"), "tick")
        arrived = min(len(self.ledger), self.env.ticks)
        if not 1 <= tick <= arrived:
            raise RunFailedError(f"mega-batch {tick} was requested when only {arrived} had arrived")
        parts = self._stream.megabatch(tick)
        arrays = [parts[part][name] for part in ("train", "valid") for name in ("x", "y")]
        message = Message("megabatch", {"arrays": [array_header(a) for a in arrays]}, [as_blob(a) for a in arrays])
        self.contestant.send(message, deadline=self.deadline)

    def _score(self, message: Message) -> None:
        """Score a program. Each tick has one answer, so that the test set is no oracle."""
        if self._answered is not None:
            raise self._failure("a second predictor was sent after the first was scored")
        if len(message.blobs) != 2:
            raise self._failure("an answer must be a graph and its tensors")
        try:
            self._answered = self._scored(message.blobs)
        except PredictorError as error:  # the agent can send other predictors, up to a limit
            self._refusals += 1
            if self._refusals > REFUSALS:
                text = f"{REFUSALS} predictors could not be scored; reason of the last: {error}"
                raise self._failure(text) from error
            self.contestant.send(Message("refused", {"reason": str(error)[:2000]}), deadline=self.deadline)
        else:
            self.contestant.send(Message("answered", {"flops": self._answered.flops}), deadline=self.deadline)

    def _scored(self, blobs: Sequence[Blob]) -> _Answer:
        """Score the program of a graph and its tensors, or raise PredictorError."""
        deadline = min(self.deadline, time.monotonic() + ANSWER_SECONDS)
        self.evaluator.send(Message("program", {}, blobs), deadline=deadline)
        reply = self.evaluator.receive(deadline=deadline)
        fields = reply.fields
        if reply.kind == "refused":
            raise PredictorError(_printable(fields.get("reason")))
        # The evaluator ran a stranger's program, so its messages are checked like those of the contestant.
        if len(reply.blobs) != 1:
            raise self._failure(f"the evaluator sent {len(reply.blobs)} arrays of logits")
        logits = torch.from_numpy(as_array(reply.blobs[0], fields.get("logits")).copy())
        _, labels = self._stream.test
        expected = (len(labels), self._data.classes)
        if tuple(logits.shape) != expected or bool(torch.isnan(logits).any()):
            raise PredictorError(f"logits of shape {tuple(logits.shape)}: must be {expected} without NaN")
        digest = xxhash.xxh3_128(blobs[0])
        digest.update(blobs[1])
        try:
            digests = tensor_digests(blobs[1])
        except ProgramError as error:
            raise PredictorError(str(error)) from error
        return _Answer(
            error=self._data.task.error(logits, labels),
            flops=_number(fields.get("flops"), "flops"),
            parameters=_whole(fields.get("parameters"), "parameters"),
            buffers=_whole(fields.get("buffers"), "buffers"),
            digest=digest.hexdigest(),
            tensors=digests,
            evidence={name: _whole(fields.get(name), name) for name in ("literals", "wide")}
            | {name: _number(fields.get(name), name) for name in ("free_elements", "batch_dependent")},
        )

    def _enter(self, fields: Mapping[str, Any]) -> None:
        tick = len(self.ledger)
        if _whole(fields.get("tick"), "tick") != tick:
            raise self._failure(f"the contestant entered tick {fields.get('tick')}")
        new = self._answered
        deployed = new or self._deployed
        now, cpu = time.monotonic(), self.cpu_seconds()
        row = Row(
            tick=tick,
            error=deployed.error,
            parameters=deployed.parameters,
            buffers=deployed.buffers,
            inference_flops=deployed.flops,
            flops=_flops(fields.get("flops"), fields.get("total")),
            paper_flops=_whole(fields.get("paper_flops"), "paper_flops"),
            declared=_reasons(fields.get("declared")),
            registered=_reasons(fields.get("registered", [])),
            digest=deployed.digest,
            refused=fields.get("refused") is True,
            seconds=now - self._clock,
        )
        self.ledger.append(row)
        self.evidence.append(
            Evidence(
                tick=tick,
                cpu_seconds=None if cpu is None or self._cpu is None else max(cpu - self._cpu, 0.0),
                deployed=new is not None,
                changed=0 if new is None else changed_scalars(self._deployed.tensors, new.tensors),
                reported_flops=row.comp,
                **deployed.evidence,
            )
        )
        self._clock, self._cpu = now, cpu
        self._answered, self._deployed, self._refusals = None, deployed, 0
        self.on_row(row)


@dataclass(frozen=True)
class _Answer:
    """A scored program. The defaults are those of the uniform guess, which has no program."""

    error: float
    flops: float = 0.0
    parameters: int = 0
    buffers: int = 0
    digest: str = ""
    tensors: Mapping[str, TensorDigests] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)


def _flops(found: Any, total: Any) -> dict[str, int]:
    """Return the FLOPs by phase; phases with equal printable names are added up."""
    if not isinstance(found, dict) or len(found) > PHASES:
        raise RunFailedError(f"flops: must be a table of at most {PHASES} phases")
    flops: Counter[str] = Counter()
    for phase, count in found.items():
        flops[_printable(phase)[:50]] += _whole(count, "flops")
    added = _whole(flops.total(), "flops")
    if total is not None and _whole(total, "total") != added:
        raise RunFailedError(f"flops: the phases add up to {added}, and the contestant's total is {total}")
    return dict(flops)


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise RunFailedError(f"{name}={str(value)[:50]}: must be a whole number of at least 0")
    return value


def _number(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise RunFailedError(f"{name}={str(value)[:50]}: must be a finite number of at least 0")
    return float(value)


def _reasons(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list):
        raise RunFailedError(f"{str(found)[:50]}: must be a list")
    return tuple(_printable(reason)[:200] for reason in found[:100])


def _printable(value: Any) -> str:
    """Return the value as text without control characters, for logs and pages."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(value)[:10_000])
