"""Where a program may keep numbers that are not parameters."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from leaderboard.verification import audit

from ...hand_written_programs import FLAT, of, program
from .gallery import attack, case, codes
from .judged import deploy, exported, findings

WEIGHTS = torch.randn(640, generator=torch.Generator().manual_seed(0))
BYTES = (WEIGHTS * 40).clamp(-120, 120).round().int()  # each weight in 8 bits
LAST = ["logits", "aten.mm.default", [of("real"), of("hidden")], {}]


def in_shapes(read_as):
    """640 weights: the sizes of tensors without elements, or of tensors that cost one element."""
    tensors = {f"e{i}": torch.zeros([int(BYTES[i]) + 121, 0][: 1 + (read_as == "empty")]) for i in range(20)}
    sizes = [[f"s{i}", "aten.sym_size.int", [of(f"e{i}"), 0], {}] for i in range(20)]
    made = ["made", "aten.new_full.default", [of("real"), [64, 10], of("s0")], {}]
    return program([*FLAT, *sizes, made, ["logits", "aten.mm.default", [of("real"), of("made")], {}]], tensors)


def in_sizes_of_results():
    made = [
        ["zeros", "aten.new_zeros.default", [of("w"), [37]], {}],
        ["size", "aten.sym_size.int", [of("zeros"), 0], {}],
    ]
    full = ["hidden", "aten.new_full.default", [of("real"), [64, 10], of("size")], {}]
    return program([*FLAT, *made, full, LAST], {"w": torch.zeros(10)})


def stacked(nodes, names, tensors=None):
    """A program whose weights are stacked of 640 scalars."""
    stack = ["stack", "aten.stack.default", [[of(name) for name in names]], {}]
    view = ["hidden", "aten.view.default", [of("stack"), [64, 10]], {}]
    return program([*FLAT, *nodes, stack, view, LAST], tensors or {"one": torch.ones(())})


def out_of_one():
    """160 weights that additions make out of a single 1; each is used four times."""
    doubled = [["d0", "aten.clone.default", [of("one")], {}]]
    doubled += [[f"d{i}", "aten.add.Tensor", [of(f"d{i - 1}"), of(f"d{i - 1}")], {}] for i in range(1, 8)]
    nodes = []
    for i, value in enumerate(BYTES[:160].tolist()):
        last = "d0"
        for bit in range(7):
            if value >> bit & 1:
                nodes.append([f"w{i}_{bit}", "aten.add.Tensor", [of(last), of(f"d{bit}")], {}])
                last = f"w{i}_{bit}"
        nodes.append([f"w{i}", "aten.clone.default", [of(last)], {}])
    return stacked([*doubled, *nodes], [f"w{i % 160}" for i in range(640)])


def in_literals(values):
    nodes = [[f"w{i}", "aten.mul.Scalar", [of("one"), value], {}] for i, value in enumerate(values)]
    return stacked(nodes, [f"w{i % len(values)}" for i in range(640)])


def column_by_column(values):
    """Each weight multiplies a column of the input, so that no tensor of weights exists."""
    nodes, sums = [], []
    for k in range(10):
        terms = []
        for j in range(0, 64, 64 * 10 // len(values)):
            value = values[(k * 64 + j) * len(values) // 640]
            nodes += [
                [f"c{k}_{j}", "aten.select.int", [of("real"), 1, j], {}],
                [f"m{k}_{j}", "aten.mul.Scalar", [of(f"c{k}_{j}"), value], {}],
            ]
            if terms:
                nodes.append([f"a{k}_{j}", "aten.add.Tensor", [of(terms[-1]), of(f"m{k}_{j}")], {}])
            terms.append(f"a{k}_{j}" if terms else f"m{k}_{j}")
        sums.append(terms[-1])
    logits = ["logits", "aten.stack.default", [[of(name) for name in sums], 1], {}]
    return program([*FLAT, *nodes, logits], {"one": torch.ones(10)})


class Unpacking(nn.Module):
    """Weights of 8 bits, several in each number of a tensor."""

    def __init__(self, dtype, kind="parameter", pretend=False):
        super().__init__()
        self.each, self.pretend = dtype.itemsize, pretend
        packed = torch.from_numpy((BYTES.numpy() + 128).astype(np.uint8).view(f"i{self.each}").copy())
        if kind == "parameter":
            self.packed = nn.Parameter(packed, requires_grad=False)
        else:
            self.register_buffer("packed", packed)

    def forward(self, x):
        packed = self.packed
        if self.pretend:  # the weights depend on the input, by name
            packed = packed + (x.sum() * 0).to(packed.dtype)
        parts = [(packed >> (8 * i)) & 255 for i in range(self.each)]
        weights = (torch.stack(parts, 1).flatten().float() - 128) / 40
        return x.flatten(1) / 16 @ weights.view(64, 10)


class InMantissas(nn.Module):
    """Three weights of 8 bits in each float32."""

    def __init__(self):
        super().__init__()
        values = torch.cat([BYTES + 128, torch.zeros(2, dtype=torch.int32)]).view(-1, 3).double()
        self.packed = nn.Parameter((values @ torch.tensor([1.0, 256.0, 65536.0], dtype=torch.float64)).float())

    def forward(self, x):
        parts = [torch.floor(self.packed / 256**i) % 256 for i in range(3)]
        weights = torch.stack(parts, 1).flatten()[:640].view(64, 10) / 40
        return x.flatten(1) / 16 @ weights


class RandomFeatures(nn.Module):
    """A wide layer of fixed random weights, which the graph draws, and a small trained one."""

    def __init__(self):
        super().__init__()
        self.head = nn.Parameter(torch.randn(200, 10))

    def forward(self, x):
        return torch.relu(x.flatten(1) / 16 @ torch.randn(64, 200)) @ self.head


class Hashed(nn.Module):
    """640 weights made of 10 parameters by an index that the graph computes."""

    def __init__(self):
        super().__init__()
        self.few = nn.Parameter(torch.randn(10))

    def forward(self, x):
        place = torch.arange(640) * 7919 % 10
        return x.flatten(1) / 16 @ (self.few[place] * (torch.arange(640) % 3 - 1)).view(64, 10)


class InBits(nn.Module):
    """The bits of the weights, as truth values."""

    def __init__(self):
        super().__init__()
        bits = (BYTES[:, None] + 128) >> torch.arange(8) & 1
        self.register_buffer("bits", bits.bool())
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, x):
        weights = (self.bits * 2 ** torch.arange(8)).sum(1) - 128
        return x.flatten(1) / 16 @ weights.float().view(64, 10) * self.scale


class Filled(nn.Module):
    """160 weights that in-place operations write into zeros; each is used four times."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, x):
        weights = torch.zeros(160)
        for i, value in enumerate(BYTES.tolist()[:160]):
            weights[i].fill_(value / 40)
        return x.flatten(1) / 16 @ weights.repeat(4).view(64, 10) * self.scale


