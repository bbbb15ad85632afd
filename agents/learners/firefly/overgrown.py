"""Firefly's over-grown network: VGG19 with many weak candidate units in every layer.

Wu et al. 2020, "Firefly Neural Architecture Descent", sections 2 and 3, in the form of the authors' code. For a
convolution with weights W, c channels and c' inputs, after a layer with new channels u:

split of a channel:  σ(θ) → ½ [σ(θ + V) + σ(θ − V)]      o± = W∗x ± γ V∗x + M∗u
new channel:         σ(A)                                o  = γ A∗x + M∗u

x is the ordinary input, M are the weights from the previous layer's new channels, and γ is the candidate's gate. γ is
1 except during scoring. W and the batch statistics are frozen. The classifier has an M, but no splits and no new
outputs.

With depth, a new residual layer is one more candidate after each convolution: x → x + γ σ(D∗x). It spans the ordinary
and the new channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.firefly_network import CONVOLUTIONS, FireflyVGG19
from agents.networks.mlp_vgg import VGG19_BLOCKS

_BLOCK_ENDS = frozenset(accumulate(VGG19_BLOCKS))


class OvergrownConvolution(nn.Module):
    """A convolution with candidates, its BatchNorm in eval mode, ReLU and, at the end of a block, the pooling.

    Only the candidates are parameters. They are drawn on the CPU in the order V, A, M.

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

    @property
    def candidates(self) -> int:
        """Number of candidates: c splits and K new channels."""
        return len(self.split_directions) + len(self.incoming)

    def split_gates(self, gates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split γ (c + K [+ 1],) into γ of all units (c + K,), new channels (K,) and, with depth, the layer ()."""
        return gates[: self.candidates], gates[len(self.split_directions) : self.candidates], gates[-1]

    def forward(self, x: Tensor, new: Tensor | None, gates: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return this layer's c and K channels for inputs x (n, c', H, W) and `new` (n, K, H, W), gates γ (c + K,)."""
        ordinary = F.conv2d(x, self.weight, padding=1)  # (n, c, H, W)
        terms = F.conv2d(x, torch.cat([self.split_directions, self.incoming]), padding=1)  # (n, c + K, H, W)
        if gates is not None:
            terms = terms * gates[:, None, None]
        sizes = [len(self.split_directions), len(self.incoming)]
        direction, fresh = torch.split(terms, sizes, 1)
        if new is not None:
            to_ordinary, to_fresh = torch.split(F.conv2d(new, self.outgoing, padding=1), sizes, 1)
            ordinary, fresh = ordinary + to_ordinary, fresh + to_fresh
        # The halves of a split become separate channels, so each is pooled before the mean.
        halves = self._rectify(self._normalize(ordinary + direction)) + self._rectify(
            self._normalize(ordinary - direction)
        )
        # A new channel has the statistics of an untrained BatchNorm: mean 0, variance 1.
        return 0.5 * halves, self._rectify(fresh * (1 + self.eps) ** -0.5)

    def _normalize(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.variance, self.scale, self.shift, training=False, eps=self.eps)

    def _rectify(self, x: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(x), 2) if self.pool else F.relu(x)


class OvergrownResidual(nn.Module):
    """A residual layer that spans the ordinary channels x and the new ones u.

    candidate layer:   [x, u] → [x, u] + γ σ([R M₁; A M₂] ∗ [x, u])
    existing layer:    [x, u] → [x, u] + σ([R∗x + M₁∗u; γ A∗x + M₂∗u])   with the γ of the new channels

    In an existing layer, R (c, c, 3, 3) is frozen. The other weights, R, A (K, c, 3, 3) and M (c + K, K, 3, 3), are
    drawn from U(−0.01, 0.01) in this order, and tuned.
    """

    weight: Tensor  # R

    def __init__(self, width: int, candidates: int, generator: torch.Generator, frozen: Tensor | None) -> None:
        super().__init__()

        def small(outputs: int, inputs: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(outputs, inputs, 3, 3).uniform_(-0.01, 0.01, generator=generator))

        self.is_candidate = frozen is None
        if frozen is None:
            self.weight = small(width, width)
        else:
            self.register_buffer("weight", frozen.detach().clone())
        self.incoming = small(candidates, width)
        self.outgoing = small(width + candidates, candidates)

    def forward(self, x: Tensor, new: Tensor, gates: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return both outputs for ordinary channels (n, c, H, W), new ones (n, K, H, W) and γ, () or (K,)."""
        terms = F.conv2d(x, torch.cat([self.weight, self.incoming]), padding=1)
        if gates is not None and not self.is_candidate:
            terms = terms * torch.cat([torch.ones_like(self.weight[:, 0, 0, 0]), gates])[:, None, None]
        step = F.relu(terms + F.conv2d(new, self.outgoing, padding=1))
        if gates is not None and self.is_candidate:
            step = step * gates
        to_ordinary, to_new = torch.split(step, [len(self.weight), len(self.incoming)], 1)
        return x + to_ordinary, new + to_new


class OvergrownVGG19(nn.Module):
    """A frozen copy of a network with K = `candidates` new channels per convolution and a split of every channel.

    (n, in_channels, 32, 32) -> (n, classes) logits. For c channels everywhere, 3 input channels and 10 classes one
    example takes 9 ((c + K)² + c²) · 1872 + 27 (2 c + K) · 1024 + 10 (c + K) multiply-adds, before any depth.

    Args:
        network: the network to grow, which does not change.
        generators: one per convolution, one for the classifier and, for residual layers, another one per convolution;
            on the CPU.
        depth: add a candidate residual layer after each convolution and its existing residual layers.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self, network: FireflyVGG19, candidates: int, generators: Sequence[torch.Generator], *, depth: bool = False
    ) -> None:
        super().__init__()
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
        self.residuals = nn.ModuleList(
            nn.ModuleList(
                OvergrownResidual(width, candidates, generator, weight).to(self.weight)
                for weight in [*(layer.convolution.weight for layer in layers), *[None] * depth]
            )
            for layers, width, generator in zip(
                network.residual_layers, network.widths, generators[CONVOLUTIONS + 1 :], strict=True
            )
        )
        self.candidates_per_layer = [width + candidates + depth for width in network.widths]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor, gates: Tensor | None = None) -> Tensor:
        """Return the logits (n, classes) of normalised images. `gates` holds γ of all candidates; None is all 1."""
        new: Tensor | None = None
        per_layer = [None] * CONVOLUTIONS if gates is None else torch.split(gates, self.candidates_per_layer)
        for convolution, residuals, gate in zip(self.layers, self.residual_layers, per_layer, strict=True):
            of_units, of_new, of_layer = (None,) * 3 if gate is None else convolution.split_gates(gate)
            x, new = convolution(x, new, of_units)
            for residual in residuals:
                x, new = residual(x, new, of_layer if residual.is_candidate else of_new)
        assert new is not None
        return F.linear(x.flatten(1), self.weight, self.bias) + F.linear(new.flatten(1), self.outgoing)

    @property
    def layers(self) -> list[OvergrownConvolution]:
        """The convolutions, in the order of the forward pass."""
        return [layer for layer in self.convolutions if isinstance(layer, OvergrownConvolution)]

    @property
    def residual_layers(self) -> list[list[OvergrownResidual]]:
        """The residual layers after each convolution. With depth, the last one is a candidate."""
        groups = [group for group in self.residuals if isinstance(group, nn.ModuleList)]
        return [[layer for layer in group if isinstance(layer, OvergrownResidual)] for group in groups]

    def squared_norms(self) -> Tensor:
        """Return the penalty of the tuning: Σ_l ‖V_l‖² + 0.01 ‖A_l‖², and ‖R_l‖² of candidate residual layers."""
        norms = [layer.split_directions.square().sum() + 0.01 * layer.incoming.square().sum() for layer in self.layers]
        residuals = chain(*self.residual_layers)
        norms += [layer.weight.square().sum() for layer in residuals if layer.is_candidate]
        return torch.stack(norms).sum()

    def neurons(self) -> Tensor:
        """Return the number of neurons of each candidate, (candidates,): 1, and c for a residual layer."""
        sizes = []
        for layer, count in zip(self.layers, self.candidates_per_layer, strict=True):
            sizes += [1] * layer.candidates + [len(layer.weight)] * (count - layer.candidates)
        return torch.tensor(sizes).to(self.weight)
