"""The evaluator: runs the programs that were deployed, on test inputs without labels, in a sandbox of its own.

``python -m leaderboard.inside evaluator READING WRITING``: descriptors of its connection to the judge. It gets the
inputs once, then one program per deployment, and answers with the logits and the FLOPs per example.

What it says of a program goes on to whoever sent it. Of what happened on the test inputs it says no more than that it
happened: the text of an error can be made of the data that led to it.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from alma_env.errors import AlmaError, UnknownCostError
from alma_env.flops import rule
from alma_env.predictor import freeze, run
from alma_env.tasks import Classification
from leaderboard.interpreter import ProgramModule
from leaderboard.program import Program, ProgramError, read
from leaderboard.wire import Channel, Message, WireError, as_array, as_blob, described

UNSCORABLE = (
    "the program cannot be scored on the test inputs: an operation raised there, its logits are not floating-point "
    "numbers of shape (n, classes) without NaN, or it changed its input or its own tensors. Which of them is not told, "
    "because it could tell of the test set: run the predictor on a mega-batch to see it, or deploy another"
)


PROBED = 1_000  # examples, so that a look at a predictor costs a small part of its answer


class Elements(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the elements that go through operations which are free: a product of matrices can be made of those, too.

    Attributes:
        count: the larger of what each took and what it gave, summed.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        views = any(result.alias_info is not None and not result.alias_info.is_write for result in func._schema.returns)
        cost = rule(func)
        if not views and (cost is None or isinstance(cost, str)):
            self.count += max(_numel((args, kwargs)), _numel(out))
        return out


def _numel(values: Any) -> int:
    return max((leaf.numel() for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)), default=0)


class Evaluator:
    """Scores programs, one after another.

    Args:
        x: the test inputs.
        classes: of the task.
        batch_size: examples per forward pass.
    """

    def __init__(self, x: NDArray[Any], classes: int, batch_size: int) -> None:
        self.x, self.batch_size, self.task = x, batch_size, Classification(classes)
        self._steady: tuple[bytes, float] | None = None  # of the graph before, if it costs the same on any data

    def answer(self, graph: bytes, tensors: bytes) -> tuple[Tensor, dict[str, Any]]:
        """The logits of a program, and what is told of it.

        Raises:
            ProgramError: it is none, or cannot be scored; the text tells nothing of the test inputs.
        """
        program = read(graph, tensors)
        module = freeze(ProgramModule(program))
        assert isinstance(module, ProgramModule)  # a copy of it
        known = self._steady is not None and self._steady[0] == graph
        try:
            logits, flops, steady = run(
                module,
                self.x,
                np.zeros(len(self.x), np.int64),  # nobody here knows the labels
                task=self.task,
                batch_size=self.batch_size,
                steady_flops=self._steady[1] if known and self._steady is not None else None,
            )
            if not module.same_tensors(program):
                raise ProgramError("the program changed its own tensors")
            elements, mixed = self._probe(module, logits)
        except UnknownCostError:
            raise  # of an operation, and of nothing else
        except AlmaError as error:
            traceback.print_exc()  # for those who run the leaderboard
            raise ProgramError(UNSCORABLE) from error
        self._steady = (graph, flops) if steady else None
        return logits, {"flops": flops, "elements": elements, "mixed": mixed, **_counts(program)}

    def _probe(self, module: ProgramModule, logits: Tensor) -> tuple[float, float]:
        """Elements through free operations, per example; and the share of examples whose answer depends on their batch.

        Examples drawn at random make another batch. By how much the first class leads there and led before differs by
        rounding alone if the predictor looks at one example at a time. So does which class that is, which tells where
        all leads are the same, or drowned by a constant.
        """
        rows = np.random.default_rng().integers(len(self.x), size=min(self.batch_size, len(self.x), PROBED))
        elements = Elements()
        with torch.random.fork_rng([]), torch.no_grad(), elements:
            torch.default_generator.manual_seed(0)
            again = module(torch.from_numpy(self.x[rows]))
        (first, led), (_, leads) = _lead(logits[torch.from_numpy(rows)]), _lead(again)
        moved = torch.where(led == leads, 0.0, (led - leads).abs())
        rounding = 100 * torch.finfo(logits.dtype).eps * first.abs() + 1e-3 * led.median()
        changed = again.argmax(1) != logits[torch.from_numpy(rows)].argmax(1)
        return elements.count / len(rows), float((changed | ~(moved <= rounding)).double().mean())


def _lead(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The highest logit of each example, and by how much it leads."""
    first, second = logits.double().topk(2, dim=1).values.unbind(1)
    return first, first - second


def _counts(program: Program) -> dict[str, int]:
    wide = sum(t.numel() for name, t in program.tensors.items() if t.element_size() > 4)
    return {
        "parameters": program.parameters,
        "buffers": program.buffers,
        "literals": program.literals,
        "wide": wide,
    }


def serve(channel: Channel) -> None:
    """Answer until the judge closes the connection.

    Raises:
        WireError: it was closed.
    """
    begin = channel.receive()
    x = as_array(begin.blobs[0], begin.fields["x"])
    evaluator = Evaluator(x, begin.fields["classes"], begin.fields["batch_size"])
    channel.send(Message("ready"))
    while True:
        graph, tensors = (bytes(blob) for blob in channel.receive().blobs)
        try:
            logits, told = evaluator.answer(graph, tensors)
        except AlmaError as error:
            channel.send(Message("refused", {"reason": str(error)[:2000]}))
            continue
        # In float32, which holds all shorter ones; in float64 as they are, since rounding could make two equal.
        answer = (logits if logits.dtype == torch.float64 else logits.float()).numpy()
        channel.send(Message("answered", {"logits": described(answer), **told}, [as_blob(answer)]))


def main(words: Sequence[str]) -> int:
    """Entry point, see `leaderboard.inside`; the exit status."""
    reading, writing = words
    with contextlib.suppress(WireError):  # the run is over
        serve(Channel(int(reading), int(writing)))
    return 0
