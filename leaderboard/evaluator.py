"""The evaluator: runs the programs that were deployed, on test inputs without labels, in a sandbox of its own.

``python -m leaderboard.inside evaluator READING WRITING``: descriptors of its connection to the judge. It gets the
inputs once, then one program per deployment, and answers with the logits and the FLOPs per example.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from alma_env.errors import AlmaError
from alma_env.predictor import freeze, run
from alma_env.tasks import Classification
from leaderboard.interpreter import ProgramModule
from leaderboard.program import read
from leaderboard.wire import Channel, Message, WireError, as_array, as_blob, described


def serve(channel: Channel) -> None:
    """Answer until the judge closes the connection.

    Raises:
        WireError: it was closed.
    """
    begin = channel.receive()
    x = as_array(begin.blobs[0], begin.fields["x"])
    task = Classification(begin.fields["classes"])
    nobody_knows = np.zeros(len(x), np.int64)
    steady: tuple[bytes, float] | None = None  # of the graph before, if it costs the same on any data
    while True:
        request = channel.receive()
        graph, tensors = (bytes(blob) for blob in request.blobs)
        try:
            program = read(graph, tensors)
            logits, flops, is_steady = run(
                freeze(ProgramModule(program)),
                x,
                nobody_knows,
                task=task,
                batch_size=begin.fields["batch_size"],
                steady_flops=steady[1] if steady is not None and steady[0] == graph else None,
            )
        except AlmaError as error:
            channel.send(Message("refused", {"reason": str(error)[:2000]}))
            continue
        steady = (graph, flops) if is_steady else None
        answer = logits.float().numpy()
        counts = {"parameters": program.parameters, "buffers": program.buffers}
        channel.send(Message("answered", {"flops": flops, "logits": described(answer), **counts}, [as_blob(answer)]))


def main(words: Sequence[str]) -> int:
    """Entry point, see `leaderboard.inside`; the exit status."""
    reading, writing = words
    with contextlib.suppress(WireError):  # the run is over
        serve(Channel(int(reading), int(writing)))
    return 0