class ForEachExample(nn.Module):
    """Weights that are unpacked once for each example."""

    def __init__(self):
        super().__init__()
        self.packed = nn.Parameter((BYTES + 128).view(-1, 4).float() @ torch.tensor([1.0, 256.0, 65536.0, 0.0]))

    def forward(self, x):
        weights = (self.packed.expand(x.shape[0], 160) / 256).floor().repeat(1, 4)
        return (x.flatten(1).unsqueeze(1) / 16 @ weights.view(-1, 64, 10)).squeeze(1)


def only_for_the_test_set(pretend):
    """Weights that are unpacked only in batches of the test set's size, and may depend on the input by name."""
    packed = (BYTES + 128).view(-1, 4).float() @ torch.tensor([1.0, 256.0, 65536.0, 0.0])
    size = [["n", "aten.sym_size.int", [of("x"), 0], {}], ["whole", "operator.floordiv", [of("n"), 397], {}]]
    size += [["more", "operator.mul", [of("whole"), 639], {}], ["many", "operator.add", [of("more"), 1], {}]]
    nodes = [
        *FLAT,
        *size,
        ["place", "aten.arange.default", [of("many")], {}],
        ["word", "aten.floor_divide.Scalar", [of("place"), 4], {}],
        ["part", "aten.index_select.default", [of("packed"), 0, of("word")], {}],
        ["sum", "aten.sum.default", [of("real")], {}],
        ["nothing", "aten.mul.Scalar", [of("sum"), 0.0 if pretend else 1.0], {}],
        ["known", "aten.add.Tensor", [of("part"), of("nothing" if pretend else "one")], {}],
        ["short", "aten.remainder.Scalar", [of("known"), 256.0], {}],
        ["zeros", "aten.new_zeros.default", [of("packed"), [640]], {}],
        ["full", "aten.index_add.default", [of("zeros"), 0, of("place"), of("short")], {}],
        ["hidden", "aten.view.default", [of("full"), [64, 10]], {}],
        LAST,
    ]
    return program(nodes, {"packed": packed, "one": torch.ones(())})


