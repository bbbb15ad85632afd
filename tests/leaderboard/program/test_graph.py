"""Predictors as data: written, read and run, to the last bit."""

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
from agents.networks import VGG19
from alma_env.predictor import answer, fingerprint, freeze, run
from alma_env.tasks import Classification
from leaderboard.exporting import Exporter, export
from leaderboard.interpreter import ProgramModule
from leaderboard.program import ProgramError, operation, read


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1) / 16)


@pytest.fixture(scope="module")
def env():
    return alma_env.make("Digits-ALMA-v0")


@pytest.fixture(scope="module")
def small(env):
    return export(Small(), env.data.train_x[:2])


def through_bytes(program):
    return read(program.graph_bytes(), program.tensor_bytes())


@pytest.mark.parametrize("method", ["sm", "ens", "umix", "gens", "gmoe", "moe", "gens-moe"])
def test_a_predictor_answers_as_its_program_does_to_the_last_bit(env, method):
    grows = {"growth": "every"} if method in ("gens", "gmoe", "gens-moe") else {}
    agent = agents.make(method, env, width=6, epochs=1, wait=1, seed=0, **grows)
    observation, _ = env.reset(seed=0, options={"predictor": agent.predictor})
    for _ in range(3):  # those that grow have grown
        with env.meter:
            predictor = agent.observe(observation)
        observation, *_ = env.step(predictor)
    program = through_bytes(export(agent.predictor, env.data.train_x[:2]))
    mark = fingerprint(agent.predictor)
    assert (program.parameters, program.buffers) == (mark.parameters, mark.buffers)
    # Some batches, and a last one of another size.
    given = {"task": env.data.task, "batch_size": 150}
    x, y = env.data.test_x, env.data.test_y
    mine = run(freeze(agent.predictor), x, y, **given)
    theirs = run(freeze(ProgramModule(program)), x, y, **given)
    assert torch.equal(mine[0], theirs[0])
    assert mine[1:] == theirs[1:]


def test_a_network_of_convolutions_answers_alike():
    network = VGG19(2, 10, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(Scale(), network)
    x = torch.randint(0, 256, (9, 3, 32, 32), dtype=torch.uint8).numpy()
    program = through_bytes(export(model, x[:2]))
    y, task = np.zeros(9, np.int64), Classification(10)
    mine = run(freeze(model), x, y, task=task, batch_size=4)
    theirs = run(freeze(ProgramModule(program)), x, y, task=task, batch_size=4)
    assert torch.equal(mine[0], theirs[0])
    assert mine[1] == theirs[1]


class Scale(nn.Module):
    def forward(self, x):
        return x / 255


def test_a_structure_is_traced_once_and_its_tensors_are_those_of_now(env, monkeypatch):
    exporter = Exporter(env.data.train_x[:2])
    model = Small()
    first = exporter.program(model, fingerprint(model))
    with torch.no_grad():
        model.layer.weight.add_(1)
    monkeypatch.setattr(torch.export, "export", None)  # would raise
    second = exporter.program(model, fingerprint(model))
    assert second.graph_bytes() == first.graph_bytes()
    given = {"task": env.data.task, "batch_size": 500}
    x, y = env.data.test_x, env.data.test_y
    assert answer(freeze(ProgramModule(second)), x, y, **given) == answer(freeze(model), x, y, **given)
    with pytest.raises(ProgramError, match="cannot be written as a program"):
        exporter.program(nn.Sequential(Small()), fingerprint(nn.Sequential(Small())))


def test_tied_parameters_cross_once(env):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
            self.b.weight = self.a.weight
            self.unused = nn.Parameter(torch.zeros(5))

        def forward(self, x):
            return self.b(self.a(x.flatten(1) / 16))[:, :10]

    model = Tied()
    program = through_bytes(export(model, env.data.train_x[:2]))
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
def test_what_is_no_program_is_refused_where_its_author_sees_it(env, forward, message):
    model = type("Odd", (Small,), {"forward": forward})()
    with pytest.raises(ProgramError, match=message):
        export(model, env.data.train_x[:2])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("builtins.eval", "only ATen's operations"),
        ("aten.from_file.default", "reads a file"),
        ("aten.set_.source_Storage", "exchanges the memory"),
        ("aten.nothing_like_this.default", "has none of this name"),
        ("aten.linalg_eig.default", "its cost is unknown"),
        ("aten.__class__.default", "has none of this name"),
        ("operator.attrgetter", "only ATen's operations"),
    ],
)
def test_an_operation_beyond_the_table_is_refused(target, message):
    with pytest.raises(ProgramError, match=message):
        operation(target)


@settings(max_examples=200, deadline=None)
@given(graph=st.binary(max_size=300), tensors=st.binary(max_size=300))
def test_any_bytes_are_a_program_or_are_refused(graph, tensors):
    with pytest.raises(ProgramError):
        read(graph, tensors)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_part_of_a_graph_may_be_anything(small, data):
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


def test_a_pickle_is_not_opened(small, tmp_path):
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
    with pytest.raises(ProgramError, match="changes its own tensors"):
        module(torch.zeros(3, 1, 8, 8, dtype=torch.uint8))
