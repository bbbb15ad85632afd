"""Firefly's over-grown network: VGG19 with many weak candidate units in every layer, and how the chosen ones are kept.

Wu et al. 2020, "Firefly Neural Architecture Descent", sections 2 and 3, in the form of the authors' code. In a
convolution with weights W, c channels and c' inputs, whose input layer has new channels u of its own:

split of a channel:  σ(θ) → ½ [σ(θ + V) + σ(θ − V)]      o± = W∗x ± γ V∗x + M∗u
new channel:         σ(A)                                o  = γ A∗x + M∗u

x is the ordinary input, M are the outgoing weights of the previous layer's new channels, and γ is the candidate's
gate, 1 except where the candidates are scored. W and the batch statistics are frozen. The classifier is not split and
gets no new outputs, but it has an M.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.firefly_network import CONVOLUTIONS, FireflyVGG19
from agents.networks import VGG19_BLOCKS

NewUnits = Literal["tuned", "zero_out"]

# Per convolution a bool tensor (c + K,): which of its channels are split, then which of its new channels are kept.
Selection = Sequence[Tensor]

_BLOCK_ENDS = frozenset(accumulate(VGG19_BLOCKS))


class OvergrownConvolution(nn.Module):
    """One convolution, its BatchNorm in eval mode, ReLU and, at the end of a block, the pooling, with candidates.

    The candidates are the parameters; all else is frozen. They are drawn on the CPU, V first, then A, then M.

    Attributes:
        split_directions: V (c, c', 3, 3), from U(−0.1, 0.1).
        incoming: A (K, c', 3, 3), from N(0, 0.1²).
        outgoing: M (c + K, K, 3, 3), from U(−0.01, 0.01); (c + K, 0, 3, 3) in the first layer.
    """

    weight: Tensor
    mean: Tensor
    variance: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        convolution: nn.Conv2d,
        norm: nn.BatchNorm2d,
        candidates: int,
        generator: torch.Generator,
        *,
        new_inputs: int,
        pool: bool,
    ) -> None:
        super().__init__()
        channels, inputs = convolution.weight.shape[:2]
        assert norm.running_mean is not None
        assert norm.running_var is not None
        frozen = {
            "weight": convolution.weight,
            "mean": norm.running_mean,
            "variance": norm.running_var,
            "scale": norm.weight,
            "shift": norm.bias,
        }
        for name, tensor in frozen.items():
            self.register_buffer(name, tensor.detach().clone())
        directions = torch.empty(channels, inputs, 3, 3).uniform_(-0.1, 0.1, generator=generator)
        incoming = torch.empty(candidates, inputs, 3, 3).normal_(0, 0.1, generator=generator)
        outgoing = torch.empty(channels + candidates, new_inputs, 3, 3).uniform_(-0.01, 0.01, generator=generator)
        self.split_directions = nn.Parameter(directions.to(self.weight))
        self.incoming = nn.Parameter(incoming.to(self.weight))
        self.outgoing = nn.Parameter(outgoing.to(self.weight))
        self.eps = norm.eps
        self.pool = pool

    def forward(self, x: Tensor, new: Tensor | None, gates: Tensor | None) -> tuple[Tensor, Tensor]:
        """Ordinary channels x (n, c', H, W) and new ones (n, K, H, W), gates γ (c + K,) -> this layer's c and K."""
        ordinary = F.conv2d(x, self.weight, padding=1)  # (n, c, H, W)
        terms = F.conv2d(x, torch.cat([self.split_directions, self.incoming]), padding=1)  # (n, c + K, H, W)
        if gates is not None:
            terms = terms * gates[:, None, None]
        sizes = [len(self.split_directions), len(self.incoming)]
        direction, fresh = torch.split(terms, sizes, 1)
        if new is not None:
            to_ordinary, to_fresh = torch.split(F.conv2d(new, self.outgoing, padding=1), sizes, 1)
            ordinary, fresh = ordinary + to_ordinary, fresh + to_fresh
        # The halves of a split are channels of their own, so each is pooled before their mean is taken.
        halves = self._rectify(self._normalize(ordinary + direction)) + self._rectify(
            self._normalize(ordinary - direction)
        )
        # A new channel begins with the statistics of an untrained BatchNorm: mean 0, variance 1.
        return 0.5 * halves, self._rectify(fresh * (1 + self.eps) ** -0.5)

    def _normalize(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.variance, self.scale, self.shift, training=False, eps=self.eps)

    def _rectify(self, x: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(x), 2) if self.pool else F.relu(x)


class OvergrownVGG19(nn.Module):
    """A frozen copy of a network with K = `candidates` new channels per convolution and a split of every channel.

    (n, in_channels, 32, 32) -> (n, classes) logits. For c channels everywhere, 3 input channels and 10 classes one
    example takes 9 ((c + K)² + c²) · 1872 + 27 (2 c + K) · 1024 + 10 (c + K) multiply-adds.

    Args:
        network: what is grown; it stays as it is.
        candidates: K.
        generators: one per convolution and one for the classifier, on the CPU.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, network: FireflyVGG19, candidates: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        if candidates < 1:
            raise ValueError(f"candidates={candidates}: must be at least 1 new channel per layer")
        self.convolutions = nn.ModuleList(
            OvergrownConvolution(
                convolution,
                norm,
                candidates,
                generator,
                new_inputs=0 if layer == 0 else candidates,
                pool=layer + 1 in _BLOCK_ENDS,
            )
            for layer, (convolution, norm, generator) in enumerate(
                zip(network.convolutions, network.norms, generators[:CONVOLUTIONS], strict=True)
            )
        )
        self.register_buffer("weight", network.classifier.weight.detach().clone())
        self.register_buffer("bias", network.classifier.bias.detach().clone())
        outgoing = torch.empty(network.classes, candidates)
        outgoing.uniform_(-0.01, 0.01, generator=generators[CONVOLUTIONS])
        self.outgoing = nn.Parameter(outgoing.to(self.weight))
        self.candidates_per_layer = [width + candidates for width in network.widths]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor, gates: Tensor | None = None) -> Tensor:
        """Normalised images -> logits (n, classes). `gates` holds γ of all candidates, layer by layer; None is 1."""
        new: Tensor | None = None
        per_layer = [None] * CONVOLUTIONS if gates is None else torch.split(gates, self.candidates_per_layer)
        for convolution, layer_gates in zip(self.convolutions, per_layer, strict=True):
            x, new = convolution(x, new, layer_gates)
        assert new is not None
        return F.linear(x.flatten(1), self.weight, self.bias) + F.linear(new.flatten(1), self.outgoing)

    def squared_norms(self) -> Tensor:
        """Σ_l ‖V_l‖² + 0.01 ‖A_l‖², which the tuning penalises."""
        layers = [layer for layer in self.convolutions if isinstance(layer, OvergrownConvolution)]
        norms = [layer.split_directions.square().sum() + 0.01 * layer.incoming.square().sum() for layer in layers]
        return torch.stack(norms).sum()


@torch.no_grad()
def materialise(
    network: FireflyVGG19,
    overgrown: OvergrownVGG19,
    selection: Selection,
    *,
    new_units: NewUnits = "tuned",
    quirks: bool = False,
    generator: torch.Generator,
) -> FireflyVGG19:
    """The network in which the selected candidates are channels like any other; the rest of them is gone.

    A layer's channels are the old ones, with W + V where they were split, then the other halves of these, with W − V,
    then the new ones. The next layer halves its weights from both halves. With `zero_out` no layer hears the new
    channels yet, so that they alone leave the function as it is.

    `quirks` does as the authors' code: the classifier does not hear the new channels, and its biases are drawn anew,
    from `generator`, which is used for nothing else.
    """
    widths = [width + int(chosen.sum()) for width, chosen in zip(network.widths, selection, strict=True)]
    grown = FireflyVGG19(widths, network.classes, network.in_channels, generator=generator)
    grown.to(network.classifier.weight)
    grown.train(network.training)
    device = network.classifier.weight.device
    split_inputs = torch.zeros(network.in_channels, dtype=torch.bool, device=device)
    new_inputs = torch.zeros(0, dtype=torch.bool, device=device)
    silent = new_units == "zero_out"
    layers = zip(network.norms, grown.convolutions, grown.norms, overgrown.convolutions, selection, strict=True)
    for old_norm, new_convolution, new_norm, candidates, chosen in layers:
        assert isinstance(candidates, OvergrownConvolution)
        weight, width = candidates.weight, len(candidates.weight)
        outgoing = torch.zeros_like(candidates.outgoing) if silent else candidates.outgoing
        split, new = torch.split(chosen.to(device), [width, len(candidates.incoming)])
        directions = candidates.split_directions.where(split[:, None, None, None], 0.0)
        ordinary = [weight + directions, (weight - directions)[split], candidates.incoming[new]]
        from_new = [outgoing[:width], outgoing[:width][split], outgoing[width:][new]]
        columns = _input_columns(torch.cat(ordinary), torch.cat(from_new), split_inputs, new_inputs)
        new_convolution.weight.copy_(columns)
        _copy_norm(old_norm, new_norm, split)
        split_inputs, new_inputs = split, new
    outgoing = torch.zeros_like(overgrown.outgoing) if silent or quirks else overgrown.outgoing
    grown.classifier.weight.copy_(_input_columns(overgrown.weight, outgoing, split_inputs, new_inputs))
    if not quirks:
        grown.classifier.bias.copy_(overgrown.bias)
    return grown


def _input_columns(ordinary: Tensor, from_new: Tensor, split: Tensor, new: Tensor) -> Tensor:
    """Weights (outputs, c', ...) and (outputs, K, ...) as (outputs, c' + splits + kept new channels, ...)."""
    ordinary = ordinary.clone()
    ordinary[:, split] *= 0.5
    return torch.cat([ordinary, ordinary[:, split], from_new[:, new]], 1)


def _copy_norm(old: nn.BatchNorm2d, grown: nn.BatchNorm2d, split: Tensor) -> None:
    """Old channels and second halves of splits have the old entries; new channels those of an untrained BatchNorm."""
    for name in ("weight", "bias", "running_mean", "running_var"):
        entries = getattr(old, name)
        entries = torch.cat([entries, entries[split]])
        getattr(grown, name)[: len(entries)].copy_(entries)
    assert grown.num_batches_tracked is not None
    assert old.num_batches_tracked is not None
    grown.num_batches_tracked.copy_(old.num_batches_tracked)
