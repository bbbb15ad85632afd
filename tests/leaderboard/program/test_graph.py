"""A program, exported, read and run, gives the outputs of its module to the last bit."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import agents
import alma_env
from agents.networks.mlp_vgg import VGG19
from alma_env.scoring.evaluation import answer, freeze, run
from alma_env.scoring.fingerprint import fingerprint
from alma_env.scoring.tasks import Classification
from leaderboard.errors import ProgramError
from leaderboard.program.export import Exporter, export
from leaderboard.program.graph import read
from leaderboard.program.interpreter import ProgramModule

from ..hand_written_programs import program


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1) / 16)


MEAN = 0.0


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1) - MEAN)


@pytest.fixture(scope="module")
def env():
    return alma_env.make("Digits-ALMA-v0")


@pytest.fixture(scope="module")
def small(env):
    return export(Small(), env.data.train_x[:2])[0]


def through_bytes(program):
    return read(program.graph_bytes(), program.tensor_bytes())


@pytest.mark.parametrize("method", ["sm", "ens", "umix", "gens", "gmoe", "moe", "gens-moe"])
def test_a_program_gives_the_logits_of_its_predictor_to_the_last_bit(env, method):
    grows = {"growth": "every"} if method in ("gens", "gmoe", "gens-moe") else {}
    agent = agents.make(method, env, width=6, epochs=1, wait=1, seed=0, **grows)
    observation, _ = env.reset(seed=0, options={"predictor": agent.predictor})
    for _ in range(3):  # enough ticks for a growth step
        with env.meter:
            predictor = agent.observe(observation)
        observation, *_ = env.step(predictor)
    program = through_bytes(export(agent.predictor, env.data.train_x[:2])[0])
    mark = fingerprint(agent.predictor)
    assert (program.parameters, program.buffers) == (mark.parameters, mark.buffers)
    # Several batches; the last one is smaller.
    given = {"task": env.data.task, "batch_size": 150}
    x, y = env.data.test_x, env.data.test_y
    of_module = run(freeze(agent.predictor), x, y, **given)
    of_program = run(freeze(ProgramModule(program)), x, y, **given)
    assert torch.equal(of_module[0], of_program[0])
    assert of_module[1:] == of_program[1:]


def test_the_program_of_a_convolutional_network_gives_equal_logits_and_flops():
    network = VGG19(2, 10, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(Scale(), network)
    x = torch.randint(0, 256, (9, 3, 32, 32), dtype=torch.uint8).numpy()
    program = through_bytes(export(model, x[:2])[0])
    y, task = np.zeros(9, np.int64), Classification(10)
    of_module = run(freeze(model), x, y, task=task, batch_size=4)
    of_program = run(freeze(ProgramModule(program)), x, y, task=task, batch_size=4)
    assert torch.equal(of_module[0], of_program[0])
    assert of_module[1] == of_program[1]


class Scale(nn.Module):
    def forward(self, x):
        return x / 255


def test_a_structure_is_traced_once_and_its_tensors_are_current(env, monkeypatch):
    exporter = Exporter(env.data.train_x[:2])
    model = Small()
    first = exporter.program(model, fingerprint(model))
    with torch.no_grad():
        model.layer.weight.add_(1)
    monkeypatch.setattr(torch.export, "export", None)  # a second trace raises
    second = exporter.program(model, fingerprint(model))
    assert second.graph_bytes() == first.graph_bytes()
    given = {"task": env.data.task, "batch_size": 500}
    x, y = env.data.test_x, env.data.test_y
    assert answer(freeze(ProgramModule(second)), x, y, **given) == answer(freeze(model), x, y, **given)
    with pytest.raises(ProgramError, match="cannot be written as a program"):
        exporter.program(nn.Sequential(Small()), fingerprint(nn.Sequential(Small())))


def test_tied_parameters_are_stored_once(env):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
            self.b.weight = self.a.weight
            self.unused = nn.Parameter(torch.zeros(5))

        def forward(self, x):
            return self.b(self.a(x.flatten(1) / 16))[:, :10]

    model = Tied()
    program = through_bytes(export(model, env.data.train_x[:2])[0])
    assert program.parameters == fingerprint(model).parameters == 64 * 64 + 5
    x = torch.from_numpy(env.data.test_x[:7].copy())
    assert torch.equal(ProgramModule(program)(x), freeze(model)(x))


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: self.layer(x.flatten(1) / 16) if x.sum() > 0 else x, "cannot be written as a program"),
        (lambda self, x: torch.from_numpy(x.numpy()), "cannot be written as a program"),
        (lambda self, x: (self.layer(x.flatten(1) / 16),) * 2, "one tensor of logits"),
    ],
)
def test_export_refuses_a_module_that_cannot_be_a_program(env, forward, message):
    model = type("Odd", (Small,), {"forward": forward})()
    with pytest.raises(ProgramError, match=message):
        export(model, env.data.train_x[:2])


@settings(max_examples=200)
@given(graph=st.binary(max_size=300), tensors=st.binary(max_size=300))
def test_random_bytes_raise_a_program_error(graph, tensors):
    with pytest.raises(ProgramError):
        read(graph, tensors)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300)
@given(data=st.data())
def test_a_graph_with_any_value_anywhere_runs_or_raises_a_program_error(small, data):
    graph = json.loads(small.graph_bytes())
    place, key = graph, data.draw(st.sampled_from(sorted(graph)))
    for _ in range(data.draw(st.integers(0, 4))):
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        place = inner
        key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
    place[key] = data.draw(json_values)
    try:
        module = ProgramModule(read(json.dumps(graph).encode(), small.tensor_bytes()))
        module(torch.zeros(3, 1, 8, 8, dtype=torch.uint8))
    except ProgramError:
        pass


def test_a_pickle_is_not_loaded(small, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path / "exploded").touch, ()

    for graph, tensors in ((pickle.dumps(Bomb()), small.tensor_bytes()), (small.graph_bytes(), pickle.dumps(Bomb()))):
        with pytest.raises(ProgramError):
            read(graph, tensors)
    assert not (tmp_path / "exploded").exists()


def test_a_program_that_changes_its_own_tensors_is_refused(small):
    graph = json.loads(small.graph_bytes())
    weight = next(name for name in graph["tensors"] if "weight" in name)
    graph["nodes"].append(["zeroed", "aten.zero_.default", [{"of": weight}], {}])
    module = ProgramModule(read(json.dumps(graph).encode(), small.tensor_bytes()))
    with pytest.raises(ProgramError, match="changes the program's own tensors"):
        module(torch.zeros(3, 1, 8, 8, dtype=torch.uint8))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16])
def test_tensors_of_unusual_dtypes_are_refused(dtype):
    graph, tensors = program(tensors={"w": torch.zeros(64, 10), "odd": torch.zeros(4).to(dtype)})
    with pytest.raises(ProgramError, match="tensor 'odd'"):
        read(graph, tensors)


def test_a_program_has_the_numbers_that_the_code_reads_now(env, monkeypatch):
    predictor, exporter = Centred(), Exporter(env.data.train_x[:2])
    first = exporter.program(predictor, fingerprint(predictor))
    assert exporter.program(predictor, fingerprint(predictor)).nodes is first.nodes  # not traced again
    monkeypatch.setitem(globals(), "MEAN", 4.9)
    x = torch.from_numpy(env.data.test_x)
    program = exporter.program(predictor, fingerprint(predictor))
    assert torch.equal(ProgramModule(program)(x), freeze(predictor)(x))


def test_a_wrapper_that_passes_its_inputs_on_is_exported(env):
    average = torch.optim.swa_utils.AveragedModel(Centred())
    program, _ = export(average, env.data.train_x[:2])
    x = torch.from_numpy(env.data.test_x)
    assert torch.equal(ProgramModule(program)(x), freeze(average)(x))
