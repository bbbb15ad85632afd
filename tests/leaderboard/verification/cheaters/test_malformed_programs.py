"""Programs that are not programs."""

from __future__ import annotations

import pytest

from .gallery import case

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
    "a tensor larger than the memory": ("bomb(good)", "good.tensor_bytes()"),
}


@pytest.mark.parametrize(
    ("program", "graph", "tensors"),
    [
        case(f"deploys {name}", "refused; finding `failed`", name, graph, tensors)
        for name, (graph, tensors) in MALFORMED.items()
    ],
)
def test_a_malformed_program_is_refused(run, program, graph, tensors):
    sandboxed_run = run(f"""
        import json
        from leaderboard.program.export import export
        from leaderboard.sandbox.channel import Message

        def bomb(good):
            graph = json.loads(good.graph_bytes())
            name = graph["output"]
            graph["nodes"].append(["huge", "aten.ones.default", [[2**36]], {{}}])
            graph["nodes"].append(["all", "aten.sum.default", [{{"of": "huge"}}], {{}}])
            graph["nodes"].append(["last", "aten.add.Tensor", [{{"of": name}}, {{"of": "all"}}], {{}}])
            return json.dumps(graph | {{"output": "last"}}).encode()

        class Malformed(Learner):
            def before(self, observation):
                good, _ = export(self.predictor, observation["train"]["x"][:2])
                for _ in range(30):
                    self.env.channel.send(Message("answer", {{"tick": 1}}, [{graph}, {tensors}]))
                    reply = self.env.channel.receive()
                    print(reply.kind, reply.fields, flush=True)

        def make_agent(env):
            return Malformed(env)
        """)
    assert len(sandboxed_run.ledger) == 1
    # Only a lack of memory can end the evaluator.
    dead = program == "a tensor larger than the memory" and "closed the connection" in sandboxed_run.failure
    assert dead or "predictors could not be scored" in sandboxed_run.failure
