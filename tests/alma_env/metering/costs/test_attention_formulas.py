"""Attention costs the same in every kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from alma_env.metering import count

from .costs import cost, forward_and_backward, randn, train

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
