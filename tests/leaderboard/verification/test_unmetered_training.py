"""More cheaters, each against the one part that has to stop it: programs, evaluator, judge, audit, sandbox."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import textwrap
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch import nn

import alma_env
from alma_env import Ledger, Row
from alma_env.errors import UnmeteredTrainingError
from alma_env.meter import Meter
from leaderboard import audit, cgroups, check, sandbox, wire
from leaderboard.evaluator import UNSCORABLE, Evaluator, serve
from leaderboard.exporting import export
from leaderboard.judge import EvaluatorError, Judge, Observed, RunFailedError
from leaderboard.package import Package
from leaderboard.play import Played
from leaderboard.program import ProgramError, operation, read
from leaderboard.sandbox import ISOLATED, Limits, level_here, sandboxed
from leaderboard.wire import Channel, Message, WireError


@pytest.fixture(scope="module")
def env():
    return alma_env.make("Digits-ALMA-v0", ticks=3)


@pytest.fixture
def evaluator(env):
    return Evaluator(env.data.test_x, 10, 100)


def of(name):
    return {"of": name}


FLAT = [
    ["flat", "aten.flatten.using_ints", [of("x"), 1], {}],
    ["real", "aten._to_copy.default", [of("flat")], {"dtype": {"dtype": "float32"}}],
]
LINEAR = [*FLAT, ["logits", "aten.mm.default", [of("real"), of("w")], {}]]


def program(nodes=LINEAR, tensors=None, kinds=None, output="logits"):
    """As a cheater writes one who does not need `torch.export`."""
    tensors = {"w": torch.eye(64)[:, :10].contiguous()} if tensors is None else tensors
    kinds = dict.fromkeys(tensors, "parameter") if kinds is None else kinds
    graph = {"version": 1, "input": "x", "tensors": kinds, "aliases": {}, "nodes": nodes, "output": output}
    return json.dumps(graph).encode(), save(tensors)


# Programs


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("aten.set_data.default", "exchanges the memory"),
        ("aten.data.default", "exchanges the memory"),
        ("aten._resize_output_.default", "internal to PyTorch"),
        ("aten.empty.memory_format", "what was in memory before"),
        ("aten.new_empty_strided.default", "what was in memory before"),
        ("aten.fbgemm_linear_fp16_weight_fp32_activation.default", "where the meter does not see it"),
        ("aten.fbgemm_linear_int8_weight.default", "where the meter does not see it"),
        ("aten.quantized_lstm_cell.default", "where the meter does not see it"),
        ("aten.view.dtype", "reads numbers as others"),
        ("aten.tensor_split.tensor_indices_or_sections", "takes shapes from data"),
        ("aten._foreach_add.ScalarList", "internal to PyTorch"),
        ("aten._sparse_coo_tensor_unsafe.default", "layout of its own"),
        ("aten._backward.default", "internal to PyTorch"),
        ("aten.save.default", "TorchScript's"),
        ("aten.manual_seed.default", "TorchScript's"),
    ],
)
def test_an_operation_with_effects_or_costs_that_nobody_sees_is_refused(target, message):
    with pytest.raises(ProgramError, match=message):
        operation(target)


def test_every_operation_of_pytorch_is_allowed_or_refused():
    names = {
        f"aten.{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
    }
    allowed = 0
    for name in names:
        with contextlib.suppress(ProgramError):
            operation(name)
            allowed += 1
    assert 1000 < allowed < len(names)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16])
def test_numbers_of_an_unusual_kind_are_refused(dtype):
    graph, tensors = program(tensors={"w": torch.zeros(64, 10), "odd": torch.zeros(4).to(dtype)})
    with pytest.raises(ProgramError, match="tensor 'odd'"):
        read(graph, tensors)


def test_names_and_depths_that_an_evaluator_would_die_of_are_refused(evaluator):
    for name in ("training", "_parameters", "forward"):
        nodes = [*FLAT, ["logits", "aten.mm.default", [of("real"), of(name)], {}]]
        with pytest.raises(ProgramError, match="a module's own"):
            evaluator.answer(*program(nodes, {name: torch.zeros(64, 10)}))
    deep: list = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ProgramError, match="lists in lists"):
        evaluator.answer(*program([*LINEAR, ["deep", "aten.relu.default", [deep], {}]]))


# Evaluator


def test_an_error_on_the_test_inputs_does_not_tell_of_them(evaluator, env):
    pixel = [
        ["whole", "aten.to.dtype", [of("flat"), {"dtype": "int64"}], {}],
        ["row", "aten.select.int", [of("whole"), 0, 0], {}],
        ["pixel", "aten.select.int", [of("row"), 0, 2], {}],
        ["value", "aten.item.default", [of("pixel")], {}],
    ]
    secret = int(env.data.test_x[0].reshape(-1)[2])
    assert secret > 0
    by_text = ["logits", "aten.reshape.default", [of("w"), [of("value"), 7, 3]], {}]
    by_shape = ["logits", "aten.zeros.default", [[of("value"), 7, 3]], {}]
    texts = set()
    for last in (by_text, by_shape):
        with pytest.raises(ProgramError) as caught:
            evaluator.answer(*program([*FLAT, *pixel, last]))
        texts.add(str(caught.value))
    assert texts == {UNSCORABLE}


@pytest.mark.parametrize("target", ["aten.native_batch_norm.default", "aten.batch_norm.default"])
def test_a_program_that_keeps_statistics_of_the_test_set_is_refused(evaluator, target):
    more = [False] if "native" not in target else []
    norm = ["norm", target, [of("real"), None, None, of("mean"), of("var"), True, 1.0, 1e-5, *more], {}]
    tensors = {"w": torch.zeros(64, 10), "mean": torch.zeros(64), "var": torch.ones(64)}
    with pytest.raises(ProgramError) as caught:
        evaluator.answer(*program([*LINEAR, norm], tensors))
    assert "changed its own tensors" in str(caught.value.__cause__)


CENTRED = [
    ["mean", "aten.mean.dim", [of("real"), [0]], {}],
    ["centred", "aten.sub.Tensor", [of("real"), of("mean")], {}],
]


def test_answers_that_depend_on_their_batch_are_seen(evaluator):
    _, honest = evaluator.answer(*program())
    assert honest["mixed"] == 0
    nodes = [*FLAT, *CENTRED, ["logits", "aten.mm.default", [of("centred"), of("w")], {}]]
    _, transductive = evaluator.answer(*program(nodes))
    assert transductive["mixed"] > 0.5
    noise = [["noise", "aten.rand_like.default", [of("logits")], {}]]
    _, random = evaluator.answer(*program([*LINEAR, *noise], output="noise"))
    assert random["mixed"] > 0.5
    # A constant that drowns the differences in relative terms does not hide them.
    lifted = [*nodes, ["lifted", "aten.add.Scalar", [of("logits"), 1000.0], {}]]
    assert evaluator.answer(*program(lifted, output="lifted"))[1]["mixed"] > 0.5
    # Nor does an answer that leads by the same in every example.
    highest = ["highest", "aten.amax.default", [of("logits"), [1], True], {}]
    one_hot = [*nodes, highest, ["first", "aten.ge.Tensor", [of("logits"), of("highest")], {}]]
    one_hot += [["same", "aten.mul.Scalar", [of("first"), 1.0], {}]]
    assert evaluator.answer(*program(one_hot, output="same"))[1]["mixed"] > 0.05


def test_a_product_of_free_operations_is_seen(evaluator):
    nodes = [
        *FLAT,
        ["column", "aten.unsqueeze.default", [of("real"), 2], {}],
        ["products", "aten.mul.Tensor", [of("column"), of("w")], {}],
        ["logits", "aten.sum.dim_IntList", [of("products"), [1]], {}],
    ]
    logits, told = evaluator.answer(*program(nodes))
    counted, honest = evaluator.answer(*program())
    assert torch.allclose(logits, counted)
    assert (told["flops"], honest["flops"]) == (0, 1280)
    assert told["elements"] > 1280
    assert honest["elements"] < 3 * 64


def test_parameters_among_the_arguments_and_in_wide_numbers_are_counted(evaluator):
    numbers = [[f"n{i}", "aten.scalar_tensor.default", [i / 7], {}] for i in range(640)]
    stack = ["stack", "aten.stack.default", [[of(f"n{i}") for i in range(640)]], {}]
    view = ["hidden", "aten.view.default", [of("stack"), [64, 10]], {}]
    nodes = [*FLAT, *numbers, stack, view, ["logits", "aten.mm.default", [of("real"), of("hidden")], {}]]
    _, told = evaluator.answer(*program(nodes, {"w": torch.zeros(1)}))
    assert told["parameters"] == 1
    assert told["literals"] > 640
    _, told = evaluator.answer(*program(tensors={"w": torch.zeros(64, 10), "wide": torch.zeros(5, dtype=torch.int64)}))
    assert told["wide"] == 5


def test_logits_of_64_bits_are_not_rounded_on_their_way(env):
    """What differs in float64 alone would be a tie in float32, and the error another one than in a local run."""

    class Close(nn.Module):
        def forward(self, x):
            steps = torch.arange(10, dtype=torch.float64) * 1e-12
            return 1 + steps + x.flatten(1)[:, :1] * 0

    written = export(Close(), env.data.train_x[:2])

    def script(channel):
        channel.send(Message("answer", {}, [written.graph_bytes(), written.tensor_bytes()]))
        assert set(channel.receive().fields) == {"flops"}  # the error is the judge's
        entered = {"tick": 0, "flops": {}, "paper_flops": 0, "declared": [], "refused": False}
        channel.send(Message("enter", entered))

    rows = []
    judged(env, script, on_row=rows.append)
    assert [row.error for row in rows] == [np.mean(env.data.test_y != 9)]


# Judge


def judged(env, script, evaluate=serve, seconds=20.0, on_row=lambda row: None):
    """A judge between a contestant that follows a script, and an evaluator. Returns why it ended."""
    mine, theirs = wire.pair()
    judging, answering = wire.pair()
    wrong: list[BaseException] = []

    def contestant(channel):
        channel.receive()
        script(channel)

    def party(act, descriptors):
        channel = Channel(*descriptors)
        try:
            act(channel)
        except WireError:
            pass
        except BaseException as error:
            wrong.append(error)
        finally:
            channel.close()

    parties = [threading.Thread(target=party, args=pair) for pair in ((contestant, theirs), (evaluate, answering))]
    for thread in parties:
        thread.start()
    channels = Channel(*mine), Channel(*judging)
    judge = Judge(env, 0, *channels, deadline=time.monotonic() + seconds, on_row=on_row)
    try:
        with pytest.raises((RunFailedError, EvaluatorError)) as caught:
            judge.run()
    finally:
        for channel in channels:
            channel.close()
        for thread in parties:
            thread.join()
    if wrong:
        raise wrong[0]
    return caught.value


LOGITS = np.zeros((397, 10), np.float32)
TOLD = {"flops": 1.0, "elements": 1.0, "mixed": 0.0, "parameters": 1, "buffers": 0, "literals": 0, "wide": 0}


@pytest.mark.parametrize(
    ("fields", "blobs"),
    [
        ({}, []),
        ({}, [LOGITS.tobytes()]),
        ({"flops": float("nan")}, [LOGITS.tobytes()]),
        ({"flops": -1.0}, [LOGITS.tobytes()]),
        ({"parameters": -5}, [LOGITS.tobytes()]),
        ({"parameters": "none"}, [LOGITS.tobytes()]),
        ({"mixed": None}, [LOGITS.tobytes()]),
        ({"logits": {"dtype": "object", "shape": [397, 10]}}, [LOGITS.tobytes()]),
    ],
)
def test_an_evaluator_that_a_program_took_over_ends_the_run_and_nothing_else(env, fields, blobs):
    def lying(channel):
        channel.receive()
        channel.send(Message("ready"))
        channel.receive()
        given = {**TOLD, "logits": wire.described(LOGITS)} if fields or blobs == [] else {}
        channel.send(Message("answered", given | fields, blobs))

    failure = judged(env, lambda channel: channel.send(Message("answer", {}, program())), lying)
    assert isinstance(failure, RunFailedError)


def test_an_evaluator_that_does_not_start_is_not_the_submissions_fault(env):
    failure = judged(env, lambda channel: None, lambda channel: None)
    assert isinstance(failure, EvaluatorError)


def test_a_judge_takes_no_environment_with_a_budget_that_only_the_sandbox_would_keep():
    budgeted = alma_env.make("Digits-ALMA-v0", ticks=3, parameter_budget=100)
    with pytest.raises(ValueError, match="only the sandbox would keep"):
        Judge(budgeted, 0, None, None, deadline=0)


def test_who_never_stops_sending_does_not_keep_the_judge_beyond_the_deadline():
    (reading, here), (there, writing) = wire.pair()
    channel = Channel(reading, here)
    header = json.dumps(["megabatch", {}, []]).encode()
    os.write(writing, (len(header).to_bytes(8, "big") + header) * 10)
    assert channel.receive(deadline=time.monotonic() + 5).kind == "megabatch"
    with pytest.raises(WireError, match="took too long"):
        channel.receive(deadline=time.monotonic() - 1)
    for descriptor in (reading, here, there, writing):
        os.close(descriptor)


# Audit


def played(env, errors, *, flops=10_000, parameters=650, buffers=0, inference=1280.0, paper=None, **seen):
    rows, observed = [], []
    for tick, error in enumerate(errors):
        spent = {"training": flops} if tick and flops else {}
        said = sum(spent.values()) if paper is None else paper
        rows.append(Row(tick, error, parameters, buffers, inference, spent, said, (), "d", False, 1.0))
        observed.append(Observed(tick, 1.0, 1.0, True, parameters, parameters, sum(spent.values()), tick, **seen))
    return Played(0, Ledger(rows), tuple(observed), None, "", ISOLATED, None, guess=0.9, input_size=64)


def codes(run):
    return {finding.code for finding in audit.audit(run)}


HONEST = (0.93, 0.6, 0.5, 0.4)


def test_an_honest_run_has_no_finding(env):
    assert codes(played(env, HONEST, flops=30_000)) == set()


@pytest.mark.parametrize(
    ("errors", "more", "code"),
    [
        ((0.02, 0.02, 0.02, 0.02), {}, "known-before"),  # weights from the package, before any data
        ((0.93, 0.02, 0.02, 0.02), {"flops": 2 * 1280}, "known-before"),  # after one step on one example
        (HONEST, {"parameters": 0, "buffers": 650}, "buffers"),
        (HONEST, {"parameters": 325, "buffers": 325}, "buffers"),
        (HONEST, {"parameters": 10, "literals": 1500}, "buffers"),
        (HONEST, {"parameters": 650, "wide": 650}, "buffers"),
        (HONEST, {"inference": 0.0, "elements": 1350.0}, "free-inference"),
        (HONEST, {"mixed": 0.3}, "batch-dependent"),
        (HONEST, {"paper": 0}, "paper-flops"),
    ],
)
def test_what_no_honest_run_has_is_flagged(env, errors, more, code):
    assert code in codes(played(env, errors, **{"flops": 30_000} | more))


def test_minutes_of_computing_beside_the_meter_are_flagged(env):
    run = played(env, HONEST, flops=30_000)
    for seen in run.observed:
        seen.cpu_seconds = 20.0
    assert codes(run) == {"too-slow"}


# The environment's meter, which a submission meets first


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1) / 16)


def fit(module, observation):
    x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
    loss = nn.functional.cross_entropy(module(x), y)
    loss.backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= 0.1 * parameter.grad


def in_another_process(module, observation):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os.write(writing, save({name: t + 0.01 for name, t in module.state_dict().items()}))
        os._exit(0)
    os.waitpid(child, 0)
    from safetensors.torch import load

    module.load_state_dict(load(os.read(reading, 2**16)))
    os.close(reading)
    os.close(writing)


def when_it_is_deleted(module, observation):
    class Late:
        def __del__(self):
            thread = threading.Thread(target=fit, args=(module, observation))
            thread.start()
            thread.join()

    Late()


def with_the_meter_off(module, observation):
    pass  # below, outside of the block


@pytest.mark.parametrize("train", [in_another_process, when_it_is_deleted, with_the_meter_off])
def test_parameters_that_changed_beside_the_meter_are_refused(env, train):
    module = Small()
    observation, _ = env.reset(seed=0, options={"predictor": module})
    with env.meter:
        train(module, observation)
    if train is with_the_meter_off:
        fit(module, observation)
    with pytest.raises(UnmeteredTrainingError):
        env.step(module)


# Before anything runs


def test_sources_that_would_take_minutes_to_parse_are_not_parsed():
    fields = b"x = f'" + b"{x}" * 40_000 + b"'\n"
    began = time.process_time()
    files = {f"m{number}.py": fields for number in range(100)} | {"agent.py": b"def make_agent(env): pass\n"}
    report = check.check(Package(files))
    assert any("bytes of Python; at most" in error for error in report.errors)
    report = check.check(Package({"agent.py": b"def make_agent(env): pass\n" + fields * 2}))
    assert any("bytes of Python; at most" in error for error in report.errors)
    assert time.process_time() - began < 1


# Sandbox

isolated = pytest.mark.skipif(level_here() != ISOLATED, reason="bubblewrap is missing, or may not make namespaces")


@pytest.fixture
def inside(tmp_path):
    """Run some lines of Python in a sandbox; what they printed, and the exit status (None: the time was over)."""

    def go(code, limits=None, *, seconds=20.0, **more):
        script = tmp_path / "code"
        script.mkdir(exist_ok=True)
        (script / "code.py").write_text(textwrap.dedent(code))
        folder = {"/code": script} if level_here() == ISOLATED and not more.get("allow_limited") else {}
        word = "/code/code.py" if folder else str(script / "code.py")
        with open(tmp_path / "printed", "wb") as printed:
            run = f"exec(open({word!r}).read(), {{}})"
            with sandboxed(
                "timeit", ["-n1", "-r1", run], limits or Limits(), folders=folder, output=printed.fileno(), **more
            ) as box:
                try:
                    status = box.process.wait(seconds)
                except Exception:
                    status = None
        return (tmp_path / "printed").read_text(errors="replace"), status

    return go


@isolated
def test_nothing_of_the_machine_can_be_written_to(inside):
    said, status = inside("""
        for path in (
            "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/self/oom_score_adj",
            "/dev/new", "/new", "/code/new", "/usr/new", "/program/leaderboard/new",
        ):
            try:
                open(path, "ab").close()
                print("written:", path)
            except OSError:
                pass
        print("done")
        """)
    assert status == 0, said
    assert said.startswith("done")


@isolated
def test_what_is_scratch_is_small(inside):
    said, _ = inside(
        """
        for folder in ("/scratch", "/dev/shm", "/tmp"):
            try:
                with open(folder + "/large", "wb") as file:
                    for _ in range(64):
                        file.write(bytes(2**20))
                print("written:", folder)
            except OSError:
                pass
        print("done")
        """,
        Limits(scratch=2**25),
    )
    assert said.startswith("done")


@isolated
def test_there_are_no_user_namespaces_within(inside):
    if "--disable-userns" not in sandbox._namespaces():
        pytest.skip("bubblewrap before 0.8 cannot forbid them")
    said, _ = inside("""
        import subprocess
        print(subprocess.run(["unshare", "--user", "--map-root-user", "true"], capture_output=True).returncode != 0)
        """)
    assert said.startswith("True")


@isolated
def test_a_service_of_this_machine_is_not_in_reach(inside):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()  # it is there
        said, _ = inside(f"""
            import socket
            try:
                socket.create_connection(("127.0.0.1", {port}), timeout=5)
                print("reached")
            except OSError:
                print("not reached", socket.if_nameindex())
            """)
    assert said.startswith("not reached [(1, 'lo')]")


@isolated
@pytest.mark.parametrize("grouped", [True, False])
def test_memory_that_the_machine_has_is_not_given_beyond_the_limit(inside, grouped, monkeypatch):
    if not grouped:
        monkeypatch.setattr(sandbox, "control_group", lambda name, **limits: contextlib.nullcontext())
    code = """
        kept = []
        for _ in range(12):
            kept.append(b"1" * 2**26)
            print(len(kept), flush=True)
        """
    said, status = inside(code, Limits(memory=2**29))
    assert status != 0
    assert 1 <= len([line for line in said.splitlines() if line.isdigit()]) < 9
    said, status = inside(code, Limits(memory=2**31))
    assert status == 0, said


@isolated
@pytest.mark.parametrize("grouped", [True, False])
def test_there_are_few_processes(inside, grouped, monkeypatch):
    if not grouped and os.getuid() == 0:
        pytest.skip("only a control group limits the processes of root")
    if not grouped:
        monkeypatch.setattr(sandbox, "control_group", lambda name, **limits: contextlib.nullcontext())
    said, _ = inside(
        """
        import os, time
        made = 0
        try:
            for _ in range(100):
                if os.fork() == 0:
                    time.sleep(5)
                    os._exit(0)
                made += 1
        except OSError:
            pass
        print("made", made, flush=True)
        os._exit(0)
        """,
        Limits(processes=30),
    )
    assert 5 <= int(said.split()[1]) < 30


def test_a_machine_whose_groups_have_no_such_limits_has_no_group(tmp_path, monkeypatch):
    """Version 2 of control groups where memory and processes are not handed down."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    with cgroups.control_group("alma-test", memory=2**30, processes=10) as group:
        assert group is None
    assert not (tmp_path / "alma-test").exists()


