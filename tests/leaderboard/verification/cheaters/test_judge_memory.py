"""The memory of the judge."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import torch

from leaderboard.sandbox.channel import Message, array_header, as_blob
from leaderboard.verification.judge import MEASURED, Judge
from leaderboard.verification.one_run import run_sandboxed

from ...hand_written_programs import program
from ..threads import parties_in_threads
from .gallery import attack, codes


class Obliging:
    """The other end of a connection: takes every message, and answers as an evaluator."""

    def __init__(self, env):
        self.logits = np.zeros((len(env.data.test_y), env.data.classes), np.float32)

    def send(self, message, *, deadline=None):
        pass

    def receive(self, *, deadline=None):
        fields = {"logits": array_header(self.logits), **dict.fromkeys(MEASURED, 1)}
        return Message("answered", fields, [as_blob(self.logits)])


@attack("deploys another large program at each tick", "the judge keeps digests, 1/512 of a program")
def test_the_judge_keeps_no_program(env):
    size = 2**25
    small = torch.ones(64, 10)
    programs = [program(tensors={"w": small, "large": torch.full((size // 4,), float(tick))}) for tick in range(3)]
    other = Obliging(env)
    Judge(env, 0, other, other, deadline=time.monotonic() + 300)._score(Message("answer", {}, program()))  # imports
    judge = Judge(env, 0, other, other, deadline=time.monotonic() + 300)
    entered = {"flops": {}, "paper_flops": 0, "declared": [], "refused": False}
    tracemalloc.start()
    try:
        for tick, blobs in enumerate(programs):
            judge._score(Message("answer", {}, blobs))
            judge._enter({"tick": tick, **entered})
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [evidence.changed for evidence in judge.evidence] == [size // 4 + 640, size // 4, size // 4]
    assert kept < size / 50
    assert peak < size / 5


@attack("deploys a program of more than 256 MiB", "the run ends before the judge reads it; finding `failed`")
def test_a_program_has_a_largest_size(env, tmp_path):
    def sending(channel):
        channel.receive()
        channel.send(Message("answer", {"tick": 0}, [b"", bytes(256 * 2**20 + 1)]))

    with parties_in_threads(contestant=sending):
        run = run_sandboxed(env, tmp_path, 0)
    assert "268,435,457 bytes in a message: must have at most 268,435,456" in run.failure
    assert codes(run) == {"failed"}
