"""Small calls of free operations with several operands, written with PyTorch's public functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

aten = torch.ops.aten
DOUBLE = torch.float64


def floats(*shape: int, grad: bool = True) -> Tensor:
    return (torch.rand(shape, dtype=DOUBLE) * 0.8 + 0.1).requires_grad_(grad)


def image() -> Tensor:
    return floats(2, 3, 3, 2)


def whole(*shape: int, below: int = 2) -> Tensor:
    return torch.randint(below, shape)


def mask(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape) % 3 > 0


def plain_grid(*shape: int) -> Tensor:
    return (torch.rand(shape, dtype=DOUBLE) * 1.6 - 0.8).requires_grad_()


def _norms() -> list[Tensor]:
    mean, variance = floats(3, grad=False), floats(3, grad=False)
    return [
        F.batch_norm(image(), None, None, floats(3), floats(3), training=True),
        F.batch_norm(image(), mean, variance, floats(3), floats(3)),
        F.layer_norm(floats(4, 3), (3,), floats(3), floats(3)),
        F.group_norm(floats(2, 4, 3), 2, floats(4), floats(4)),
        F.instance_norm(image(), weight=floats(3), bias=floats(3)),
        F.rms_norm(floats(4, 3), (3,), floats(3)),
        torch._weight_norm(floats(4, 3), floats(4, 1), 0),
        F.cosine_similarity(floats(4, 3), floats(4, 3)),
        F.softmax(floats(4, 3), 1),
        F.log_softmax(floats(4, 3), 1),
        aten._masked_softmax(floats(2, 2, 3, 3), mask(2, 2, 3, 3), 3, 2),
    ]


def _resampled() -> list[Tensor]:
    found = []
    for mode in ("bilinear", "nearest", "bicubic"):
        found.append(F.grid_sample(image(), plain_grid(2, 2, 3, 2), mode=mode, align_corners=True))
    found.append(F.grid_sample(floats(1, 2, 2, 3, 2), plain_grid(1, 2, 1, 2, 3), align_corners=True))
    return found


def _losses() -> list[Tensor]:
    x, y, sign = floats(4, 3), floats(4, 3), torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=DOUBLE)
    classes = whole(4, below=3)
    found = []
    for reduction in ("none", "mean", "sum"):
        options: dict[str, Any] = {"reduction": reduction}
        found += [
            F.mse_loss(x, y, **options),
            F.l1_loss(x, y, **options),
            F.huber_loss(x, y, **options),
            F.smooth_l1_loss(x, y, **options),
            F.kl_div(x, y, **options),
            F.soft_margin_loss(x, sign[:, None].expand(4, 3), **options),
            F.binary_cross_entropy(x, y.detach(), floats(4, 3, grad=False), **options),
            F.binary_cross_entropy_with_logits(
                x, y, floats(4, 3, grad=False), pos_weight=floats(3, grad=False), **options
            ),
            F.nll_loss(x, classes, floats(3, grad=False), **options),
            F.nll_loss(floats(2, 3, 2, 2), whole(2, 2, 2), floats(3, grad=False), **options),
            F.cross_entropy(x, y, label_smoothing=0.1, **options),
            F.multi_margin_loss(x, classes, p=2, weight=floats(3, grad=False), **options),
            F.multilabel_margin_loss(x, torch.tensor([[0, -1, 1]] * 4), **options),
            F.multilabel_soft_margin_loss(x, mask(4, 3).double(), **options),
            F.poisson_nll_loss(x, y, **options),
            F.gaussian_nll_loss(x, y, floats(4, 3), **options),
            F.cosine_embedding_loss(x, y, sign, **options),
            F.triplet_margin_loss(x, y, floats(4, 3), **options),
            F.margin_ranking_loss(x[:, 0], y[:, 0], sign, **options),
            F.hinge_embedding_loss(x[:, 0], sign, **options),
            F.ctc_loss(floats(4, 2, 3).log_softmax(2), torch.tensor([[1, 2], [2, 1]]), (4, 4), (2, 2), **options),
        ]
    return found


def _indexed() -> list[Tensor]:
    x, source, rows = floats(4, 3), floats(4, 3), torch.tensor([0, 2, 0, 1])
    wide = rows[:, None].expand(4, 3)
    with_duplicates = torch.tensor([0, 1, 0])
    return [
        x.index_add(0, rows, source, alpha=2),
        x.index_copy(0, torch.randperm(4), source),
        x.index_fill(1, rows[:1], 2),
        *(x.index_reduce(0, rows, source, kind) for kind in ("prod", "mean", "amax")),
        x.scatter(0, torch.randperm(4)[:, None].expand(4, 3), source),
        x.scatter_add(0, wide, source),
        x.detach().scatter(0, wide, source.detach(), reduce="multiply"),
        *(x.scatter_reduce(0, wide, source, kind) for kind in ("sum", "prod", "mean", "amax")),
        x.index_put((rows,), source, accumulate=True),
        x.index_put((rows,), floats(3), accumulate=True),
        x.put(rows, floats(4), accumulate=True),
        x.take(rows),
        x.gather(0, wide),
        x[rows],
        x.index_select(0, rows),
        x.masked_scatter(mask(4, 3), source),
        x.masked_select(mask(4, 3)),
        x.masked_fill(mask(4, 3), floats()),
        x.select_scatter(floats(3), 0, 1),
        x.slice_scatter(floats(2, 3), 0, 1, 3),
        x.diagonal_scatter(floats(3)),
        torch.as_strided_scatter(x, floats(2, 3), (2, 3), (3, 1)),
        torch.where(mask(4, 3), x, source),
        F.embedding(rows, x),
        F.embedding(rows, floats(4, 3, grad=False), max_norm=0.5),
        F.embedding_bag(rows, x, torch.tensor([0, 2])),
        F.embedding_bag(rows, x, torch.tensor([0, 2]), mode="mean"),
        torch.segment_reduce(x, "sum", lengths=torch.tensor([2, 2])),
        torch.segment_reduce(x, "prod", lengths=torch.tensor([2, 2])),
        torch.bincount(with_duplicates, floats(3, grad=False)),
        torch.histogram(floats(4, grad=False), 3, weight=floats(4, grad=False)).hist,
        torch.histogramdd(floats(4, 2, grad=False), [2, 2], weight=floats(4, grad=False)).hist,
        torch.bucketize(x.detach(), torch.tensor([0.2, 0.5], dtype=DOUBLE)),
        torch.isin(x.detach(), source.detach()),
        aten._unsafe_masked_index(x, mask(4, 1), [rows], 0.0),
        aten._unsafe_masked_index_put_accumulate(x.detach(), mask(4, 1), [rows], source.detach()),
        aten._unsafe_index(x, [rows]),
        aten._unsafe_index_put(x, [rows], source, True),
        aten._index_put_impl(x.detach(), [rows], source.detach(), True),
        nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_sequence([floats(3, 2), floats(2, 2)]))[0],
    ]


def _pooled() -> list[Tensor]:
    found: list[Tensor] = []
    for axes, shape in enumerate([(2, 2, 4), (2, 2, 4, 2), (1, 2, 2, 4, 2)], start=1):
        pools = [getattr(F, f"{kind}_pool{axes}d") for kind in ("max", "avg")]
        found += [pool(floats(*shape), 2, 2) for pool in pools]
        found += [getattr(F, f"adaptive_{kind}_pool{axes}d")(floats(*shape), 2) for kind in ("max", "avg")]
        pooled, indices = getattr(F, f"max_pool{axes}d")(floats(*shape), 2, 2, return_indices=True)
        found.append(getattr(F, f"max_unpool{axes}d")(pooled, indices, 2, 2))
        found += [F.pad(floats(*shape), (1, 1), mode=kind) for kind in ("reflect", "replicate") if axes == 1]
    fractions = torch.rand(2, 2, 2, dtype=DOUBLE)
    found.append(F.fractional_max_pool2d(floats(2, 2, 4, 4), 2, output_size=2, _random_samples=fractions))
    samples = torch.rand(1, 2, 3, dtype=DOUBLE)
    found.append(F.fractional_max_pool3d(floats(1, 2, 4, 4, 4), 2, output_size=2, _random_samples=samples))
    for kind, shape in (("reflect", (1, 1, 2, 3, 2)), ("replicate", (1, 1, 2, 3, 2)), ("reflect", (1, 2, 3, 2))):
        found.append(F.pad(floats(*shape), (1, 1) * (len(shape) - 2), mode=kind))
    return [*found, F.pad(floats(1, 2, 3, 2), (1, 1, 1, 1), mode="replicate")]


def _activations() -> list[Tensor]:
    x = floats(4, 3)
    plain = [
        F.elu,
        F.selu,
        F.celu,
        F.gelu,
        F.silu,
        F.mish,
        F.sigmoid,
        F.logsigmoid,
        F.tanh,
        F.hardtanh,
        F.hardswish,
        F.hardsigmoid,
        F.hardshrink,
        F.softshrink,
        F.softplus,
        F.leaky_relu,
        F.relu,
        F.relu6,
        F.softsign,
        F.tanhshrink,
        lambda x: F.softmin(x, 1),
        lambda x: F.glu(x[:, :2]),
        lambda x: F.threshold(x, 0.1, 0.0),
        lambda x: F.rrelu(x - 0.5, training=True),
        lambda x: F.dropout(x),
        torch.logit,
    ]
    with_tangent = torch.func.jvp(F.glu, (x[:, :2].detach(),), (torch.ones(4, 2, dtype=DOUBLE),))
    return [*(kind(x) for kind in plain), F.prelu(x, floats(3)), *with_tangent]


def _scans() -> list[Any]:
    x = floats(4, 3)
    return [
        x.cumsum(0),
        x.cumprod(0),
        x.logcumsumexp(0),
        x.cummax(0).values,
        x.cummin(0).values,
        x.max(0).values,
        x.median(0).values,
        x.kthvalue(1, 0).values,
        x.sort(0).values,
        x.std(0),
        x.var(0),
        x.norm(),
        x.prod(0),
        torch.dist(x, floats(4, 3)),
        torch.dist(x, floats(4, 3), 1),
        torch.renorm(x, 2, 0, 0.5),
        x.trace(),
        torch.linalg.cross(x, floats(4, 3)),
        torch.cat([x, x]),
        torch.stack([x, floats(4, 3)]),
        torch.block_diag(x, floats(2, 2)),
        torch.allclose(x, x),
        torch.equal(x, x),
        x.unfold(0, 2, 1),
        F.unfold(floats(1, 2, 3, 3), 2),
        F.fold(floats(1, 4, 4), (3, 3), 2),
        torch.searchsorted(x.detach(), floats(4, 3)),
        x.logsumexp(0),
    ]


def differentiated(work: Callable[[], Any]) -> None:
    """Do the work, and the backward pass of everything differentiable that it returns."""
    for tensor in pytree.tree_leaves(work()):
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            tensor.backward(torch.rand_like(tensor), retain_graph=True)


WORK: dict[str, Callable[[], Any]] = {
    "normalisation": _norms,
    "resampling": _resampled,
    "losses": _losses,
    "indexing": _indexed,
    "pooling": _pooled,
    "activations": _activations,
    "scans and reductions": _scans,
}