MODULES = {
    "unpacks its weights once for each example": ForEachExample,
    "packs four weights into each 32-bit integer of a parameter": lambda: Unpacking(torch.int32),
    "packs eight weights into each 64-bit integer of a parameter": lambda: Unpacking(torch.int64),
    "packs two weights into each 16-bit integer of a buffer": lambda: Unpacking(torch.int16, "buffer"),
    "packs weights into integers and adds 0 · x, so that they depend on the input": lambda: Unpacking(
        torch.int32, pretend=True
    ),
    "packs three weights into the mantissa of each float": InMantissas,
    "draws a wide layer of fixed random weights in the graph": RandomFeatures,
    "makes 640 weights of 10 parameters by an index that the graph computes": Hashed,
    "keeps the bits of the weights as truth values": InBits,
    "writes the weights into zeros in place": Filled,
}


@pytest.mark.parametrize(
    "make", [case(f"a program that {does}", "finding `buffers`", make) for does, make in MODULES.items()]
)
def test_weights_outside_of_the_parameters_are_found(env, make):
    assert "buffers" in findings(env, exported(make(), env))


@pytest.mark.parametrize(
    "pretend",
    [
        case("a program that unpacks weights only in batches of the test set's size", "finding `buffers`", False),
        case("a program that does so, and adds 0 · x to them", "finding `buffers`", True),
    ],
)
def test_weights_that_are_made_for_one_batch_size_are_found(env, pretend):
    assert "buffers" in findings(env, only_for_the_test_set(pretend))


REFUSED = {
    "weights in the shapes of tensors without elements": (lambda: in_shapes("empty"), "must have elements"),
    "weights in the sizes of its own tensors": (lambda: in_shapes("sizes"), "not computed from the input"),
    "weights in the sizes of tensors that the graph makes": (in_sizes_of_results, "not computed from the input"),
    "a name twice in the header of the tensors": (lambda: twice(), "occurs twice"),
    "a tensor that is longer in its header than in its bytes": (lambda: longer(), "elements of F32"),
}


def twice():
    graph, tensors = program()
    length = int.from_bytes(tensors[:8], "little")
    header = tensors[8 : 8 + length].rstrip()
    header = header[:-1] + b"," + header[1:]
    return graph, len(header).to_bytes(8, "little") + header + tensors[8 + length :]


def longer():
    graph, tensors = program()
    return graph, tensors.replace(b"[64,10]", b"[64,11]")


@pytest.mark.parametrize(
    ("make", "reason"),
    [case(f"a program with {does}", "refused", make, reason) for does, (make, reason) in REFUSED.items()],
)
def test_programs_with_numbers_in_shapes_are_refused(env, make, reason):
    (found,) = findings(env, make())
    assert found.startswith("refused: ")
    assert reason in found


FOUND = {
    "makes its weights out of one 1 by additions": (out_of_one, {"buffers", "graph"}),
    "keeps its weights as literals of 64 bits": (
        lambda: in_literals(WEIGHTS.double().div(3).tolist()),
        {"buffers", "graph"},
    ),
    "keeps three weights in each integer literal of 64 bits": (
        lambda: in_literals([a + 256 * b + 65536 * c + 2**50 for a, b, c in (BYTES[:639] + 128).view(-1, 3).tolist()]),
        {"buffers", "graph"},
    ),
    "multiplies each column of the input by a literal of 8 bits": (
        lambda: column_by_column(BYTES[:320].tolist()),
        {"graph", "free-inference"},
    ),
}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        case(f"a program that {does}", " and ".join(f"finding `{code}`" for code in sorted(expected)), make, expected)
        for does, (make, expected) in FOUND.items()
    ],
)
def test_weights_in_the_graph_are_found(env, make, expected):
    assert expected <= findings(env, make())


@attack("a program that keeps pairs of 32-bit weights in parameters of 64 bits", "Mem counts each twice")
def test_wide_parameters_count_by_their_bits(env):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(WEIGHTS.double().view(64, 10))

        def forward(self, x):
            return x.flatten(1).double() / 16 @ self.w

    run, refused = deploy(env, [exported(Wide(), env)])
    assert not refused
    assert run.ledger[1].parameters == 2 * 640
    # The authors' environment counts them once: their claim is no false one.
    assert audit.authors_ledger(run)[1].parameters == 640


@attack("a program that declares its weights to be a buffer", "finding `buffers`")
def test_weights_under_a_false_kind_are_found(env):
    graph, tensors = program(tensors={"w": WEIGHTS.view(64, 10).contiguous()})
    graph = json.dumps(json.loads(graph) | {"tensors": {"w": "buffer"}}).encode()
    assert "buffers" in findings(env, (graph, tensors))


@attack("computes logits with a trained array in a buffer", "finding `buffers`")
def test_weights_in_buffers_are_flagged(run_in_threads):
    sandboxed_run = run_in_threads("""
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