def test_groups_of_workers_that_were_killed_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    old, young, other = (tmp_path / name for name in ("alma-old", "alma-young", "system.slice"))
    for folder in (old, young, other):
        folder.mkdir()
    for folder in (old, other):
        os.utime(folder, (0, 0))
    with cgroups.control_group("alma-test", memory=2**30, processes=10):
        assert [folder.exists() for folder in (old, young, other)] == [False, True, True]


@isolated
def test_cpu_time_ends(inside):
    _, status = inside("while True: pass", Limits(cpu_seconds=1))
    assert status not in (0, None)


@isolated
def test_data_of_streams_are_hidden_under_every_name_of_the_interpreter(tmp_path, monkeypatch):
    link = tmp_path / "environment"
    link.symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "prefix", str(link))
    base = tmp_path / "base"
    base.symlink_to(sys.base_prefix)
    monkeypatch.setattr(sys, "base_prefix", str(base))
    # A virtual environment's interpreter may be a link to either name.
    assert {str(base), os.path.realpath(base), str(link), os.path.realpath(link)} <= set(sandbox._interpreter())
    names = [str(folder) for folder in sandbox.hidden() if folder.parts[-2:] == ("datasets", "data")]
    assert any(name.startswith(str(link)) for name in names)
    assert all(os.path.isdir(name) for name in names)
    assert len({os.path.realpath(name) for name in names}) == 1


