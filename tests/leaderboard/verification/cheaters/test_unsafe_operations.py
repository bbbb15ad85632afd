"""Operations that read or write outside of their arrays if a program gives them wrong indices or sizes."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from leaderboard.errors import ProgramError
from leaderboard.program.graph import read
from leaderboard.program.interpreter import ProgramModule

from ...hand_written_programs import FLAT, LINEAR, of, program
from .gallery import attack, case
from .judged import exported, findings

REFUSED = {
    "a gradient of an embedding with indices out of range": "aten.embedding_dense_backward.default",
    "a gradient of a pooling layer with places out of range": "aten.max_pool2d_with_indices_backward.default",
    "an internal gradient of an attention layer": "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    "an unpooling layer with places out of range": "aten.max_unpool2d.default",
    "a fractional pooling layer with samples above 1": "aten.fractional_max_pool2d.default",
    "look-ups in bags with offsets out of range": "aten.embedding_bag.padding_idx",
    "look-ups in bags without a check": "aten._embedding_bag.default",
    "strides that lead out of a tensor": "aten.as_strided.default",
    "a copy by strides that lead out of a tensor": "aten.as_strided_copy.default",
    "an index that is not checked": "aten._unsafe_index.Tensor",
    "a masked index that is not checked": "aten._unsafe_masked_index.default",
    "a write by an index that is not checked": "aten._unsafe_index_put.default",
    "parts with sizes that are not checked": "aten.unsafe_split_with_sizes.default",
    "a grouped product with offsets out of range": "aten._grouped_mm.default",
    "segments with lengths out of range": "aten.segment_reduce.default",
    "a loss over sequences with lengths out of range": "aten.ctc_loss.IntList",
    "a histogram with bounds that are not numbers": "aten.histc.default",
    "counts of values out of range": "aten.bincount.default",
    "padding by a mode out of the list": "aten._pad_enum.default",
    "a fused layer with weights of other sizes": "aten._transformer_encoder_layer_fwd.default",
    "a fused attention with weights of other sizes": "aten._native_multi_head_attention.default",
    "a normalization with statistics of another size": "aten.native_batch_norm.default",
    "an internal normalization with statistics of another size": "aten._native_batch_norm_legit_no_training.default",
    "an internal softmax along a dimension that does not exist": "aten._safe_softmax.default",
    "an internal stack of nothing": "aten._stack.default",
    "pivots out of range": "aten.lu_solve.default",
    "packed sequences with lengths out of range": "aten.lstm.data",
    "an output tensor of its own choice": "aten.add.out",
}


@pytest.mark.parametrize(
    "target", [case(f"a program with {does}", "refused", target) for does, target in REFUSED.items()]
)
def test_operations_that_do_not_check_are_refused(env, target):
    nodes = [*LINEAR, ["last", target, [of("logits")], {}]]
    (found,) = findings(env, program(nodes, output="last"))
    assert found.startswith("refused: operation")


NUMBERS = {
    "a dtype": ["aten.to.dtype", [of("logits"), -1], {}],
    "a dtype by name": ["aten.sum.default", [of("logits")], {"dtype": 99}],
    "a memory format": ["aten.clone.default", [of("logits")], {"memory_format": 2**31 - 1}],
    "a layout": ["aten.ones_like.default", [of("logits")], {"layout": 77}],
    "a device": ["aten.ones_like.default", [of("logits")], {"device": 5}],
    "a size of the input as a dtype": ["aten.to.dtype", [of("logits"), of("n")], {}],
}


@pytest.mark.parametrize(
    "node", [case(f"a program with a number in place of {what}", "refused", node) for what, node in NUMBERS.items()]
)
def test_numbers_in_place_of_types_are_refused(env, node):
    nodes = [*LINEAR, ["n", "aten.sym_size.int", [of("x"), 0], {}], ["last", *node]]
    (found,) = findings(env, program(nodes, output="last"))
    assert "must be a" in found


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.body, self.head = kind(8, 6, batch_first=True), nn.Linear(6, 10)

    def forward(self, x):
        return self.head(self.body(x.flatten(1).unflatten(1, (8, 8)) / 16)[0][:, -1])


RECURRENT = [nn.LSTM, nn.GRU, nn.RNN]


@pytest.mark.parametrize("kind", RECURRENT)
def test_honest_recurrent_layers_pass(env, kind):
    assert findings(env, exported(Recurrent(kind), env)) == set()


def with_state(env, kind, size):
    """Return a program of a recurrent layer whose states have another number of examples."""
    graph, tensors = exported(Recurrent(kind), env)
    program = read(graph, tensors)
    zeros = [node for node in program.nodes if node.target == "aten.zeros.default"]
    assert zeros
    changed = {node.name: (([node.args[0][0], size, node.args[0][2]],), node.kwargs) for node in zeros}
    nodes = tuple(
        node.__class__(node.name, node.target, *changed[node.name]) if node.name in changed else node
        for node in program.nodes
    )
    changed_program = program.__class__(**{**vars(program), "nodes": nodes})
    return changed_program.graph_bytes(), tensors


@pytest.mark.parametrize("kind", [
    case(f"a program whose {kind.__name__} layer gets the states of one example for the whole batch", "refused", kind)
    for kind in RECURRENT
])  # fmt: skip
def test_states_of_another_size_are_refused(env, kind):
    (found,) = findings(env, with_state(env, kind, 1))
    assert "needs states of shape" in found
    bad = ProgramModule(read(*with_state(env, kind, 1)))  # the evaluator checks the sizes that it really has
    with pytest.raises(ProgramError, match="needs states of shape"):
        bad(torch.from_numpy(env.data.test_x[:5].copy()))


CHECKED = """
    import torch
    from leaderboard.program.operations import operation

    W, V, x = torch.randn(4, 3), torch.randn(4), torch.randn(2, 3, 8, 8)
    far = [10**12, -10**12, 2**62, -2**62, 4, -5]
    calls = {}
    for i in far:
        at = torch.tensor([i])
        two = torch.tensor([[i, 0, 0]])
        calls |= {
            f"embedding {i}": ("embedding.default", W, at),
            f"index {i}": ("index.Tensor", W, [at]),
            f"index_select {i}": ("index_select.default", W, 0, at),
            f"gather {i}": ("gather.default", W, 0, two),
            f"scatter {i}": ("scatter.value", W, 0, two, 1.0),
            f"scatter_add {i}": ("scatter_add.default", W, 0, two, torch.ones(1, 3)),
            f"scatter_reduce {i}": ("scatter_reduce.two", W, 0, two, torch.ones(1, 3), "amax"),
            f"index_put {i}": ("index_put.default", W, [at], torch.ones(3)),
            f"index_add {i}": ("index_add.default", W, 0, at, torch.ones(1, 3)),
            f"index_copy {i}": ("index_copy.default", W, 0, at, torch.ones(1, 3)),
            f"index_fill {i}": ("index_fill.int_Scalar", W, 0, at, 1.0),
            f"select {i}": ("select.int", V, 0, i),
            f"narrow {i}": ("narrow.default", V, 0, i, 1),
            f"unfold {i}": ("unfold.default", V, 0, 5, 1),
            f"view {i}": ("view.default", V, [abs(i) + 1]),
            f"expand {i}": ("expand.default", V, [3, abs(i) + 1]),
            f"split {i}": ("split_with_sizes.default", V, [i, 1]),
            f"kthvalue {i}": ("kthvalue.default", V, abs(i) + 1),
            f"topk {i}": ("topk.default", V, abs(i) + 1),
            f"one_hot {i}": ("one_hot.default", at, 3),
            f"diagonal {i}": ("diagonal.default", V, 0, 0, 1),
        }
    calls |= {
        "take": ("take.default", V, torch.tensor([10**12])),
        "masked_scatter": ("masked_scatter.default", V, torch.ones(4).bool(), torch.ones(2)),
        "batch_norm": ("batch_norm.default", x, None, None, torch.ones(2), torch.ones(2), False, 0.1, 1e-5, False),
        "group_norm": ("group_norm.default", x, 3, torch.ones(7)),
        "layer_norm": ("layer_norm.default", x, [8], torch.ones(9)),
        "conv2d": ("conv2d.default", x, torch.ones(4, 2, 3, 3)),
        "max_pool2d": ("max_pool2d.default", x, [9, 9], [1, 1], [7, 7]),
        "pad": ("pad.default", x, [9, 9, 9, 9], "reflect"),
        "col2im": ("col2im.default", torch.ones(1, 4, 5), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
        "pixel_shuffle": ("pixel_shuffle.default", x, 10**6),
        "prelu": ("prelu.default", x, torch.ones(5)),
    }
    for name, (target, *args) in calls.items():
        try:
            operation("aten." + target)(*args)
        except (RuntimeError, IndexError, ValueError, OverflowError) as error:
            assert "Error in" not in str(error)
        else:
            print("no error:", name, flush=True)
    for scale in (1e-300, 1e300, float("nan"), float("inf"), -1.0):
        for kind in ("upsample_nearest2d", "upsample_bilinear2d", "_upsample_nearest_exact2d"):
            more = [False] if "bilinear" in kind else []
            try:
                operation(f"aten.{kind}.default")(x, [16, 16], *more, scale, scale)
            except RuntimeError:
                pass
        grid = torch.full((2, 4, 4, 2), max(min(scale, 1e38), -1e38))
        for mode in (0, 1, 2):
            for padding in (0, 1, 2):
                operation("aten.grid_sampler.default")(x, grid, mode, padding, True)
    print("end", flush=True)
"""


@attack("gives indices and sizes far out of range to the allowed operations", "each raises an error; none crashes")
def test_allowed_operations_check_their_arguments():
    """The operations run in another process, which a read far outside of an array would end."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(CHECKED)], capture_output=True, text=True, check=False)
    assert done.stdout == "end\n", done.stdout + done.stderr
    assert done.returncode == 0


@attack("a program that divides by the zero elements of its results", "refused")
def test_results_without_elements_are_refused(env):
    nodes = [*FLAT, ["none", "aten.narrow.default", [of("real"), 1, 0, 0], {}]]
    nodes += [["sums", "aten.sum.dim_IntList", [of("none"), [1], True], {}]]
    nodes += [
        ["logits", "aten.mm.default", [of("real"), of("w")], {}],
        ["out", "aten.add.Tensor", [of("logits"), of("sums")], {}],
    ]
    (found,) = findings(env, program(nodes, output="out"))
    assert "must have 1 to" in found


BOMBS = {
    "a result of 2⁵⁰ elements": [["big", "aten.new_zeros.default", [of("real"), [2**25, 2**25]], {}]],
    "a list of 2³² tensors": [
        ["long", "aten.new_zeros.default", [of("real"), [2**32]], {}],
        ["big", "aten.unbind.int", [of("long")], {}],
    ],
    "sizes that are squared until they have millions of digits": [
        ["n", "aten.sym_size.int", [of("x"), 0], {}],
        *[
            [f"s{i}", "operator.mul", [of(f"s{i - 1}" if i else "n"), of(f"s{i - 1}" if i else "n")], {}]
            for i in range(40)
        ],
    ],
}


@pytest.mark.parametrize("nodes", [case(f"a program with {what}", "refused", nodes) for what, nodes in BOMBS.items()])
def test_programs_that_would_exhaust_the_judge_are_refused(env, nodes):
    (found,) = findings(env, program([*FLAT, *nodes, LINEAR[-1]]))
    assert found.startswith("refused: node")
