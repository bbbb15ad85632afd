"""Firefly's last step: the selected candidates become units like any other, and the rest of them is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from agents.firefly_network import FireflyVGG19
from agents.overgrown import OvergrownConvolution, OvergrownVGG19

NewUnits = Literal["tuned", "zero_out"]

# Per convolution a bool tensor (c + K,): which of its channels are split, then which of its new channels are kept.
# With depth (c + K + 1,): last, whether the new residual layer after it is kept.
Selection = Sequence[Tensor]


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
    channels = [layer.candidates for layer in overgrown.convolutions if isinstance(layer, OvergrownConvolution)]
    kept = [bool(chosen[count:].any()) for chosen, count in zip(selection, channels, strict=True)]
    selection = [chosen[:count] for chosen, count in zip(selection, channels, strict=True)]
    widths = [width + int(chosen.sum()) for width, chosen in zip(network.widths, selection, strict=True)]
    residuals = [old + more for old, more in zip(network.residuals, kept, strict=True)]
    grown = FireflyVGG19(widths, network.classes, network.in_channels, residuals=residuals, generator=generator)
    grown.to(network.classifier.weight)
    grown.train(network.training)
    device = network.classifier.weight.device
    split_inputs = torch.zeros(network.in_channels, dtype=torch.bool, device=device)
    new_inputs = torch.zeros(0, dtype=torch.bool, device=device)
    heard = torch.zeros_like if new_units == "zero_out" else torch.clone
    layers = zip(network.norms, grown.convolutions, grown.norms, overgrown.convolutions, selection, strict=True)
    for layer, (old_norm, new_convolution, new_norm, candidates, chosen) in enumerate(layers):
        assert isinstance(candidates, OvergrownConvolution)
        weight = candidates.weight
        split, new = torch.split(chosen.to(device), [len(weight), len(candidates.incoming)])
        directions = candidates.split_directions.where(split[:, None, None, None], 0.0)
        ordinary = torch.cat([weight + directions, (weight - directions)[split], candidates.incoming[new]])
        from_new = _rows(heard(candidates.outgoing), split, new)
        new_convolution.weight.copy_(_input_columns(ordinary, from_new, split_inputs, new_inputs))
        _copy_norm(old_norm, new_norm, split)
        sources = [source for source in overgrown.residual_layers[layer] if kept[layer] or not source.is_candidate]
        for residual, source in zip(grown.residual_layers[layer], sources, strict=True):
            ordinary = _rows(torch.cat([source.weight, source.incoming]), split, new)
            from_new = _rows(heard(source.outgoing), split, new)
            residual.convolution.weight.copy_(_input_columns(ordinary, from_new, split, new))
        split_inputs, new_inputs = split, new
    outgoing = torch.zeros_like(overgrown.outgoing) if quirks else heard(overgrown.outgoing)
    grown.classifier.weight.copy_(_input_columns(overgrown.weight, outgoing, split_inputs, new_inputs))
    if not quirks:
        grown.classifier.bias.copy_(overgrown.bias)
    return grown


def _rows(weights: Tensor, split: Tensor, new: Tensor) -> Tensor:
    """Weights (c + K, ...) of ordinary and new channels as those of the old, of splits' second halves, of the new."""
    ordinary, of_new = torch.split(weights, [len(split), len(new)])
    return torch.cat([ordinary, ordinary[split], of_new[new]])


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