def alive(mark):
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and mark in (process / "cmdline").read_text():
                return True
    return False


@pytest.mark.parametrize("level", ["isolated", "limited"])
def test_no_process_survives_its_sandbox(inside, level, monkeypatch):
    if level != level_here() and level == ISOLATED:
        pytest.skip("bubblewrap is missing, or may not make namespaces")
    monkeypatch.setattr(sandbox, "level_here", lambda: level)
    mark = f"mark-{uuid.uuid4().hex}"
    groups = []
    real = sandbox.control_group

    @contextlib.contextmanager
    def recorded(name, **limits):
        with real(name, **limits) as group:
            groups.append(group)
            yield group

    monkeypatch.setattr(sandbox, "control_group", recorded)
    said, _ = inside(
        f"""
        import subprocess, sys
        sleeping = [sys.executable, "-c", "import time; time.sleep(60)", {mark!r}]
        subprocess.Popen(sleeping, start_new_session=True)
        print("left", flush=True)
        """,
        allow_limited=level != ISOLATED,
    )
    assert "left" in said
    if level != ISOLATED and groups == [None]:
        pytest.skip("without control groups, limits alone do not end what made itself a session of its own")
    assert not alive(mark)


def test_work_that_a_verified_run_divides_with_others_is_flagged(env):
    model = nn.Linear(64, 10)
    observation, _ = env.reset(seed=0)
    x = torch.from_numpy(observation["train"]["x"]).flatten(1).float()
    with alma_env.shared([env.meter, *(Meter() for _ in range(9))]) as shares:
        model(x).sum().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        shares.give(env.meter, nn.Sequential(nn.Flatten(), model))
    env.step(None)
    played = Played(0, env.ledger, (), None, "", ISOLATED, None)
    (found,) = audit._declared(played)
    assert (found.severity, found.code) == ("suspicious", "shared")
    assert "a part of work shared by 10 runs" in found.text
