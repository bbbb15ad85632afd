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

from .costs import randn, train


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
