"""Normalisation, pooling, activations, losses, optimizers and other work are free by definition."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alma_env.metering import count

from . import free_work
from .costs import randn


def _image() -> Tensor:
    return randn(2, 4, 8, 8, grad=True)


MORE_WORK: dict[str, Callable[[], Any]] = {  # with operations that are not in `free_work`
    "power pool": lambda: F.lp_pool2d(_image().abs(), 2, 2),
    "unit vectors": lambda: F.normalize(_image()),
    "upsample": lambda: sum(
        F.interpolate(_image(), scale_factor=2, mode=mode).sum() for mode in ("nearest", "bilinear", "bicubic", "area")
    ),
    "pixel shuffle": lambda: F.pixel_shuffle(_image(), 2),
    "padding": lambda: sum(
        F.pad(_image(), (1, 1, 1, 1), mode=m).sum() for m in ("constant", "reflect", "replicate", "circular")
    ),
    "dropout": lambda: F.dropout(_image()).sum() + F.dropout2d(_image()).sum() + F.alpha_dropout(_image()).sum(),
    "one hot": lambda: F.one_hot(torch.randint(10, (3, 5))),
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
        nn.init.zeros_(randn(4, 4)),
    ],
    "host": lambda: [randn(1).item(), randn(3).tolist(), randn(3).numpy(), torch.equal(randn(2), randn(2))],
    "histograms": lambda: [torch.bincount(torch.randint(4, (9,))), torch.histc(randn(9), 3)],
    "special functions": lambda: torch.special.gammaln(_image().abs()).sum() + torch.erfinv(_image().tanh()).sum(),
    "fake quantisation": lambda: torch.fake_quantize_per_tensor_affine(_image(), 0.1, 0, 0, 255),
}
WORK = free_work.WORK | MORE_WORK


@pytest.mark.parametrize("name", WORK)
def test_free_by_definition(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert count(lambda: free_work.differentiated(WORK[name])).total == 0
        with torch.inference_mode():
            assert count(WORK[name]).total == 0


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
