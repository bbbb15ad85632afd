"""The evaluator: run deployed programs on the test inputs, without labels, in a separate sandbox.

Started as ``python -m leaderboard.sandbox.sandbox_main leaderboard.verification.evaluator READING WRITING``, with the
file descriptors of its connection to the judge. The evaluator receives the test inputs once, then one program per
deployment. It answers with the logits and the FLOPs per example.

The contestant receives the evaluator's messages about its program. A message about a failure on the test inputs is
therefore a fixed text: an error's own text could contain test data.
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

from alma_env.errors import AlmaError, UnknownCostError
from alma_env.metering.dispatch_mode import CountingMode
from alma_env.metering.tally import Tally
from alma_env.scoring.evaluation import freeze, reproducible, run
from alma_env.scoring.tasks import Classification
from leaderboard.errors import ProgramError
from leaderboard.program.free_elements import FreeElements
from leaderboard.program.graph import Program, read
from leaderboard.program.interpreter import ProgramModule
from leaderboard.sandbox.channel import Channel, ChannelError, Message, array_header, as_array, as_blob
from leaderboard.verification.rounded_parameters import with_rounded_parameters

PROBED = 1_000  # examples; a small part of the cost of an answer
UNSCORABLE = (
    "the program cannot be scored on the test inputs: an operation raised there, its logits are not floating-point "
    "numbers of shape (n, classes) without NaN, or it changed its input or its own tensors. The exact reason is "
    "withheld, because it could reveal test data; run the predictor on a mega-batch to find it"
)


class Evaluator:
    """Runs programs on the test inputs ``x``, one after another."""

    def __init__(self, x: NDArray[Any], classes: int, batch_size: int) -> None:
        self.x, self.batch_size, self.task = x, batch_size, Classification(classes)
        # Structure, FLOPs and free elements per example of the previous program, if they do not depend on the data.
        self._steady: tuple[Any, float, float] = None, 0.0, 0.0

    def answer(self, graph: bytes, tensors: bytes) -> tuple[Tensor, dict[str, Any]]:
        """Return the logits of a program, and its properties as fields of a message.

        Raises:
            ProgramError: the program is invalid or cannot be scored; the text reveals nothing about the test inputs.
        """
        program = read(graph, tensors)
        module = freeze(ProgramModule(program))
        assert isinstance(module, ProgramModule)  # freeze returns a copy
        before, known_flops, known_elements = self._steady
        structure = graph, [(name, tensor.dtype, tensor.shape) for name, tensor in program.tensors.items()]
        known = before == structure
        elements = FreeElements()
        try:
            with contextlib.nullcontext() if known else elements:
                logits, flops, steady = run(
                    module,
                    self.x,
                    np.zeros(len(self.x), np.int64),  # placeholders for the labels, which the judge keeps
                    task=self.task,
                    batch_size=self.batch_size,
                    steady_flops=known_flops if known else None,
                )
            if not module.same_tensors(program):
                raise ProgramError("the program changed its own tensors")
            probe = self._probe(module, program, logits)
        except UnknownCostError:
            raise  # the text names only an operation
        except AlmaError as error:
            traceback.print_exc()  # for the operators of the board
            raise ProgramError(UNSCORABLE) from error
        free_elements = known_elements if known else elements.count / len(self.x)
        self._steady = structure if steady else None, flops, free_elements
        return logits, {"flops": flops, "free_elements": free_elements, **probe}

    def _probe(self, module: ProgramModule, program: Program, logits: Tensor) -> dict[str, float]:
        """Return the cost of a random batch, and the shares of its examples whose answer depends on other things.

        These are the other examples of the batch, and the last bits of the parameters.

        The batch has different test examples in a random order and number, so that a program cannot recognise it by an
        example that occurs twice. The answers are compared with the first answers. The *lead* is the
        difference between the highest and the second-highest logit. If a predictor treats each example separately, then
        its leads in the two batches differ only by rounding, and the predicted classes are equal. The comparison of
        classes also detects predictors whose leads are all equal, or are small next to a constant.
        """
        most = min(self.batch_size, PROBED, max(len(self.x) // 2, 1))
        rng = np.random.default_rng()
        rows = rng.permutation(len(self.x))[: rng.integers(most // 2 + 1, most + 1)]
        elements, tally = FreeElements(), Tally("inference")
        with reproducible(torch.device("cpu")), elements, CountingMode(tally):
            again = module(torch.from_numpy(self.x[rows]))
        before = logits[torch.from_numpy(rows)]
        (highest, lead_before), (_, lead) = _lead(before), _lead(again)
        difference = torch.where(lead_before == lead, 0.0, (lead_before - lead).abs())
        rounding = 100 * torch.finfo(logits.dtype).eps * highest.abs() + 1e-3 * lead_before.median()
        changed = again.argmax(1) != before.argmax(1)
        return {
            "probe_flops": tally.total() / len(rows),
            "probe_elements": elements.count / len(rows),
            "batch_dependent": float((changed | ~(difference <= rounding)).double().mean()),
            "packed": _packed(program, self.x[rows], again),
        }


def _packed(program: Program, x: NDArray[Any], answers: Tensor) -> float:
    """Return the share of examples whose predicted class is another one after the parameters were rounded."""
    module = freeze(ProgramModule(with_rounded_parameters(program)))
    try:
        with reproducible(torch.device("cpu")), torch.no_grad():
            again = module(torch.from_numpy(x))
        return float((again.argmax(1) != answers.argmax(1)).double().mean())
    except (AlmaError, IndexError, RuntimeError):
        return 1.0  # the parameters hold what must not be rounded, such as places in another tensor


def _lead(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the highest logit of each example, and its lead over the second-highest."""
    highest, second = logits.double().topk(2, dim=1).values.unbind(1)
    return highest, highest - second


def serve(channel: Channel) -> None:
    """Answer requests until the judge closes the connection.

    Raises:
        ChannelError: the judge closed the connection.
    """
    begin = channel.receive()
    x = as_array(begin.blobs[0], begin.fields["x"])
    evaluator = Evaluator(x, begin.fields["classes"], begin.fields["batch_size"])
    channel.send(Message("ready"))
    while True:
        graph, tensors = (bytes(blob) for blob in channel.receive().blobs)
        try:
            logits, fields = evaluator.answer(graph, tensors)
        except AlmaError as error:
            channel.send(Message("refused", {"reason": str(error)[:2000]}))
            continue
        # float32 represents all shorter types. float64 stays, because rounding could make two logits equal.
        answer = (logits if logits.dtype == torch.float64 else logits.float()).numpy()
        channel.send(Message("answered", {"logits": array_header(answer), **fields}, [as_blob(answer)]))


def main(arguments: Sequence[str]) -> int:
    """Run the evaluator and return the exit status; called by `leaderboard.sandbox.sandbox_main`."""
    reading, writing = arguments
    with contextlib.suppress(ChannelError):  # the run has ended
        serve(Channel(int(reading), int(writing)))
    return 0
