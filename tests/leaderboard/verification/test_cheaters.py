"""Every cheater here is detected or does no harm. Each runs in a real sandbox, with the real judge."""

from __future__ import annotations

import os
import textwrap
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import alma_env
from leaderboard.sandbox import sandbox
from leaderboard.sandbox.cgroups import control_group
from leaderboard.sandbox.sandbox import ISOLATED, Limits, level_here
from leaderboard.verification import audit
from leaderboard.verification.one_run import SandboxedRun, run_sandboxed

pytestmark = pytest.mark.skipif(level_here() != ISOLATED, reason="bubblewrap is missing, or cannot create namespaces")

HONEST = """
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x):
            return self.layer(x.flatten(1) / 16)

    class Learner:
        def __init__(self, env):
            self.env = env
            torch.manual_seed(env.run_seed)
            self.predictor = Small()

        def observe(self, observation):
            self.before(observation)
            x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
            optimizer = torch.optim.SGD(self.predictor.parameters(), lr=0.1)
            for _ in range(10):
                optimizer.zero_grad()
                nn.functional.cross_entropy(self.predictor(x), y).backward()
                optimizer.step()
            return self.predictor

        def before(self, observation):
            pass

    def make_agent(env):
        return Learner(env)
"""


@pytest.fixture
def env():
    return alma_env.make("Digits-ALMA-v0", ticks=3)


@pytest.fixture
def run(env, tmp_path):
    def go(source: str, *, base: str = HONEST, limits: Limits | None = None) -> SandboxedRun:
        folder = tmp_path / "submission"
        folder.mkdir(exist_ok=True)
        (folder / "agent.py").write_text(textwrap.dedent(base) + textwrap.dedent(source))
        return run_sandboxed(env, folder, 0, limits or Limits(wall_seconds=120))

    return go


@pytest.fixture
def groups(monkeypatch):
    """Return the list of created control groups; it stays empty if this user cannot create any."""
    created = []

    @contextmanager
    def recorded(name, **limits):
        with control_group(name, **limits) as group:
            created.extend([group] if group is not None else [])
            yield group

    monkeypatch.setattr(sandbox, "control_group", recorded)
    return created


def codes(sandboxed_run: SandboxedRun) -> set[str]:
    return {finding.code for finding in audit.run_findings(sandboxed_run)}


def printed(sandboxed_run: SandboxedRun, name: str) -> str:
    """Return what a cheater printed about one attempt."""
    return next(
        line.removeprefix(f"{name}: ") for line in sandboxed_run.output.splitlines() if line.startswith(f"{name}: ")
    )


def test_the_ledger_of_an_honest_learner_equals_that_of_a_local_run(run, env, tmp_path):
    sandboxed_run = run("")
    assert sandboxed_run.failure is None
    assert sandboxed_run.level == ISOLATED
    assert codes(sandboxed_run) == set()

    names: dict = {}
    exec(compile((tmp_path / "submission" / "agent.py").read_text(), "agent.py", "exec"), names)
    env.run_seed = 0
    learner = names["make_agent"](env)
    observation, _ = env.reset(seed=0, options={"predictor": learner.predictor})
    while not env.done:
        with env.meter:
            predictor = learner.observe(observation)
        observation, *_ = env.step(predictor)
    columns = ("tick", "error", "parameters", "buffers", "inference_flops", "flops", "paper_flops", "refused")
    assert [[getattr(row, name) for name in columns] for row in sandboxed_run.ledger] == [
        [getattr(row, name) for name in columns] for row in env.ledger
    ]


