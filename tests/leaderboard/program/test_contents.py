"""What a program contains, derived from its shapes, is what its module costs and holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import agents
import alma_env
from agents.networks.mlp_vgg import VGG19
from alma_env.scoring.evaluation import freeze, run
from alma_env.scoring.tasks import Classification
from leaderboard.errors import ProgramError
from leaderboard.program.contents import contents, graph_scalars, literal_scalars
from leaderboard.program.export import export
from leaderboard.program.graph import read, read_structure
from leaderboard.program.tensor_header import read_header

from ..hand_written_programs import FLAT, LINEAR, of, program


def contents_of(graph, tensors, *, examples=397, batch_size=150):
    return contents(read_structure(graph, tensors), (1, 8, 8), torch.uint8, examples, batch_size)


@pytest.mark.parametrize("method", ["sm", "ens", "umix", "gens", "gmoe", "moe"])
def test_the_costs_of_the_methods_are_those_of_their_modules(method):
    env = alma_env.make("Digits-ALMA-v0")
    grows = {"growth": "every"} if method in ("gens", "gmoe") else {}
    agent = agents.make(method, env, width=6, epochs=1, wait=1, seed=0, **grows)
    observation, _ = env.reset(seed=0, options={"predictor": agent.predictor})
    for _ in range(3):
        with env.meter:
            predictor = agent.observe(observation)
        observation, *_ = env.step(predictor)
    exported, _ = export(agent.predictor, env.data.train_x[:2])
    found = contents_of(exported.graph_bytes(), exported.tensor_bytes())
    x, y = env.data.test_x, env.data.test_y
    _, flops, steady = run(freeze(agent.predictor), x, y, task=env.data.task, batch_size=150)
    assert (found.flops, not found.data_dependent) == (flops, steady)
    assert (found.parameters, found.buffers) == (exported.parameters, exported.buffers)
    assert found.hidden["constants"] == 0
    assert sum(found.hidden.values()) < 10
    assert found.graph < 200


def test_the_costs_of_a_convolutional_network_are_those_of_its_module():
    network = nn.Sequential(Scale(), VGG19(2, 10, generator=torch.Generator().manual_seed(0)))
    x = torch.randint(0, 256, (9, 3, 32, 32), dtype=torch.uint8).numpy()
    exported, _ = export(network, x[:2])
    structure = read_structure(exported.graph_bytes(), exported.tensor_bytes())
    found = contents(structure, (3, 32, 32), torch.uint8, 9, 4)
    task = Classification(10)
    assert found.flops == run(freeze(network), x, np.zeros(9, np.int64), task=task, batch_size=4)[1]
    assert found.hidden["constants"] == 0


class Scale(nn.Module):
    def forward(self, x):
        return x / 255


def test_numbers_are_counted_by_their_bits():
    tensors = {
        "w": torch.zeros(64, 10),
        "wide": torch.zeros(5, dtype=torch.float64),
        "short": torch.zeros(6, dtype=torch.int8),
        "flags": torch.zeros(64, dtype=torch.bool),
    }
    kinds = {"w": "parameter", "wide": "parameter", "short": "parameter", "flags": "buffer"}
    found = contents_of(*program(tensors=tensors, kinds=kinds))
    assert found.parameters == 640 + 2 * 5 + 6
    assert (found.buffers, found.hidden["buffers"]) == (64, 2)


@pytest.mark.parametrize(
    ("number", "bits"),
    [(1.0, 0), (0.5, 0), (255, 0), (-256, 0), (2**40, 0), (511, 1), (0.1, 44), (2**62 - 1, 54), (float("inf"), 0)],
)
def test_literals_count_by_the_bits_that_plain_layers_do_not_need(number, bits):
    value = {"float": "inf"} if number == float("inf") else number
    nodes = [*LINEAR, *[[f"n{i}", "aten.mul.Scalar", [of("logits"), value], {}] for i in range(32)]]
    structure = read(*program(nodes))
    assert literal_scalars(structure) == bits


def test_equal_parts_of_a_graph_count_once():
    """A graph of 500 equal parts holds hardly more than one of 50, and one with 500 random arguments holds them."""

    def of_parts(scales):
        nodes, last = [*LINEAR], "logits"
        for i, scale in enumerate(scales):
            nodes.append([f"part{i}", "aten.mul.Scalar", [of(last), scale], {}])
            last = f"part{i}"
        return graph_scalars(read(*program(nodes, output=last)))

    few, many = of_parts([0.5] * 50), of_parts([0.5] * 500)
    assert many < few + 25
    assert of_parts(np.random.default_rng(0).integers(0, 256, 500).tolist()) > many + 500 / 4


def test_a_constant_counts_only_where_it_meets_the_input():
    """Intermediate results of a table, and views and copies of stored tensors, are not counted."""

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x):
            angle = torch.arange(64) / 10
            table = torch.stack([angle.sin(), angle.cos()]).sum(0)
            return x.flatten(1) / 16 * table @ self.layer.weight.t().contiguous() + self.layer.bias

    exported, _ = export(Positions(), np.zeros((2, 1, 8, 8), np.uint8))
    assert contents_of(exported.graph_bytes(), exported.tensor_bytes()).hidden["constants"] == 64


def test_a_program_whose_shapes_depend_on_values_is_refused():
    value = [
        ["whole", "aten.to.dtype", [of("flat"), {"dtype": "int64"}], {}],
        ["first", "aten.select.int", [of("whole"), 0, 0], {}],
        ["pixel", "aten.select.int", [of("first"), 0, 2], {}],
        ["value", "aten.item.default", [of("pixel")], {}],
        ["logits", "aten.new_zeros.default", [of("real"), [of("value"), 10]], {}],
    ]
    with pytest.raises(ProgramError, match="cannot be derived from shapes"):
        contents_of(*program([*FLAT, *value]))


def test_lists_of_results_are_limited():
    nodes = [["long", "aten.new_zeros.default", [of("real"), [2**16]], {}]]
    nodes += [[f"parts_{i}", "aten.unbind.int", [of("long")], {}] for i in range(3)]
    nodes += [["logits", "aten.new_zeros.default", [of("real"), [4, 10]], {}]]
    with pytest.raises(
        ProgramError, match="node 'parts_1' .*65,536 tensors, the program has more than 131,072 results"
    ):
        contents_of(*program([*FLAT, *nodes]))


WHOLE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def with_header(header):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    "tensors",
    [
        b"",
        b"\xff" * 8,
        *map(with_header, ([], None, {"w": []}, {"w": {}}, {"w": {"dtype": "F32", "shape": [2]}})),
        *(with_header({"w": WHOLE | {"shape": shape}}) for shape in ([3], [-1], [-2], [2.0], [0.5], [2**40], 2)),
        *(with_header({"w": WHOLE | {"data_offsets": offsets}}) for offsets in ([4, 12], [0, 9], [8, 0])),
        with_header({"w": WHOLE | {"dtype": "C64", "shape": [1]}}),
        (2**23 + 1).to_bytes(8, "little") + bytes(2**23 + 1),
    ],
)
def test_a_header_that_is_malformed_or_does_not_fit_its_bytes_is_refused(tensors):
    with pytest.raises(
        ProgramError,
        match="the tensors cannot be read|a tensor of dtype C64|a header of 8,388,609 bytes: must have at most",
    ):
        read_header(tensors)


def test_a_header_gives_the_size_of_its_tensors():
    assert read_header(with_header({"w": WHOLE}))["w"].numel == 2
