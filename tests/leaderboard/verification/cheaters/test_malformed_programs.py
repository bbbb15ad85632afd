"""Programs that are not programs."""

from __future__ import annotations

import pytest

from .gallery import attack, case, printed

MALFORMED = {
    "bytes that are no graph": ("b'\\x00' * 100", "good.tensor_bytes()"),
    "tensors that are a pickle": ("good.graph_bytes()", "__import__('pickle').dumps(print)"),
    "a deeply nested graph": ("b'[' * 100_000", "good.tensor_bytes()"),
    "an operation that reads files": (
        "good.graph_bytes().replace(b'aten.flatten.using_ints', b'aten.from_file.default')",
        "good.tensor_bytes()",
    ),
    "an operation outside of ATen": (
        "good.graph_bytes().replace(b'aten.flatten.using_ints', b'builtins.eval')",
        "good.tensor_bytes()",
    ),
    "a result that does not exist yet": (
        "good.graph_bytes().replace(b'flatten\\\"}', b'later\\\"}')",
        "good.tensor_bytes()",
    ),
}
SEND = """
import json
from leaderboard.program.export import export
from leaderboard.sandbox.channel import Message

class Malformed(Learner):
    def before(self, observation):
        good, _ = export(self.predictor, observation["train"]["x"][:2])
        for name, graph, tensors in programs(good):
            self.env.channel.send(Message("answer", {"tick": 1}, [graph, tensors]))
            reply = self.env.channel.receive()
            print(f"{name}: {reply.kind}, {reply.fields}", flush=True)

def make_agent(env):
    return Malformed(env)
"""


@pytest.fixture(scope="module")
def malformed_run(shared_run):
    """A run that sends every malformed program, and then the last one again and again."""
    programs = ", ".join(f"({name!r}, {graph}, {tensors})" for name, (graph, tensors) in MALFORMED.items())
    return shared_run(
        f"def programs(good):\n    sent = [{programs}]\n    return sent + sent[-1:] * 30\n" + SEND, ticks=3
    )


@pytest.mark.parametrize("name", [case(f"deploys {name}", "refused; finding `failed`", name) for name in MALFORMED])
def test_a_malformed_program_is_refused(malformed_run, name):
    assert printed(malformed_run, name).startswith("refused, {'reason': ")
    assert len(malformed_run.ledger) == 1
    assert "predictors could not be scored" in malformed_run.failure


@attack("deploys a tensor larger than the memory", "refused; finding `failed`")
def test_a_program_that_needs_more_than_the_memory_is_refused(run):
    bomb = """
def programs(good):
    graph = json.loads(good.graph_bytes())
    name = graph["output"]
    graph["nodes"].append(["huge", "aten.ones.default", [[2**36]], {}])
    graph["nodes"].append(["all", "aten.sum.default", [{"of": "huge"}], {}])
    graph["nodes"].append(["last", "aten.add.Tensor", [{"of": name}, {"of": "all"}], {}])
    return [("bomb", json.dumps(graph | {"output": "last"}).encode(), good.tensor_bytes())] * 30
"""
    sandboxed_run = run(bomb + SEND)
    assert len(sandboxed_run.ledger) == 1
    # Only a lack of memory can end the evaluator.
    dead = "closed the connection" in sandboxed_run.failure
    assert dead or "predictors could not be scored" in sandboxed_run.failure
