"""Firefly's last step: the selected candidates become ordinary units, and the other candidates are dropped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from agents.learners.firefly.overgrown import OvergrownVGG19
from agents.learners.firefly.settings import GrowthSettings
from agents.networks.firefly_network import FireflyVGG19

# Per convolution, a bool tensor (c + K,): whether each channel is split, then whether each new channel is kept.
# With depth (c + K + 1,): the last entry is whether the new residual layer after the convolution is kept.
Selection = Sequence[Tensor]


@torch.no_grad()
def materialise(
    network: FireflyVGG19,
    overgrown: OvergrownVGG19,
    selection: Selection,
    settings: GrowthSettings,
    generator: torch.Generator,
) -> FireflyVGG19:
    """Return the network in which the selected candidates are ordinary channels.

    The channels of a layer are first the old ones, with W + V if they were split, then the second halves of the splits,
    with W − V, then the new ones. The next layer halves its weights from both halves of a split. `generator` only
    has an effect with `quirks`: it draws the biases of the classifier.
    """
    channels = [layer.candidates for layer in overgrown.layers]
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
    from_new_units = torch.zeros_like if settings.new_units == "zero_out" else torch.clone
    layers = zip(network.norms, grown.convolutions, grown.norms, overgrown.layers, selection, strict=True)
    for layer, (old_norm, new_convolution, new_norm, candidates, chosen) in enumerate(layers):
        weight = candidates.weight
        split, new = torch.split(chosen.to(device), [len(weight), len(candidates.incoming)])
        directions = candidates.split_directions.where(split[:, None, None, None], 0.0)
        ordinary = torch.cat([weight + directions, (weight - directions)[split], candidates.incoming[new]])
        from_new = _output_rows(from_new_units(candidates.outgoing), split, new)
        new_convolution.weight.copy_(_input_columns(ordinary, from_new, split_inputs, new_inputs))
        _copy_norm(old_norm, new_norm, split)
        sources = [source for source in overgrown.residual_layers[layer] if kept[layer] or not source.is_candidate]
        for residual, source in zip(grown.residual_layers[layer], sources, strict=True):
            ordinary = _output_rows(torch.cat([source.weight, source.incoming]), split, new)
            from_new = _output_rows(from_new_units(source.outgoing), split, new)
            residual.convolution.weight.copy_(_input_columns(ordinary, from_new, split, new))
        split_inputs, new_inputs = split, new
    outgoing = torch.zeros_like(overgrown.outgoing) if settings.quirks else from_new_units(overgrown.outgoing)
    grown.classifier.weight.copy_(_input_columns(overgrown.weight, outgoing, split_inputs, new_inputs))
    if not settings.quirks:
        grown.classifier.bias.copy_(overgrown.bias)
    return grown


def _output_rows(weights: Tensor, split: Tensor, new: Tensor) -> Tensor:
    """Reorder weights (c + K, ...) to old channels, second halves of splits, kept new channels."""
    ordinary, of_new = torch.split(weights, [len(split), len(new)])
    return torch.cat([ordinary, ordinary[split], of_new[new]])


def _input_columns(ordinary: Tensor, from_new: Tensor, split: Tensor, new: Tensor) -> Tensor:
    """Join weights (outputs, c', ...) and (outputs, K, ...) to (outputs, c' + splits + kept new channels, ...)."""
    ordinary = ordinary.clone()
    ordinary[:, split] *= 0.5
    return torch.cat([ordinary, ordinary[:, split], from_new[:, new]], 1)


def _copy_norm(old: nn.BatchNorm2d, grown: nn.BatchNorm2d, split: Tensor) -> None:
    """Copy the old entries to old channels and second halves of splits. New channels keep those of a new BatchNorm."""
    for name in ("weight", "bias", "running_mean", "running_var"):
        entries = getattr(old, name)
        entries = torch.cat([entries, entries[split]])
        getattr(grown, name)[: len(entries)].copy_(entries)
    assert grown.num_batches_tracked is not None
    assert old.num_batches_tracked is not None
    grown.num_batches_tracked.copy_(old.num_batches_tracked)
