"""The judge: keeps stream, labels and ledger, and releases mega-batch t after the answer to tick t − 1.

Three processes take part in a verified run. The *contestant* (`leaderboard.verification.contestant`) executes submitted
code in a sandbox and has received mega-batches 1..t. The *evaluator* (`leaderboard.verification.evaluator`) runs the
deployed programs on the test inputs in another sandbox and has no labels. The judge has the stream and the labels, and
executes neither submitted code nor programs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import xxhash
from safetensors.torch import load

from alma_env import AlmaEnv, Ledger, Row
from alma_env.data.datasets import DataSet
from alma_env.data.stream import Stream
from alma_env.errors import AlmaError, PredictorError
from leaderboard.sandbox.channel import Channel, ChannelError, Message, array_header, as_array, as_blob

ANSWER_SECONDS = 600.0  # time limit of the evaluator for one program
REFUSALS = 20  # limit of programs per tick that cannot be scored
PHASES = 16
_LARGEST = 2**63
_EVIDENCE = ("literals", "wide", "free_elements", "batch_dependent")  # of a program, for the audit


class EvaluatorError(AlmaError):
    """The evaluator did not start: a fault of the machine, not of the submission."""


class RunFailedError(AlmaError):
    """A run failed: the agent raised, exceeded a limit, or broke the protocol."""


@dataclass
class Evidence:
    """Measurements at a tick that submitted code cannot influence, except for ``reported_flops``; for the audit.

    Attributes:
        tick: 0..B.
        cpu_seconds: CPU time of the contestant's sandbox; None if the kernel does not count it.
        deployed: whether a new program was deployed.
        changed: number of scalars in the program's tensors that are new or differ from the previous program.
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
    """The judge of one run.

    Args:
        env: the environment; the judge uses its data and settings, and does not step it.
        seed: of the stream.
        contestant: connection to the contestant.
        evaluator: connection to the evaluator.
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
        self._data = self.env.data
        self._stream = Stream(
            self._data,
            self.env.ticks,
            seed=self.seed,
            valid_fraction=self.env.valid_fraction,
            scheme=self.env.partition,
        )
        self._answered: _Answer | None = None  # deployed at the current tick, which has no row yet
        self._deployed: _Answer | None = None
        self._refusals = 0
        self._clock = time.monotonic()
        self._cpu: float | None = None

    def run(self) -> Ledger:
        """Judge the whole run, and return its ledger.

        Raises:
            RunFailedError: the run failed; `ledger` and `evidence` have the ticks before the failure.
            EvaluatorError: the evaluator does not start.
        """
        try:
            self._begin()
            while len(self.ledger) <= self.env.ticks:
                self._serve(self.contestant.receive(deadline=self.deadline))
        except ChannelError as error:
            raise RunFailedError(f"tick {len(self.ledger)}: {error}") from error
        return self.ledger

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
        rows = self._stream.indices(1)[0][:2]
        examples = data.train_x[rows]  # of the first mega-batch, which is released next
        keywords = {
            "valid_fraction": env.valid_fraction,
            "partition": env.partition,
            "evaluation_batch_size": env.evaluation_batch_size,
        }
        fields = {
            "seed": self.seed,
            "ticks": env.ticks,
            "data": data.protocol(),
            "n_train": len(data.train_y),
            "keywords": keywords,
            "examples": array_header(examples),
        }
        self.contestant.send(Message("begin", fields, [as_blob(examples)]), deadline=self.deadline)

    def _serve(self, message: Message) -> None:
        """Handle one request of the contestant."""
        fields, kind = message.fields, message.kind
        if kind == "failed":
            error, traceback = _printable(fields.get("error")), _printable(fields.get("traceback"))
            raise RunFailedError(f"tick {len(self.ledger)}: the agent raised {error}\n{traceback}")
        if kind == "megabatch":
            self._release(fields)
        elif kind == "answer":
            self._score(message)
        elif kind == "enter":
            self._enter(fields)
        else:
            raise RunFailedError(f"tick {len(self.ledger)}: the contestant sent {kind[:50]!r}, which is not a request")

    def _release(self, fields: Mapping[str, Any]) -> None:
        tick = _whole(fields.get("tick"), "tick")
        arrived = min(len(self.ledger), self.env.ticks)
        if not 1 <= tick <= arrived:
            raise RunFailedError(f"mega-batch {tick} was requested when only {arrived} had arrived")
        parts = self._stream.megabatch(tick)
        arrays = [parts[part][name] for part in ("train", "valid") for name in ("x", "y")]
        self.contestant.send(
            Message(
                "megabatch", {"arrays": [array_header(array) for array in arrays]}, [as_blob(array) for array in arrays]
            ),
            deadline=self.deadline,
        )

    def _score(self, message: Message) -> None:
        """Score a program. Each tick has one answer, so that the test set is no oracle."""
        if self._answered is not None:
            raise RunFailedError(f"tick {len(self.ledger)}: a second predictor was sent after the first was scored")
        if len(message.blobs) != 2:
            raise RunFailedError(f"tick {len(self.ledger)}: an answer must be a graph and its tensors")
        deadline = min(self.deadline, time.monotonic() + ANSWER_SECONDS)
        self.evaluator.send(Message("program", {}, message.blobs), deadline=deadline)
        reply = self.evaluator.receive(deadline=deadline)
        if reply.kind == "refused":
            self._refuse(_printable(reply.fields.get("reason")))
            return
        # The evaluator ran a stranger's program, so its messages are checked like those of the contestant.
        if len(reply.blobs) != 1:
            raise RunFailedError(f"tick {len(self.ledger)}: the evaluator sent {len(reply.blobs)} arrays of logits")
        logits = torch.from_numpy(as_array(reply.blobs[0], reply.fields.get("logits")).copy())
        _, labels = self._stream.test
        expected = (len(labels), self._data.classes)
        if tuple(logits.shape) != expected or bool(torch.isnan(logits).any()):
            self._refuse(f"logits of shape {tuple(logits.shape)}: must be {expected} without NaN")
            return
        try:
            error = self._data.task.error(logits, labels)
        except PredictorError as refused:
            self._refuse(str(refused))
            return
        self._answered = _Answer(
            error=error,
            flops=_number(reply.fields.get("flops"), "flops"),
            digest=_digest(message.blobs),
            tensors=message.blobs[1],
            free_elements=_number(reply.fields.get("free_elements"), "free_elements"),
            batch_dependent=_number(reply.fields.get("batch_dependent"), "batch_dependent"),
            **{name: _whole(reply.fields.get(name), name) for name in ("parameters", "buffers", "literals", "wide")},
        )
        self.contestant.send(Message("answered", {"flops": self._answered.flops}), deadline=self.deadline)

    def _refuse(self, reason: str) -> None:
        """Tell the contestant that its predictor cannot be scored; the agent can send others, up to a limit."""
        self._refusals += 1
        if self._refusals > REFUSALS:
            raise RunFailedError(
                f"tick {len(self.ledger)}: {REFUSALS} predictors could not be scored; reason of the last: {reason}"
            )
        self.contestant.send(Message("refused", {"reason": reason[:2000]}), deadline=self.deadline)

    def _enter(self, fields: Mapping[str, Any]) -> None:
        tick = len(self.ledger)
        if _whole(fields.get("tick"), "tick") != tick:
            raise RunFailedError(f"tick {tick}: the contestant entered tick {fields.get('tick')}")
        flops = _flops(fields.get("flops"))
        new, before = self._answered, self._deployed
        deployed = new or before
        now, cpu = time.monotonic(), self.cpu_seconds()
        row = Row(
            tick=tick,
            error=self._data.task.guess if deployed is None else deployed.error,
            parameters=0 if deployed is None else deployed.parameters,
            buffers=0 if deployed is None else deployed.buffers,
            inference_flops=0.0 if deployed is None else deployed.flops,
            flops=flops,
            paper_flops=_whole(fields.get("paper_flops"), "paper_flops"),
            declared=tuple(_printable(reason)[:200] for reason in _list(fields.get("declared"))[:100]),
            digest="" if deployed is None else deployed.digest,
            refused=fields.get("refused") is True,
            seconds=now - self._clock,
        )
        self.ledger.append(row)
        self.evidence.append(
            Evidence(
                tick=tick,
                cpu_seconds=None if cpu is None or self._cpu is None else max(cpu - self._cpu, 0.0),
                deployed=new is not None,
                changed=0 if new is None else _changed(before, new),
                reported_flops=row.comp,
                **({} if deployed is None else {name: getattr(deployed, name) for name in _EVIDENCE}),
            )
        )
        self._clock, self._cpu = now, cpu
        self._answered, self._deployed, self._refusals = None, deployed, 0
        self.on_row(row)


@dataclass(frozen=True)
class _Answer:
    error: float
    flops: float
    parameters: int
    buffers: int
    digest: str
    tensors: bytes | bytearray | memoryview
    literals: int
    wide: int
    free_elements: float
    batch_dependent: float


def _changed(before: _Answer | None, now: _Answer) -> int:
    """Return the number of scalars that differ from the previous program; a new tensor counts as a whole."""
    tensors, previous = load(bytes(now.tensors)), {} if before is None else load(bytes(before.tensors))
    changed = 0
    for name, tensor in tensors.items():
        other = previous.get(name)
        if other is not None and other.shape == tensor.shape and other.dtype == tensor.dtype:
            changed += int(torch.count_nonzero(tensor != other))
        else:
            changed += tensor.numel()
    return changed


def _flops(found: Any) -> dict[str, int]:
    if not isinstance(found, dict) or len(found) > PHASES:
        raise RunFailedError(f"flops: must be a table of at most {PHASES} phases")
    return {_printable(phase)[:50]: _whole(count, "flops") for phase, count in found.items()}


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise RunFailedError(f"{name}={str(value)[:50]}: must be a whole number of at least 0")
    return value


def _number(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise RunFailedError(f"{name}={str(value)[:50]}: must be a finite number of at least 0")
    return float(value)


def _digest(blobs: Sequence[bytes | bytearray | memoryview]) -> str:
    """Return the digest of the concatenated blobs, without copying them."""
    hasher = xxhash.xxh3_128()
    for blob in blobs:
        hasher.update(blob)
    return hasher.hexdigest()


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise RunFailedError(f"{str(value)[:50]}: must be a list")
    return value


def _printable(value: Any) -> str:
    """Return the value as text without control characters, for logs and pages."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(value)[:10_000])
