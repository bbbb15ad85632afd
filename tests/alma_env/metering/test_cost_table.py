"""The table of costs equals sums computed by hand, whatever the device and the kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from alma_env.errors import UnknownCostError
from alma_env.metering import Charge, cost_table, count


def forward_and_backward(charge: Charge) -> tuple[int, int]:
    forward = sum(charge.forward.values())
    return forward, charge.total - forward


def cost(operation: Any, *args: Any) -> int:
    """FLOPs of one call, also of an operation that this machine cannot execute."""
    formula = cost_table.rule(operation)
    assert callable(formula)
    return cost_table.evaluate(formula, operation, args, {}, None)


def randn(*shape: int, grad: bool = False, device: str = "cpu") -> Tensor:
    return torch.randn(shape, device=device, requires_grad=grad)


def train(output: Any) -> None:
    """A backward pass from everything differentiable in `output`."""
    tensors = [output] if isinstance(output, Tensor) else list(output)
    flat: list[Tensor] = []
    while tensors:
        item = tensors.pop()
        if isinstance(item, Tensor):
            flat.append(item)
        elif isinstance(item, tuple | list):
            tensors += item
    sum(t.sum() for t in flat if t.requires_grad).backward()  # type: ignore[union-attr]


# --- matrix products ---

PRODUCTS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]], int]] = {
    "mm": (torch.mm, [(2, 3), (3, 5)], 2 * 3 * 5),
    "matmul of batches": (torch.matmul, [(4, 2, 3), (3, 5)], 4 * 2 * 3 * 5),
    "matmul of vectors": (torch.matmul, [(7,), (7,)], 7),
    "matmul broadcast": (torch.matmul, [(4, 1, 2, 3), (6, 3, 5)], 4 * 6 * 2 * 3 * 5),
    "addmm": (torch.addmm, [(2, 5), (2, 3), (3, 5)], 2 * 3 * 5),
    "bmm": (torch.bmm, [(4, 2, 3), (4, 3, 5)], 4 * 2 * 3 * 5),
    "baddbmm": (torch.baddbmm, [(4, 2, 5), (4, 2, 3), (4, 3, 5)], 4 * 2 * 3 * 5),
    "addbmm": (torch.addbmm, [(2, 5), (4, 2, 3), (4, 3, 5)], 4 * 2 * 3 * 5),
    "mv": (torch.mv, [(2, 3), (3,)], 6),
    "addmv": (torch.addmv, [(2,), (2, 3), (3,)], 6),
    "dot": (torch.dot, [(7,), (7,)], 7),
    "vdot": (torch.vdot, [(7,), (7,)], 7),
    "addr": (torch.addr, [(2, 3), (2,), (3,)], 6),
    "linear": (F.linear, [(4, 3), (5, 3), (5,)], 4 * 3 * 5),
    "linear in three dimensions": (F.linear, [(2, 4, 3), (5, 3)], 2 * 4 * 3 * 5),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), [(4, 2, 3), (4, 5, 3)], 4 * 2 * 3 * 5),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), [(2, 3, 4), (3, 4, 5)], 2 * 3 * 4 * 5),
    "bilinear": (F.bilinear, [(4, 3), (4, 5), (2, 3, 5)], 4 * 2 * 3 * 5),
    "chain_matmul": (
        lambda a, b, c: torch.linalg.multi_dot([a, b, c]),
        [(2, 3), (3, 4), (4, 5)],
        2 * 3 * 4 + 2 * 4 * 5,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_matrix_product_costs_two_flops_for_each_multiply_add(name: str) -> None:
    function, shapes, multiply_adds = PRODUCTS[name]
    for device in ("cpu", "meta"):
        operands = [randn(*shape, device=device) for shape in shapes]
        assert count(function, *operands).total == 2 * multiply_adds
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode:
                assert count(function, *operands).total == 2 * multiply_adds


@pytest.mark.parametrize(
    "name", ["mm", "bmm", "addmm", "baddbmm", "linear", "einsum", "tensordot", "matmul of batches"]
)
def test_the_gradient_of_a_product_costs_one_product_for_each_operand(name: str) -> None:
    function, shapes, multiply_adds = PRODUCTS[name]
    operands = [randn(*shape, grad=True) for shape in shapes]
    charge = count(lambda: train(function(*operands)))
    assert forward_and_backward(charge) == (2 * multiply_adds, 4 * multiply_adds)
    first_fixed = [operand.detach() if i == 0 else operand for i, operand in enumerate(operands)]
    if len(shapes) == 2 or name == "linear":
        assert forward_and_backward(count(lambda: train(function(*first_fixed)))) == (
            2 * multiply_adds,
            2 * multiply_adds,
        )


def test_out_and_in_place_forms_cost_the_same() -> None:
    a, b, out = randn(2, 3), randn(3, 5), randn(2, 5)
    assert count(lambda: torch.mm(a, b, out=out)).total == count(lambda: out.addmm_(a, b)).total == 2 * 30


def test_a_list_of_products_costs_the_sum_of_the_products() -> None:
    if not hasattr(torch.ops.aten, "_foreach_mm"):
        pytest.skip("this PyTorch has no _foreach_mm")
    args = ([randn(2, 3), randn(4, 5)], [randn(3, 5), randn(5, 6)])
    assert cost(torch.ops.aten._foreach_mm.default, *args) == 2 * (2 * 3 * 5 + 4 * 5 * 6)


def test_grouped_products_cost_the_sum_of_their_rows() -> None:
    op = torch.ops.aten._grouped_mm.default
    rows, depth, columns, groups = 8, 16, 24, 3
    assert cost(op, randn(rows, depth), randn(groups, depth, columns)) == 2 * rows * depth * columns
    assert cost(op, randn(rows, depth), randn(depth, columns)) == 2 * rows * depth * columns
    assert cost(op, randn(groups, rows, depth), randn(depth, columns)) == 2 * rows * depth * columns
    both = (randn(groups, rows, depth), randn(groups, depth, columns))
    assert cost(op, *both) == 2 * groups * rows * depth * columns


def test_a_sparse_product_costs_its_stored_elements() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = torch.eye(6)
        for sparse in (dense.to_sparse(), dense.to_sparse_csr()):
            assert count(lambda sparse=sparse: sparse @ randn(6, 4)).total == 2 * 6 * 4
        left = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]).to_sparse()
        right = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]).to_sparse()
        assert count(lambda: left @ right).total == 2 * (1 * 2 + 0 * 1 + 2 * 1)


def test_outer_products_and_elementwise_products_are_free() -> None:
    assert count(lambda: torch.outer(randn(3), randn(4))).total == 0
    assert count(lambda: (randn(3, 4) * randn(3, 4)).sum(1)).total == 0


# --- convolutions ---


def convolution_multiply_adds(out: Tensor, weight: Tensor) -> int:
    """The size of one filter for each output element."""
    return out.numel() * weight[0].numel()


CONVOLUTIONS: dict[str, tuple[type[nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "1d": (nn.Conv1d, (2, 4, 11), {"kernel_size": 3}),
    "2d": (nn.Conv2d, (2, 4, 9, 7), {"kernel_size": 3, "padding": 1}),
    "2d, stride and dilation": (nn.Conv2d, (2, 4, 11, 9), {"kernel_size": 3, "stride": 2, "dilation": 2, "padding": 2}),
    "2d, groups": (nn.Conv2d, (2, 4, 9, 7), {"kernel_size": 3, "groups": 2}),
    "2d, depthwise": (nn.Conv2d, (2, 4, 9, 7), {"kernel_size": 3, "groups": 4}),
    "2d, no bias": (nn.Conv2d, (2, 4, 9, 7), {"kernel_size": (1, 3), "bias": False}),
    "3d": (nn.Conv3d, (2, 4, 5, 6, 7), {"kernel_size": 3}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_convolution_and_each_of_its_gradients_cost_one_filter_per_output_element(name: str, device: str) -> None:
    kind, shape, options = CONVOLUTIONS[name]
    layer = kind(4, 8, **options).to(device)
    x = randn(*shape, grad=True, device=device)
    forward = 2 * convolution_multiply_adds(layer(x), layer.weight)  # type: ignore[arg-type]
    assert forward_and_backward(count(lambda: train(layer(x)))) == (forward, 2 * forward)
    assert forward_and_backward(count(lambda: train(layer(x.detach())))) == (forward, forward)
    layer.requires_grad_(False)
    assert forward_and_backward(count(lambda: train(layer(x)))) == (forward, forward)
    with torch.inference_mode():
        assert count(layer, x).total == forward


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d])
def test_a_transposed_convolution_costs_one_filter_per_input_element(kind: type[nn.Module], groups: int) -> None:
    layer = kind(4, 6, 3, stride=2, groups=groups)
    dimensions = int(kind.__name__[-2])
    x = randn(2, 4, *(5 + i for i in range(dimensions)), grad=True)
    forward = 2 * x.numel() * 3**dimensions * 6 // groups
    assert forward_and_backward(count(lambda: train(layer(x)))) == (forward, 2 * forward)


def test_a_grouped_convolution_costs_as_much_as_separate_convolutions() -> None:
    together, apart = nn.Conv2d(5 * 3, 5 * 4, 3, groups=5), [nn.Conv2d(3, 4, 3) for _ in range(5)]
    inputs = [randn(2, 3, 8, 8, grad=True) for _ in range(5)]
    joined = torch.cat([x.detach() for x in inputs], 1).requires_grad_()
    one = count(lambda: train(together(joined)))
    many = count(lambda: [train(layer(x)) for layer, x in zip(apart, inputs, strict=True)])
    assert one == many


def test_a_second_derivative_of_a_convolution_is_counted() -> None:
    layer, x = nn.Conv2d(2, 3, 3), randn(1, 2, 6, 6, grad=True)

    def twice() -> None:
        (gradient,) = torch.autograd.grad(layer(x).pow(2).sum(), x, create_graph=True)
        gradient.pow(2).sum().backward()

    assert count(twice).total > 3 * count(layer, x).total


# --- attention ---

BATCH, HEADS, QUERIES, KEYS, DEPTH, VALUE_DEPTH = 2, 4, 6, 10, 8, 8
ATTENTION = 2 * BATCH * HEADS * QUERIES * KEYS * (DEPTH + VALUE_DEPTH)


def attention_inputs(device: str = "cpu", grad: tuple[bool, bool, bool] = (True, True, True)) -> list[Tensor]:
    shapes = [(QUERIES, DEPTH), (KEYS, DEPTH), (KEYS, VALUE_DEPTH)]
    return [randn(BATCH, HEADS, *s, grad=g, device=device) for s, g in zip(shapes, grad, strict=True)]


@pytest.fixture(params=["flash", "math", "meta", "causal", "masked"])
def attend(request: pytest.FixtureRequest) -> Iterator[tuple[Callable[..., Tensor], str]]:
    kernel = request.param
    device = "meta" if kernel == "meta" else "cpu"
    mask = torch.zeros(QUERIES, KEYS) if kernel == "masked" else None

    def call(*qkv: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*qkv, attn_mask=mask, is_causal=kernel == "causal")

    if kernel in {"flash", "math"}:
        backend = SDPBackend.MATH if kernel == "math" else SDPBackend.FLASH_ATTENTION
        with sdpa_kernel(backend):
            yield call, device
    else:
        yield call, device


@pytest.mark.parametrize("grad", [(True, True, True), (False, True, True), (True, False, False), (False, False, True)])
def test_attention_costs_the_same_in_every_kernel(
    attend: tuple[Callable[..., Tensor], str], grad: tuple[bool, bool, bool]
) -> None:
    call, device = attend
    scores = 2 * BATCH * HEADS * QUERIES * KEYS * DEPTH
    backward = scores * (grad[0] + grad[1]) + scores * (grad[2] + (grad[0] or grad[1]))
    charge = count(lambda: train(call(*attention_inputs(device, grad))))
    assert forward_and_backward(charge) == (ATTENTION, backward)
    with torch.inference_mode():
        assert count(call, *attention_inputs(device)).total == ATTENTION


def test_shared_keys_are_counted_for_each_query_head() -> None:
    q, k, v = randn(2, 8, 6, 4), randn(2, 2, 10, 4), randn(2, 2, 10, 4)
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            charge = count(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
        assert charge.total == 2 * 2 * 8 * 6 * 10 * (4 + 4)


def test_all_attention_kernels_have_the_same_cost() -> None:
    aten = torch.ops.aten
    q, k, v = attention_inputs()
    for name in ("_efficient_attention", "_flash_attention", "_cudnn_attention", "_flash_attention_for_cpu"):
        forward = getattr(aten, f"_scaled_dot_product{name}").default
        backward = getattr(aten, f"_scaled_dot_product{name}_backward").default
        assert cost(forward, q, k, v) == ATTENTION
        assert cost(backward, q, q, k, v) == 2 * ATTENTION


def test_one_call_with_several_sequences_costs_the_sum_of_the_sequences() -> None:
    ends = torch.tensor([0, 3, 10])
    q = k = v = randn(10, HEADS, DEPTH)
    args = (q, k, v, ends, ends, 7, 7, 0.0, False, False)
    expected = 2 * HEADS * (3 * 3 + 7 * 7) * 2 * DEPTH
    assert cost(torch.ops.aten._flash_attention_forward.default, *args) == expected


def encoder_layer_flops(batch: int, length: int, width: int, hidden: int) -> int:
    projections = 4 * batch * length * width * width
    attention = 2 * batch * length * length * width
    feed_forward = 2 * batch * length * width * hidden
    return 2 * (projections + attention + feed_forward)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_transformer_layer_costs_the_same_with_and_without_its_fast_path(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    x, expected = randn(3, 5, 16), encoder_layer_flops(3, 5, 16, 32)
    assert sum(count(layer, x).forward.values()) == expected
    layer.eval()
    for fast in (True, False):
        torch.backends.mha.set_fastpath_enabled(fast)
        try:
            for mode in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
                with mode:
                    assert count(layer, x).total == expected
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert count(layer.to("meta"), x.to("meta")).total == expected


def test_multi_head_attention_costs_the_same_with_and_without_its_fast_path() -> None:
    layer, x = nn.MultiheadAttention(16, 4, batch_first=True).eval(), randn(3, 5, 16)
    expected = 2 * (4 * 3 * 5 * 16 * 16 + 2 * 3 * 5 * 5 * 16)
    for weights in (True, False):
        assert count(lambda weights=weights: layer(x, x, x, need_weights=weights)).total == expected
        with torch.no_grad():
            assert count(lambda weights=weights: layer(x, x, x, need_weights=weights)).total == expected


def test_nested_sequences_cost_nothing_for_padding() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=True)
    x, padding = randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        charge = count(lambda: encoder(x, src_key_padding_mask=padding))
    assert charge.total == encoder_layer_flops(1, 5, 16, 32) + encoder_layer_flops(1, 3, 16, 32)


# --- recurrent layers ---

GATES = {nn.RNN: 1, nn.GRU: 3, nn.LSTM: 4}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_recurrent_layer_costs_the_same_with_every_kernel(
    kind: type[nn.RNNBase], bidirectional: bool, batch_first: bool
) -> None:
    length, batch, inputs, hidden, layers = 5, 3, 7, 6, 2
    directions, gates = 1 + bidirectional, GATES[kind]
    net = kind(inputs, hidden, layers, bidirectional=bidirectional, batch_first=batch_first)
    x = randn(*((batch, length) if batch_first else (length, batch)), inputs)

    forward = backward = 0
    for layer in range(layers):
        to_gates = (inputs if layer == 0 else hidden * directions) * hidden * gates * batch * length
        recurrent = hidden * hidden * gates * batch
        forward += 2 * directions * (to_gates + recurrent * length)
        weights = to_gates + recurrent * length
        activations = (to_gates if layer > 0 else 0) + recurrent * (length - 1)
        backward += 2 * directions * (weights + activations)

    assert forward_and_backward(count(lambda: train(net(x)[0]))) == (forward, backward)
    with torch.backends.mkldnn.flags(enabled=False):
        assert forward_and_backward(count(lambda: train(net(x)[0]))) == (forward, backward)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert count(net, x).total == forward
    on_meta = net.to("meta")
    assert forward_and_backward(count(lambda: train(on_meta(x.to("meta"))[0]))) == (forward, backward)


def test_the_input_gradient_of_a_recurrent_layer_is_charged_if_it_is_needed() -> None:
    net, x = nn.LSTM(7, 6), randn(5, 3, 7, grad=True)
    fused = count(lambda: train(net(x)[0]))
    with torch.backends.mkldnn.flags(enabled=False):
        plain = count(lambda: train(net(x)[0]))
    assert fused == plain
    assert fused.total - count(lambda: train(net(x.detach())[0])).total == 2 * 5 * 3 * 7 * 6 * 4


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_a_recurrent_cell_costs_its_two_products(cell: type[nn.Module]) -> None:
    gates = {nn.RNNCell: 1, nn.GRUCell: 3, nn.LSTMCell: 4}[cell]
    assert count(cell(7, 6), randn(3, 7)).total == 2 * 3 * gates * 6 * (7 + 6)


def test_the_fused_recurrent_kernel_of_a_gpu_costs_what_the_plain_kernel_costs() -> None:
    length, batch, inputs, hidden = 5, 3, 7, 6
    net, x = nn.LSTM(inputs, hidden, 2, bidirectional=True), randn(length, batch, inputs)
    plain = count(lambda: train(net(x)[0]))
    weights = [w for layer in net.all_weights for w in layer]
    start = torch.zeros(4, batch, hidden)
    forward = (x, weights, 4, None, start, start, 2, hidden, 0, 2, False, 0.0, True, True, [], None)
    assert cost(torch.ops.aten._cudnn_rnn.default, *forward) == sum(plain.forward.values())
    backward = (x, weights, 4, x, start, start, x, x, x, x, 2, hidden, 0, 2, False, 0.0, True, True, [], None, x)
    backward += ((False, False, False, True),)  # type: ignore[assignment]
    expected = plain.total - sum(plain.forward.values())
    assert cost(torch.ops.aten._cudnn_rnn_backward.default, *backward) == expected


# --- free by definition ---


def _image() -> Tensor:
    return randn(2, 4, 8, 8, grad=True)


FREE_WORK: dict[str, Callable[[], Any]] = {
    "batch norm": lambda: nn.BatchNorm2d(4)(_image()),
    "layer norm": lambda: nn.LayerNorm(8)(_image()),
    "group norm": lambda: nn.GroupNorm(2, 4)(_image()),
    "instance norm": lambda: nn.InstanceNorm2d(4, affine=True)(_image()),
    "rms norm": lambda: nn.RMSNorm(8)(_image()),
    "local response norm": lambda: nn.LocalResponseNorm(2)(_image()),
    "softmax": lambda: _image().softmax(1),
    "log softmax": lambda: _image().log_softmax(1),
    "weight norm": lambda: torch._weight_norm(randn(3, 4, grad=True), randn(3, 1, grad=True), 0),
    "max pool": lambda: F.max_pool2d(_image(), 2),
    "max unpool": lambda: F.max_unpool2d(*F.max_pool2d(_image(), 2, return_indices=True), 2),
    "average pool": lambda: F.avg_pool2d(_image(), 2),
    "adaptive pools": lambda: F.adaptive_avg_pool2d(_image(), 3).sum() + F.adaptive_max_pool2d(_image(), 3).sum(),
    "global average pool": lambda: F.adaptive_avg_pool2d(_image(), 1),
    "power pool": lambda: F.lp_pool2d(_image().abs(), 2, 2),
    "fractional pool": lambda: F.fractional_max_pool2d(_image(), 2, output_size=3),
    "upsample": lambda: sum(
        F.interpolate(_image(), scale_factor=2, mode=mode).sum() for mode in ("nearest", "bilinear", "bicubic", "area")
    ),
    "grid sample": lambda: F.grid_sample(_image(), randn(2, 5, 5, 2).tanh(), align_corners=False),
    "pixel shuffle": lambda: F.pixel_shuffle(_image(), 2),
    "unfold and fold": lambda: F.fold(F.unfold(_image(), 3), (8, 8), 3),
    "padding": lambda: sum(
        F.pad(_image(), (1, 1, 1, 1), mode=m).sum() for m in ("constant", "reflect", "replicate", "circular")
    ),
    "dropout": lambda: F.dropout(_image()).sum() + F.dropout2d(_image()).sum() + F.alpha_dropout(_image()).sum(),
    "embedding": lambda: nn.Embedding(10, 4)(torch.randint(10, (3, 5))),
    "embedding bag": lambda: nn.EmbeddingBag(10, 4)(torch.randint(10, (3, 5))),
    "one hot": lambda: F.one_hot(torch.randint(10, (3, 5))),
    "indexing": lambda: _image()[torch.randperm(2), :, 1:5, torch.tensor([0, 3])[:, None]],
    "masks": lambda: (
        _image()[_image() > 0].sum() + _image().masked_fill(torch.zeros(8, 8, dtype=torch.bool), 1.0).sum()
    ),
    "gather and scatter": lambda: (
        torch.zeros(4, 8)
        .scatter_add(1, torch.randint(8, (4, 8)), randn(4, 8, grad=True))
        .gather(1, torch.randint(8, (4, 3)))
    ),
    "index add": lambda: torch.zeros(5, 3).index_add(0, torch.tensor([1, 2]), randn(2, 3, grad=True)),
    "sorting": lambda: (
        _image().sort(1).values.sum() + _image().topk(2, 1).values.sum() + _image().median(1).values.sum()
    ),
    "searching": lambda: [
        torch.bucketize(randn(5), torch.arange(3.0)),
        randn(5).argsort(),
        randn(5).argmax(),
        randn(9).unique(),
    ],
    "reductions": lambda: [
        f(_image().abs() + 1) for f in (torch.sum, torch.mean, torch.prod, torch.std, torch.var, torch.norm)
    ],
    "scans": lambda: _image().cumsum(1).sum() + _image().cumprod(1).sum() + _image().logcumsumexp(1).sum(),
    "norms": lambda: (
        torch.linalg.vector_norm(_image()) + F.normalize(_image()).sum() + F.cosine_similarity(_image(), _image()).sum()
    ),
    "complex": lambda: torch.view_as_real(torch.view_as_complex(randn(3, 2, grad=True)) * 2j),
    "cat, stack, split": lambda: torch.cat([*_image().split(2, 1), *torch.stack([_image()] * 2).unbind()], 1),
    "reshapes": lambda: _image().permute(0, 2, 3, 1).reshape(2, -1, 4).transpose(1, 2).contiguous().flip(1).roll(1),
    "casts": lambda: _image().bfloat16().double().to(torch.float16).float().to(memory_format=torch.channels_last),
    "einsum without contraction": lambda: torch.einsum("i,j->ij", randn(3, grad=True), randn(4, grad=True)),
    "random": lambda: [
        torch.randn(3),
        torch.rand(3).bernoulli(),
        torch.multinomial(torch.ones(4), 2),
        torch.randperm(5),
    ],
    "initialisation": lambda: [
        nn.init.kaiming_normal_(randn(4, 4)),
        nn.init.trunc_normal_(randn(4, 4)),
        nn.init.eye_(randn(4, 4)),
    ],
    "host": lambda: [randn(1).item(), randn(3).tolist(), randn(3).numpy(), torch.equal(randn(2), randn(2))],
    "clipping": lambda: nn.utils.clip_grad_norm_([nn.Parameter(randn(3))], 1.0),
    "packing": lambda: nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_sequence([randn(3, 2), randn(2, 2)]))[0],
    "histograms": lambda: [torch.bincount(torch.randint(4, (9,))), torch.histc(randn(9), 3)],
    "special functions": lambda: torch.special.gammaln(_image().abs()).sum() + torch.erfinv(_image().tanh()).sum(),
    "fake quantisation": lambda: torch.fake_quantize_per_tensor_affine(_image(), 0.1, 0, 0, 255),
}
ACTIVATIONS = [
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid, nn.LogSigmoid,
    nn.Tanh, nn.Tanhshrink, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardshrink, nn.Softshrink, nn.Softplus,
    nn.Softsign, nn.PReLU, nn.RReLU, nn.GLU, nn.Threshold, nn.Softmin,
]  # fmt: skip
LOSSES = [
    nn.L1Loss, nn.MSELoss, nn.SmoothL1Loss, nn.HuberLoss, nn.KLDivLoss, nn.SoftMarginLoss, nn.PoissonNLLLoss,
    nn.BCELoss, nn.BCEWithLogitsLoss, nn.MultiLabelSoftMarginLoss, nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss,
    nn.MultiLabelMarginLoss, nn.CosineEmbeddingLoss, nn.MarginRankingLoss, nn.HingeEmbeddingLoss, nn.TripletMarginLoss,
    nn.GaussianNLLLoss, nn.CTCLoss,
]  # fmt: skip


@pytest.mark.parametrize("name", FREE_WORK)
def test_free_by_definition(name: str) -> None:
    def work() -> None:
        out = FREE_WORK[name]()
        if isinstance(out, Tensor) and out.requires_grad:
            (out.abs() if out.is_complex() else out).float().sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert count(work).total == 0
        with torch.inference_mode():
            assert count(FREE_WORK[name]).total == 0


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations_are_free(kind: type[nn.Module]) -> None:
    options = {nn.Threshold: {"threshold": 0.1, "value": 0.0}, nn.Softmin: {"dim": 1}}.get(kind, {})
    assert count(lambda: train(kind(**options)(_image()))).total == 0


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_are_free(kind: type[nn.Module]) -> None:
    x, classes, sign = randn(3, 4, grad=True), torch.tensor([0, 2, 1]), torch.tensor([1.0, -1.0, 1.0])
    inputs: dict[type[nn.Module], tuple[Any, ...]] = {
        nn.BCELoss: (x.sigmoid(), torch.rand(3, 4)),
        nn.CrossEntropyLoss: (x, classes),
        nn.NLLLoss: (x, classes),
        nn.MultiMarginLoss: (x, classes),
        nn.MultiLabelMarginLoss: (x, torch.tensor([[0, -1, 1, 2]] * 3)),
        nn.CosineEmbeddingLoss: (x, randn(3, 4), sign),
        nn.MarginRankingLoss: (x[:, 0], randn(3), sign),
        nn.HingeEmbeddingLoss: (x[:, 0], sign),
        nn.TripletMarginLoss: (x, randn(3, 4), randn(3, 4)),
        nn.GaussianNLLLoss: (x, randn(3, 4), torch.rand(3, 4)),
        nn.CTCLoss: (randn(6, 2, 5, grad=True).log_softmax(2), torch.tensor([[1, 2], [3, 1]]), (6, 6), (2, 2)),
        nn.SoftMarginLoss: (x, sign[:, None].expand(3, 4)),
    }
    assert count(lambda: train(kind()(*inputs.get(kind, (x, torch.rand(3, 4)))))).total == 0


OPTIMIZERS = [
    (kind, {form: value})
    for kind in ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD")
    for form, value in (("foreach", True), ("foreach", False), ("fused", True))
    if form != "fused" or kind in {"SGD", "Adam", "AdamW", "Adagrad"}
]


@pytest.mark.parametrize(("kind", "implementation"), OPTIMIZERS)
def test_optimizers_are_free(kind: str, implementation: dict[str, bool]) -> None:
    parameters = [nn.Parameter(randn(3, 4)), nn.Parameter(randn(5))]
    options: dict[str, Any] = {"momentum": 0.9} if kind in {"SGD", "RMSprop"} else {}
    optimizer = getattr(torch.optim, kind)(parameters, lr=0.1, **options, **implementation)

    def steps() -> None:
        for _ in range(2):
            optimizer.zero_grad()
            sum(p.pow(2).sum() for p in parameters).backward()  # type: ignore[union-attr]
            optimizer.step()

    assert count(steps).total == 0


def test_the_matrix_products_of_an_optimizer_are_charged() -> None:
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this PyTorch has no Muon")
    weight = nn.Parameter(randn(3, 4))
    weight.grad = randn(3, 4)
    assert count(torch.optim.Muon([weight], ns_steps=1).step).total == 2 * (3 * 4 * 3 + 3 * 3 * 3 + 3 * 3 * 4)


def test_no_operation_is_both_metered_and_free() -> None:
    assert not set(cost_table.FORMULAS) & set(cost_table._FREE_NAMES)


def test_every_group_of_free_operations_has_a_reason_and_no_name_occurs_twice() -> None:
    names = [name for group in cost_table.FREE.values() for name in group.split()]
    assert len(names) == len(set(names))
    assert all(len(reason.split()) > 2 for reason in cost_table.FREE)


# --- unknown operations ---

UNKNOWN: dict[str, Callable[[], Any]] = {
    "aten::linalg_matrix_exp": lambda: torch.linalg.matrix_exp(randn(3, 3)),  # its products depend on the values
    "aten::_sparse_softmax": lambda: torch.sparse.softmax(randn(3, 3).to_sparse(), 1),
    "aten::_sparse_sparse_matmul": lambda: torch.sparse.mm(randn(3, 3).to_sparse(), randn(3, 3).to_sparse()),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_operation_is_an_error_that_names_it_and_the_remedy(name: str) -> None:
    with pytest.raises(UnknownCostError) as caught:
        count(UNKNOWN[name])
    message = str(caught.value)
    assert message.startswith(name)
    assert f"alma_env.flops.register_cost(torch.ops.{name.replace('::', '.')}" in message
    assert "register_free" in message


@pytest.fixture
def custom() -> Iterator[Any]:
    calls: list[int] = []

    @torch.library.custom_op("alma_test::product", mutates_args=())
    def product(a: Tensor, b: Tensor) -> Tensor:
        calls.append(1)
        return a @ b

    product.calls = calls  # type: ignore[attr-defined]
    yield product
    cost_table._REGISTERED.clear()
    cost_table._clear_caches()


def test_a_custom_operation_is_unknown_until_its_cost_is_registered(custom: Any) -> None:
    a, b = randn(2, 3), randn(3, 5)
    with pytest.raises(UnknownCostError, match="alma_test::product"):
        count(custom, a, b)
    assert not custom.calls, "the error is raised before the operation runs"
    cost_table.register_cost(custom, lambda out, a, b: 2 * a.numel() * b.shape[1])
    assert count(custom, a, b).total == 60
    assert cost(torch.ops.alma_test.product.default, a, b) == 60
    cost_table.unregister(custom)
    with pytest.raises(UnknownCostError, match="alma_test::product"):
        count(custom, a, b)
    cost_table.register_free(torch.ops.alma_test.product, "it is part of a test")
    assert count(custom, a, b).total == 0


def test_invalid_registrations_are_refused(custom: Any) -> None:
    def formula(out: Any, *args: Any) -> int:
        return 1

    with pytest.raises(ValueError, match=r"aten::mm is metered .* already"):
        cost_table.register_cost(torch.ops.aten.mm, formula)
    with pytest.raises(ValueError, match="aten::mm is metered"):
        cost_table.register_free(torch.ops.aten.mm.default, "cheating")
    with pytest.raises(ValueError, match=r"aten::relu is free by definition already"):
        cost_table.register_cost(torch.ops.aten.relu, formula)
    with pytest.raises(TypeError, match="is not an operation of PyTorch"):
        cost_table.register_cost(torch.mm, formula)
    with pytest.raises(TypeError, match="formula=12.*callable"):
        cost_table.register_cost(custom, 12)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reason=''.*non-empty"):
        cost_table.register_free(custom, "")
    with pytest.raises(ValueError, match="is not registered"):
        cost_table.unregister(custom)
    cost_table.register_cost(custom, formula)
    with pytest.raises(ValueError, match=r"registered already.*unregister"):
        cost_table.register_cost(custom, formula)


@pytest.mark.parametrize("value", [1.5, -1, True, None])
def test_a_formula_must_return_a_non_negative_integer(custom: Any, value: Any) -> None:
    cost_table.register_cost(custom, lambda out, *args: value)
    with pytest.raises(ValueError, match=r"alma_test::product: its cost formula returned"):
        count(custom, randn(2, 3), randn(3, 5))


def test_rule_returns_a_formula_a_reason_or_none() -> None:
    aten = torch.ops.aten
    assert cost(aten.mm.default, randn(2, 3), randn(3, 5)) == 60
    assert isinstance(cost_table.rule(aten.relu.default), str)
    assert cost_table.rule(aten.linalg_matrix_exp.default) is None


# --- whole networks by hand ---


def test_a_training_step_of_an_mlp_costs_three_forward_passes_less_the_input_gradient() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    x, y = randn(108, 1, 28, 28), torch.randint(10, (108,))
    layers = [784 * 32, 32 * 32, 32 * 10]
    forward = 2 * 108 * sum(layers)
    assert sum(layers) == 26_432
    charge = count(lambda: F.cross_entropy(net(x), y).backward())
    assert forward_and_backward(charge) == (forward, 2 * forward - 2 * 108 * layers[0])


def test_a_training_step_of_a_convolutional_network_by_hand() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip
    x, y = randn(5, 3, 32, 32), torch.randint(10, (5,))
    first, second, last = 32 * 32 * 4 * 27, 16 * 16 * 8 * 36, 80
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def step() -> None:
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    forward = 2 * 5 * (first + second + last)
    assert forward_and_backward(count(step)) == (forward, 2 * forward - 2 * 5 * first)
    channels_last = net.to(memory_format=torch.channels_last)
    assert sum(count(channels_last, x.to(memory_format=torch.channels_last)).forward.values()) == forward
    assert count(net.to("meta"), x.to("meta")).total == forward
