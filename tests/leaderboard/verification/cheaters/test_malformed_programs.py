"""Programs that are not programs."""

from __future__ import annotations

import json
import pickle

import pytest
from torch import nn

import alma_env
from leaderboard.program.export import export
from leaderboard.program.graph import Program
from leaderboard.sandbox.channel import Message
from leaderboard.verification.one_run import run_sandboxed

from ..threads import parties_in_threads
from .gallery import attack, case


def other_operation(good: Program, name: bytes) -> tuple[bytes, bytes]:
    return good.graph_bytes().replace(b"aten.flatten.using_ints", name), good.tensor_bytes()


MALFORMED = {
    "bytes that are no graph": lambda good: (b"\x00" * 100, good.tensor_bytes()),
    "tensors that are a pickle": lambda good: (good.graph_bytes(), pickle.dumps(print)),
    "a deeply nested graph": lambda good: (b"[" * 100_000, good.tensor_bytes()),
    "an operation that reads files": lambda good: other_operation(good, b"aten.from_file.default"),
    "an operation outside of ATen": lambda good: other_operation(good, b"builtins.eval"),
    "a result that does not exist yet": lambda good: (
        good.graph_bytes().replace(b'flatten"}', b'later"}'),
        good.tensor_bytes(),
    ),
}


def sent(env, programs, folder, **parties):
    """Return a run that sends programs at tick 1, and the replies that it gets."""
    replies = []

    def sending(channel):
        channel.receive()
        channel.send(Message("enter", {"tick": 0, "flops": {}, "paper_flops": 0, "declared": []}))
        for program in programs:
            channel.send(Message("answer", {"tick": 1}, program))
            replies.append(channel.receive())

    with parties_in_threads(contestant=sending, **parties):
        return run_sandboxed(env, folder, 0), replies


@pytest.fixture(scope="module")
def good():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return export(module, alma_env.make("Digits-ALMA-v0", ticks=3).data.train_x[:2])[0]


@pytest.fixture(scope="module")
def malformed(good, tmp_path_factory):
    """A run that sends every malformed program, and then the last one again and again; and the replies."""
    programs = [make(good) for make in MALFORMED.values()]
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    return sent(env, programs + programs[-1:] * 30, tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("name", [case(f"deploys {name}", "refused; finding `failed`", name) for name in MALFORMED])
def test_a_malformed_program_is_refused(good, malformed, name):
    assert MALFORMED[name](good) != (good.graph_bytes(), good.tensor_bytes())
    run, replies = malformed
    reply = replies[list(MALFORMED).index(name)]
    assert (reply.kind, list(reply.fields)) == ("refused", ["reason"])
    assert len(run.ledger) == 1
    assert "predictors could not be scored" in run.failure


@attack("deploys a tensor larger than the memory", "refused; finding `failed`")
def test_a_program_that_needs_more_than_the_memory_is_refused(env, good, tmp_path):
    graph = json.loads(good.graph_bytes())
    name = graph["output"]
    graph["nodes"].append(["huge", "aten.ones.default", [[2**36]], {}])
    graph["nodes"].append(["all", "aten.sum.default", [{"of": "huge"}], {}])
    graph["nodes"].append(["last", "aten.add.Tensor", [{"of": name}, {"of": "all"}], {}])
    bomb = json.dumps(graph | {"output": "last"}).encode(), good.tensor_bytes()
    run, _ = sent(env, [bomb] * 30, tmp_path, own_evaluator=True)
    assert len(run.ledger) == 1
    # Only a lack of memory can end the evaluator.
    dead = "closed the connection" in run.failure
    assert dead or "predictors could not be scored" in run.failure