def test_the_sandbox_has_no_test_set_no_later_data_no_network_and_no_writable_files(run, env, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("outside")
    sandboxed_run = run(f"""
        import gc, os, socket, subprocess, sys
        import numpy as np

        def attempt(name, what):
            try:
                print(f"{{name}}: {{what()}}")
            except BaseException as error:
                print(f"{{name}}: {{type(error).__name__}}")

        def connect():
            return socket.create_connection(("1.1.1.1", 53), timeout=2)

        def digits():
            from sklearn.datasets import load_digits
            return load_digits().data.shape

        def images():
            seen = [o for o in gc.get_objects() if isinstance(o, np.ndarray) and o.size and o.any()]
            return max((len(o) for o in seen if o.ndim == 4), default=0)

        def written():
            places = ["/program", "/submission", "/usr", "/", os.path.dirname(np.__file__)]
            return [place for place in places if os.access(place, os.W_OK)]

        class Peeping(Learner):
            def before(self, observation):
                if self.env.tick == 0:
                    attempt("test", lambda: (len(self.env.data.test_y), int(self.env.data.test_x.any())))
                    attempt("train", lambda: int(self.env.data.train_x.any()))
                    attempt("images", images)
                    attempt("digits", digits)
                    attempt("network", connect)
                    attempt("outside", lambda: open({str(secret)!r}).read())
                    attempt("written", written)
                    attempt("processes", lambda: len([p for p in os.listdir("/proc") if p.isdigit()]) < 10)
                    attempt("environment", lambda: sorted(k for k in os.environ if "ALMA" in k))
                    attempt("future", lambda: self.env.megabatch(2))
                    attempt("validation", lambda: self.env.validation_error(self.predictor))
                    sys.stdout.flush()

        def make_agent(env):
            return Peeping(env)
        """)
    assert sandboxed_run.failure is None
    assert printed(sandboxed_run, "test") == "(1, 0)"
    assert printed(sandboxed_run, "train") == "0"
    # At most the training part of a mega-batch.
    assert int(printed(sandboxed_run, "images")) <= env.examples_per_tick
    assert printed(sandboxed_run, "digits") in ("FileNotFoundError", "OSError")
    assert printed(sandboxed_run, "network") in ("OSError", "PermissionError", "ConnectionRefusedError")
    assert printed(sandboxed_run, "outside") == "FileNotFoundError"
    assert printed(sandboxed_run, "written") == "[]"
    assert printed(sandboxed_run, "processes") == "True"
    assert printed(sandboxed_run, "environment") == "[]"
    assert printed(sandboxed_run, "future") == "ValueError"
    assert printed(sandboxed_run, "validation") == "RuntimeError"


def test_the_judge_refuses_a_request_for_a_later_mega_batch(run):
    sandboxed_run = run("""
        from leaderboard.sandbox.channel import Message

        class Asking(Learner):
            def before(self, observation):
                self.env.channel.send(Message("megabatch", {"tick": 3}))

        def make_agent(env):
            return Asking(env)
        """)
    assert "mega-batch 3 was requested when only 1 had arrived" in sandboxed_run.failure
    assert len(sandboxed_run.ledger) == 1


def test_a_second_answer_at_one_tick_ends_the_run(run):
    sandboxed_run = run("""
        class Trying(Learner):
            def before(self, observation):
                for _ in range(3):
                    answered = self.env._answer(1, self.predictor, self.env._episode.deployed, None, {})
                    print("error:", answered.answer.error, flush=True)

        def make_agent(env):
            return Trying(env)
        """)
    assert "a second predictor was sent after the first was scored" in sandboxed_run.failure


TRAINS_ELSEWHERE = {
    "in another thread": """
        import threading

        class Elsewhere(Learner):
            def observe(self, observation):
                thread = threading.Thread(target=super().observe, args=(observation,))
                thread.start()
                thread.join()
                return self.predictor
        """,
    "in NumPy": """
        class Elsewhere(Learner):
            def observe(self, observation):
                x, y = observation["train"]["x"].reshape(-1, 64) / 16, observation["train"]["y"]
                weights = np.linalg.lstsq(x, np.eye(10)[y], rcond=None)[0]
                with torch.no_grad():
                    self.predictor.layer.weight.copy_(torch.from_numpy(weights.T.astype("float32")))
                return self.predictor
        """,
    "with the dispatch mode disabled": """
        from torch.utils._python_dispatch import _disable_current_modes

        class Elsewhere(Learner):
            def observe(self, observation):
                with _disable_current_modes():
                    return super().observe(observation)
        """,
}


@pytest.mark.parametrize("where", TRAINS_ELSEWHERE)
def test_training_outside_the_meter_is_refused_and_flagged_if_the_refusal_is_patched(run, where):
    source = "import numpy as np\n" + textwrap.dedent(TRAINS_ELSEWHERE[where])
    ending = "\ndef make_agent(env):\n    return Elsewhere(env)\n"
    refused = run(source + ending)
    assert "UnmeteredTrainingError" in refused.failure

    patch = "\nimport alma_env.env\nalma_env.env.require_metered = lambda *arguments: None\n"
    flagged = run(source + patch + ending)
    assert flagged.failure is None
    assert flagged.ledger.score().comp == 0
    assert codes(flagged) == {"free-training", "known-before"}


def test_a_submission_has_no_data_at_import(run):
    sandboxed_run = run("""
        from sklearn.datasets import load_digits
        x, y = load_digits(return_X_y=True)
        """)
    assert "FileNotFoundError" in sandboxed_run.failure
    assert len(sandboxed_run.ledger) == 0


def test_patched_numbers_stay_in_the_sandbox(run):
    sandboxed_run = run("""
        import time, alma_env.env, alma_env.scoring.evaluation
        import torch

        time.perf_counter = lambda: 0.0
        alma_env.scoring.evaluation.answer = lambda *arguments, **others: alma_env.scoring.evaluation.Answer(0.0, 0.0)

        class Lying(Learner):
            def observe(self, observation):
                predictor = super().observe(observation)
                for row in self.env.ledger.rows:
                    object.__setattr__(row, "error", 0.0)
                    object.__setattr__(row, "parameters", 0)
                return predictor

        def make_agent(env):
            return Lying(env)
        """)
    assert sandboxed_run.failure is None
    assert all(row.error > 0.05 and row.parameters == 650 for row in sandboxed_run.ledger)
    assert all(row.seconds > 0 for row in sandboxed_run.ledger)


UNTRACED = "cannot be written as a program"
PREDICTORS = {  # code, and the logits or the failure that it must give
    "that reads a file when it answers": (
        "return x.flatten(1)[:, :10] / len(open('/submission/agent.py').read())",
        lambda x: x.flatten(1)[:, :10],
    ),
    "that connects to the network": (
        "import socket; socket.create_connection(('1.1.1.1', 53), timeout=1); return x",
        UNTRACED,
    ),
    "that reads the environment variables": (
        "import os; return x.flatten(1)[:, :10] + float(os.environ['ALMA_ANSWERS'])",
        UNTRACED,
    ),
    "that detects the export": (
        """
        import torch
        if torch.compiler.is_exporting():
            return torch.zeros(x.shape[0], 10) + self.layer.weight.sum() * 0
        return self.layer(x.flatten(1) / 16)""",
        lambda x: torch.zeros(len(x), 10),
    ),
    "that counts its forward passes": (
        """
        self.passes = getattr(self, "passes", 0) + 1
        return self.layer(x.flatten(1) / 16) * (1.5 - self.passes % 2)""",
        None,  # the same at every tick
    ),
}


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_a_predictor_is_scored_as_its_traced_program(run, env, predictor):
    code, expected = PREDICTORS[predictor]
    forward = textwrap.indent(textwrap.dedent(code).strip(), " " * 8)
    sandboxed_run = run(f"""
class Sly(Small):
    def forward(self, x):
{forward}

class Slyly(Learner):
    def __init__(self, env):
        super().__init__(env)
        self.predictor = Sly()

    def observe(self, observation):
        return self.predictor

def make_agent(env):
    return Slyly(env)
""")
    if isinstance(expected, str):
        assert expected in sandboxed_run.failure
    else:
        assert sandboxed_run.failure is None
        x, y = (torch.from_numpy(array.copy()) for array in (env.data.test_x, env.data.test_y))
        error = float((expected(x).argmax(1) != y).double().mean()) if expected else sandboxed_run.ledger[0].error
        assert [row.error for row in sandboxed_run.ledger] == [error] * 4


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


@pytest.mark.parametrize("program", MALFORMED)
def test_a_malformed_program_is_refused(run, program):
    graph, tensors = MALFORMED[program]
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


GREEDY = {
    "an endless loop": ("while True: pass", Limits(wall_seconds=30)),
    "a fork bomb": ("import os\nwhile True:\n    os.fork()", Limits(wall_seconds=30, processes=64)),
    "100 GB of memory": ("keep = torch.ones(25 * 2**30)", Limits(wall_seconds=60, memory=2 * 2**30)),
    "an endless file": (
        "with open('/scratch/x', 'wb') as f:\n    while True: f.write(bytes(2**24))",
        Limits(wall_seconds=60, scratch=2**26),
    ),
    "an exception": ("raise ValueError('no more')", Limits(wall_seconds=60)),
    "an exit": ("import os\nos._exit(0)", Limits(wall_seconds=60)),
    "NaN": ("self.predictor.layer.weight.data.fill_(float('nan'))", Limits(wall_seconds=60)),
}


@pytest.mark.parametrize("use", GREEDY)
def test_excessive_use_of_resources_ends_only_the_run(run, use, groups):
    code, limits = GREEDY[use]
    body = textwrap.indent(code, " " * 12)
    sandboxed_run = run(
        f"""
class Greedy(Learner):
    def before(self, observation):
        if self.env.tick == 1:
{body}

def make_agent(env):
    return Greedy(env)
""",
        limits=limits,
    )
    assert sandboxed_run.failure is not None
    assert 1 <= len(sandboxed_run.ledger) <= 3
    assert "failed" in codes(sandboxed_run)
    assert not [folder for group in groups for folder in group.folders if folder.exists()]


def test_only_a_part_of_a_long_output_is_kept(run):
    sandboxed_run = run("""
        class Loud(Learner):
            def before(self, observation):
                for _ in range(300):
                    print("x" * 2**20)

        def make_agent(env):
            return Loud(env)
        """)
    assert sandboxed_run.failure is None
    assert len(sandboxed_run.output) < 2**20
    assert "bytes left out" in sandboxed_run.output


def test_weights_in_buffers_are_flagged(run):
    sandboxed_run = run("""
        class Hidden(Small):
            def __init__(self):
                super().__init__()
                self.register_buffer("weights", torch.randn(640, 10) * 1e-3)

            def forward(self, x):
                return super().forward(x) + (x.flatten(1).repeat(1, 10) / 16) @ self.weights

        class Hiding(Learner):
            def __init__(self, env):
                super().__init__(env)
                self.predictor = Hidden()

        def make_agent(env):
            return Hiding(env)
        """)
    assert sandboxed_run.failure is None
    assert codes(sandboxed_run) == {"buffers"}


def test_a_claimed_ledger_that_differs_from_the_verified_one_is_flagged(run, env):
    sandboxed_run = run("")
    honest = sandboxed_run.ledger
    assert audit.claim_findings({0: honest}, {0: honest}) == []
    rows = [row.__class__(**{**vars(row), "error": row.error / 2}) for row in honest]
    better = honest.__class__(rows)
    (finding,) = audit.claim_findings({0: better, 7: better}, {0: honest})
    assert finding.code == "claim"
    assert "claims cer" in finding.text
    assert np.isclose(better.score().cer, honest.score().cer / 2)


def test_without_isolation_a_run_needs_explicit_permission(env, tmp_path, monkeypatch):
    (tmp_path / "agent.py").write_text(textwrap.dedent(HONEST))
    monkeypatch.setattr(sandbox, "level_here", lambda: sandbox.LIMITED)
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(sandbox.SandboxError, match="no isolation on this machine"):
        run_sandboxed(env, Path(tmp_path), 0)
    assert os.listdir("/proc/self/fd") == descriptors
    sandboxed_run = run_sandboxed(env, Path(tmp_path), 0, Limits(wall_seconds=120), allow_limited=True)
    assert sandboxed_run.level == "limited"
    assert sandboxed_run.failure is None
