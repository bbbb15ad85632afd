"""The judge: keeps stream, labels and ledger, and releases mega-batch t after the answer to tick t − 1.

Three processes take part in a verified run. The *contestant* (`leaderboard.verification.contestant`) executes submitted
code in a sandbox and has received mega-batches 1..t. The *evaluator* (`leaderboard.verification.evaluator`) runs the
deployed programs on the test inputs in another sandbox and has no labels. The judge has the stream and the labels, and
executes neither submitted code nor programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import xxhash

from alma_env import AlmaEnv, Ledger, Row
from alma_env.data.datasets import DataSet
from alma_env.data.stream import Stream
from alma_env.errors import PredictorError, UnknownCostError
from leaderboard.errors import ProgramError
from leaderboard.program.contents import Contents, contents
from leaderboard.program.graph import read_structure
from leaderboard.sandbox.channel import Channel, ChannelError, Message, array_header, as_array, as_blob
from leaderboard.sandbox.sandbox import SandboxError
from leaderboard.verification.evidence import Evidence
from leaderboard.verification.reported import NamesAndTexts, RunFailedError, flops, number, printable, reasons, whole
from leaderboard.verification.tensor_digests import TensorDigests, changed_scalars, tensor_digests

ANSWER_SECONDS = 600.0  # time limit of the evaluator for one program
REFUSALS = 20  # limit of programs per tick that cannot be scored
MEASURED = ("flops", "free_elements", "probe_flops", "probe_elements", "batch_dependent", "packed")  # by the evaluator
Blob = bytes | bytearray | memoryview


class EvaluatorError(SandboxError):
    """The evaluator did not start: a fault of the machine, not of the submission."""


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
        self._known: tuple[Any, Contents | None] = None, None  # structure and contents of the previous program
        self._refusals = 0
        self._names = NamesAndTexts()
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
                error, traceback = (printable(message.fields.get(name)) for name in ("error", "traceback"))
                raise self._failure(f"the agent raised {error}\n{traceback}")
            case kind:
                raise self._failure(f"the contestant sent {kind[:50]!r}, which is not a request")

    def _release(self, fields: Mapping[str, Any]) -> None:
        tick = whole(fields.get("tick"), "tick")
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
        try:
            found = self._contents(blobs)
        except (ProgramError, UnknownCostError) as error:
            raise PredictorError(str(error)) from error
        deadline = min(self.deadline, time.monotonic() + ANSWER_SECONDS)
        self.evaluator.send(Message("program", {}, blobs), deadline=deadline)
        reply = self.evaluator.receive(deadline=deadline)
        fields = reply.fields
        if reply.kind == "refused":
            raise PredictorError(printable(fields.get("reason")))
        # The evaluator ran a stranger's program, so its messages are checked like those of the contestant.
        if len(reply.blobs) != 1:
            raise self._failure(f"the evaluator sent {len(reply.blobs)} arrays of logits")
        logits = torch.from_numpy(as_array(reply.blobs[0], fields.get("logits")).copy())
        _, labels = self._stream.test
        expected = (len(labels), self._data.classes)
        if tuple(logits.shape) != expected or bool(torch.isnan(logits).any()):
            raise PredictorError(f"logits of shape {tuple(logits.shape)}: must be {expected} without NaN")
        measured = {name: number(fields.get(name), name) for name in MEASURED}
        answer_flops, answer_elements = measured.pop("flops"), measured.pop("free_elements")
        digest = xxhash.xxh3_128(blobs[0])
        digest.update(blobs[1])
        return _Answer(
            error=self._data.task.error(logits, labels),
            # Only if the cost depends on values, the judge needs the evaluator to count it.
            flops=min(answer_flops, found.flops) if found.data_dependent else found.flops,
            parameters=found.parameters,
            buffers=found.buffers,
            digest=digest.hexdigest(),
            graph=xxhash.xxh3_128_hexdigest(blobs[0]),
            nodes=found.nodes,
            tensors=tensor_digests(blobs[1]),
            evidence={
                "parameter_elements": found.parameter_elements,
                "stored": found.stored,
                "hidden": found.hidden,
                "graph": found.graph,
                "free_elements": max(found.free_elements, answer_elements, measured["probe_elements"]),
                "answer_flops": answer_flops,
                "answer_elements": answer_elements,
                **measured,
            },
        )

    def _contents(self, blobs: Sequence[Blob]) -> Contents:
        """Return what a program contains; a program with the structure of the previous one is not derived again."""
        structure = read_structure(bytes(blobs[0]), blobs[1])
        kinds = tuple((name, tensor.dtype, tensor.shape) for name, tensor in structure.tensors.items())
        key = xxhash.xxh3_128_hexdigest(blobs[0]), kinds
        if key != self._known[0]:
            x, _ = self._stream.test
            example = torch.from_numpy(x[:1].copy())
            batch_size = self.env.evaluation_batch_size
            found = contents(structure, tuple(example.shape[1:]), example.dtype, len(x), batch_size)
            self._known = key, found
        assert self._known[1] is not None
        return self._known[1]

    def _enter(self, fields: Mapping[str, Any]) -> None:
        tick = len(self.ledger)
        if whole(fields.get("tick"), "tick") != tick:
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
            flops=flops(fields.get("flops"), fields.get("total")),
            paper_flops=whole(fields.get("paper_flops"), "paper_flops"),
            declared=reasons(fields.get("declared")),
            registered=reasons(fields.get("registered", [])),
            digest=deployed.digest,
            refused=fields.get("refused") is True,
            seconds=now - self._clock,
        )
        self._names.add(row)
        self.ledger.append(row)
        self.evidence.append(
            Evidence(
                tick=tick,
                cpu_seconds=None if cpu is None or self._cpu is None else max(cpu - self._cpu, 0.0),
                deployed=new is not None,
                changed=0 if new is None else _changed(self._deployed, new),
                traced=0 if new is None or new.graph == self._deployed.graph else new.nodes,
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
    graph: str = ""
    nodes: int = 0
    tensors: Mapping[str, TensorDigests] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)


def _changed(before: _Answer, now: _Answer) -> int:
    """Return how many scalars changed; a change of the graph, of an argument or of a shape is one, too."""
    return 0 if before.digest == now.digest else max(1, changed_scalars(before.tensors, now.tensors))
