"""The judge: holds the stream and the labels, releases mega-batch t after the answer to tick t − 1, keeps the ledger.

Three parties take part in a verified run. The *contestant* (`leaderboard.contestant`) runs submitted code in a sandbox
and has seen mega-batches 1..t. The *evaluator* (`leaderboard.evaluator`) runs what was deployed, as a program, on the
test inputs, and has no labels. This process has both and runs neither.
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
from alma_env.data import DataSet
from alma_env.errors import AlmaError, PredictorError
from alma_env.stream import Stream
from leaderboard.wire import Channel, Message, WireError, as_array, as_blob, described

ANSWER_SECONDS = 600.0  # of the evaluator, for one program
REFUSALS = 20  # programs that cannot be scored, at one tick
PHASES = 16
_LARGEST = 2**63
_SEEN = ("literals", "wide", "elements", "mixed")  # of a program, for the audit


class EvaluatorError(AlmaError):
    """The evaluator did not start: an accident of the machine, and no submission's fault."""


class RunFailedError(AlmaError):
    """A run that came to no end: the agent raised, ran out of a limit, or broke the protocol."""


@dataclass
class Observed:
    """What was seen from outside at a tick, for the audit.

    Attributes:
        tick: 0..B.
        seconds: wall-clock time that the contestant took, waiting for judge and evaluator not included.
        cpu_seconds: CPU time of its sandbox; None where nobody accounts for it.
        deployed: whether a new program was deployed.
        parameters: scalars in the program's parameters.
        changed: scalars of its tensors that differ from those of the program before, or are new.
        declared: FLOPs that the contestant says it spent.
        examples: training examples in the mega-batches so far.
        literals: numbers among the arguments of the program's operations.
        wide: scalars of more than 32 bits in its tensors.
        elements: elements per example that go through operations which are free.
        mixed: share of test examples that are answered otherwise in another batch.
    """

    tick: int
    seconds: float
    cpu_seconds: float | None
    deployed: bool
    parameters: int
    changed: int
    declared: int
    examples: int
    literals: int = 0
    wide: int = 0
    elements: float = 0.0
    mixed: float = 0.0


@dataclass
class Judge:
    """One run of one seed.

    Args:
        env: the environment; its data and numbers are used, and it is not stepped.
        seed: of the stream.
        contestant: connection to the sandbox.
        evaluator: connection to the evaluator.
        cpu_seconds: CPU time of the sandbox so far.
        deadline: on the clock `time.monotonic`, for the whole run.
        on_row: told of every row.
    """

    env: AlmaEnv
    seed: int
    contestant: Channel
    evaluator: Channel
    deadline: float
    cpu_seconds: Callable[[], float | None] = lambda: None
    on_row: Callable[[Row], None] = lambda row: None
    ledger: Ledger = field(default_factory=Ledger)
    observed: list[Observed] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.env.data, DataSet):
            raise ValueError(f"env of {self.env.data!r}: runs on images and arrays are verified, on text not yet")
        budgets = {name: getattr(self.env, name) for name in ("flops_budget", "parameter_budget")}
        if any(budget is not None for budget in budgets.values()):
            raise ValueError(f"env with {budgets}: only the sandbox would keep to a budget; verify without one")
        self._data = self.env.data
        self._stream = Stream(
            self._data,
            self.env.ticks,
            seed=self.seed,
            valid_fraction=self.env.valid_fraction,
            scheme=self.env.partition,
        )
        self._answered: _Answer | None = None  # what was deployed at the tick that is not entered yet
        self._deployed: _Answer | None = None
        self._refusals = 0
        self._waited = 0.0  # seconds of this tick that are not the contestant's
        self._clock = time.monotonic()
        self._cpu: float | None = None

    def run(self) -> Ledger:
        """Play the whole stream.

        Raises:
            RunFailedError: it came to no end; `ledger` and `observed` hold what there is.
        """
        try:
            self._begin()
            while len(self.ledger) <= self.env.ticks:
                self._serve(self.contestant.receive(deadline=self.deadline))
        except WireError as error:
            raise RunFailedError(f"tick {len(self.ledger)}: {error}") from error
        return self.ledger

    def _begin(self) -> None:
        env, data = self.env, self._data
        x, _ = self._stream.test
        given = {"x": described(x), "classes": data.classes, "batch_size": env.evaluation_batch_size}
        deadline = min(self.deadline, time.monotonic() + ANSWER_SECONDS)
        try:
            self.evaluator.send(Message("begin", given, [as_blob(x)]), deadline=deadline)
            self.evaluator.receive(deadline=deadline)
        except WireError as error:
            raise EvaluatorError(f"the evaluator did not start: {error}; see what it printed") from error
        rows = self._stream.indices(1)[0][:2]
        examples = data.train_x[rows]  # of the first mega-batch, which is about to be released
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
            "examples": described(examples),
        }
        self.contestant.send(Message("begin", fields, [as_blob(examples)]), deadline=self.deadline)

    def _serve(self, message: Message) -> None:
        """One request of the contestant."""
        began = time.monotonic()
        fields, kind = message.fields, message.kind
        if kind == "failed":
            error, told = _text(fields.get("error")), _text(fields.get("traceback"))
            raise RunFailedError(f"tick {len(self.ledger)}: the agent raised {error}\n{told}")
        if kind == "megabatch":
            self._release(fields)
        elif kind == "answer":
            self._score(message)
        elif kind == "enter":
            self._enter(fields)
            return
        else:
            raise RunFailedError(f"tick {len(self.ledger)}: the contestant sent {kind[:50]!r}, which is no request")
        self._waited += time.monotonic() - began

    def _release(self, fields: Mapping[str, Any]) -> None:
        tick = _whole(fields.get("tick"), "tick")
        arrived = min(len(self.ledger), self.env.ticks)
        if not 1 <= tick <= arrived:
            raise RunFailedError(f"mega-batch {tick} was asked for when {arrived} had arrived")
        parts = self._stream.megabatch(tick)
        arrays = [parts[part][name] for part in ("train", "valid") for name in ("x", "y")]
        self.contestant.send(
            Message(
                "megabatch", {"arrays": [described(array) for array in arrays]}, [as_blob(array) for array in arrays]
            ),
            deadline=self.deadline,
        )

    def _score(self, message: Message) -> None:
        """One answer per tick: a second would make the test set an oracle."""
        if self._answered is not None:
            raise RunFailedError(f"tick {len(self.ledger)}: a second predictor was sent after the first was scored")
        if len(message.blobs) != 2:
            raise RunFailedError(f"tick {len(self.ledger)}: an answer is a graph and its tensors")
        deadline = min(self.deadline, time.monotonic() + ANSWER_SECONDS)
        self.evaluator.send(Message("program", {}, message.blobs), deadline=deadline)
        reply = self.evaluator.receive(deadline=deadline)
        if reply.kind == "refused":
            self._refuse(_text(reply.fields.get("reason")))
            return
        # It ran a stranger's program, so that it is believed no more than the contestant is.
        if len(reply.blobs) != 1:
            raise RunFailedError(f"tick {len(self.ledger)}: the evaluator sent {len(reply.blobs)} arrays of logits")
        logits = torch.from_numpy(as_array(reply.blobs[0], reply.fields.get("logits")).copy())
        _, labels = self._stream.test
        expected = (len(labels), self._data.classes)
        if tuple(logits.shape) != expected or bool(torch.isnan(logits).any()):
            self._refuse(f"logits of shape {tuple(logits.shape)}, NaN or not: must be {expected} without NaN")
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
            elements=_number(reply.fields.get("elements"), "elements"),
            mixed=_number(reply.fields.get("mixed"), "mixed"),
            **{name: _whole(reply.fields.get(name), name) for name in ("parameters", "buffers", "literals", "wide")},
        )
        self.contestant.send(Message("answered", {"flops": self._answered.flops}), deadline=self.deadline)

    def _refuse(self, reason: str) -> None:
        """The predictor cannot be scored, which the agent may hear of and offer another; not without end."""
        self._refusals += 1
        if self._refusals > REFUSALS:
            raise RunFailedError(
                f"tick {len(self.ledger)}: {REFUSALS} predictors could not be scored, the last: {reason}"
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
            declared=tuple(_text(reason)[:200] for reason in _list(fields.get("declared"))[:100]),
            digest="" if deployed is None else deployed.digest,
            refused=fields.get("refused") is True,
            seconds=now - self._clock,
        )
        self.ledger.append(row)
        self.observed.append(
            Observed(
                tick=tick,
                seconds=max(now - self._clock - self._waited, 0.0),
                cpu_seconds=None if cpu is None or self._cpu is None else max(cpu - self._cpu, 0.0),
                deployed=new is not None,
                parameters=row.parameters,
                changed=0 if new is None else _changed(before, new),
                declared=row.comp,
                examples=tick * len(self._stream.indices(1)[0]),
                **({} if deployed is None else {name: getattr(deployed, name) for name in _SEEN}),
            )
        )
        self._clock, self._cpu, self._waited = now, cpu, 0.0
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
    elements: float
    mixed: float
    literals: int
    wide: int


def _changed(before: _Answer | None, now: _Answer) -> int:
    """Scalars that differ from those of the same place in the program before; all where there is no such place."""
    mine, theirs = load(bytes(now.tensors)), {} if before is None else load(bytes(before.tensors))
    changed = 0
    for name, tensor in mine.items():
        other = theirs.get(name)
        if other is not None and other.shape == tensor.shape and other.dtype == tensor.dtype:
            changed += int(torch.count_nonzero(tensor != other))
        else:
            changed += tensor.numel()
    return changed


def _flops(found: Any) -> dict[str, int]:
    if not isinstance(found, dict) or len(found) > PHASES:
        raise RunFailedError(f"flops: must be a table of at most {PHASES} phases")
    return {_text(phase)[:50]: _whole(count, "flops") for phase, count in found.items()}


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise RunFailedError(f"{name}={str(value)[:50]}: must be a whole number, 0 or more")
    return value


def _number(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise RunFailedError(f"{name}={str(value)[:50]}: must be a finite number, 0 or more")
    return float(value)


def _digest(blobs: Sequence[bytes | bytearray | memoryview]) -> str:
    """Of the blobs one after another, without a copy of them."""
    hasher = xxhash.xxh3_128()
    for blob in blobs:
        hasher.update(blob)
    return hasher.hexdigest()


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise RunFailedError(f"{str(value)[:50]}: must be a list")
    return value


def _text(value: Any) -> str:
    """As text without control characters: it goes into logs and pages."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(value)[:10_000])
