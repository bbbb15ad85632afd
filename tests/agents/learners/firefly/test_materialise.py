"""A grown network computes what the over-grown network computes with the selected candidates alone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from agents.learners.firefly.materialise import materialise
from agents.learners.firefly.overgrown import OvergrownVGG19
from agents.learners.firefly.settings import GrowthSettings
from agents.networks.firefly_network import FireflyVGG19

from ...random_examples import seeded
from .small_firefly import CANDIDATES, DEEP, DEPTHS, FLAT, MIXED, active_network, images, overgrow, scale_up


def set_to_zero(overgrown: OvergrownVGG19, selection: list[torch.Tensor]) -> None:
    """Set the candidates that were not selected to zero."""
    for layer, residuals, chosen, width in zip(
        overgrown.convolutions, overgrown.residual_layers, selection, MIXED, strict=True
    ):
        kept = chosen[width : width + CANDIDATES]
        layer.split_directions.data[~chosen[:width]] = 0
        layer.incoming.data[~kept] = 0
        layer.outgoing.data[width:][~kept] = 0
        for residual in residuals:
            residual.incoming.data[~kept] = 0
            residual.outgoing.data[width:][~kept] = 0
            if residual.is_candidate and not chosen[-1]:
                for parameter in residual.parameters():
                    parameter.data.zero_()


def half_of(overgrown: OvergrownVGG19, seed: int = 4) -> list[torch.Tensor]:
    """Return a selection of about half of all candidates."""
    generator = seeded(seed)
    return [torch.rand(count, generator=generator) < 0.5 for count in overgrown.candidates_per_layer]


def grow_by(network: FireflyVGG19, overgrown: OvergrownVGG19, selection: Any, **options: Any) -> FireflyVGG19:
    return materialise(network, overgrown, selection, GrowthSettings(**options), seeded())


@DEPTHS
@pytest.mark.parametrize("seed", range(3))
def test_without_directions_and_outgoing_weights_growth_keeps_the_function(
    seed: int, residuals: tuple[int, ...], depth: bool
) -> None:
    network = active_network(residuals)
    overgrown = overgrow(network, depth=depth)
    for layer in overgrown.convolutions:
        layer.split_directions.data.zero_()
        layer.outgoing.data.zero_()
    for layer in itertools.chain(*overgrown.residual_layers):
        layer.outgoing.data.zero_()
        if layer.is_candidate:
            layer.weight.data.zero_()
    overgrown.outgoing.data.zero_()
    selection = half_of(overgrown, seed)
    grown = grow_by(network, overgrown, selection)
    units = [part[: len(part) - depth].sum() for part in selection]
    assert grown.widths == tuple(width + int(more) for width, more in zip(MIXED, units, strict=True))
    if depth:
        kept = [int(part[-1]) for part in selection]
        assert grown.residuals == tuple(old + new for old, new in zip(residuals, kept, strict=True))
    assert (grown(images()) - network(images())).abs().max() < 1e-12


@DEPTHS
@pytest.mark.parametrize("seed", range(3))
def test_the_grown_network_equals_the_overgrown_one_with_other_candidates_zero(
    seed: int, residuals: tuple[int, ...], depth: bool
) -> None:
    network = active_network(residuals)
    overgrown = overgrow(network, depth=depth)
    scale_up(overgrown)
    selection = half_of(overgrown, seed)
    grown = grow_by(network, overgrown, selection)
    assert (grown(images()) - overgrown(images())).abs().max() > 1e-4
    set_to_zero(overgrown, selection)
    assert (grown(images()) - overgrown(images())).abs().max() < 1e-12
    assert (grown(images()) - network(images())).abs().max() > 1e-4


def test_each_single_candidate_is_materialised_at_its_position() -> None:
    network = active_network()
    for layer, unit in itertools.product((0, 1, 7, 15), (0, 1, -1)):
        overgrown = overgrow(network)
        scale_up(overgrown)
        selection = [torch.zeros(count, dtype=torch.bool) for count in overgrown.candidates_per_layer]
        selection[layer][unit] = True
        grown = grow_by(network, overgrown, selection)
        set_to_zero(overgrown, selection)
        assert sum(grown.widths) == sum(MIXED) + 1
        assert (grown(images()) - overgrown(images())).abs().max() < 1e-12


@pytest.mark.parametrize("residuals", [FLAT, DEEP])
def test_zero_out_channels_have_no_effect_at_first_and_can_learn(residuals: tuple[int, ...]) -> None:
    network = active_network(residuals)
    overgrown = overgrow(network)
    scale_up(overgrown)
    selection = [torch.arange(width + CANDIDATES) >= width for width in MIXED]
    assert (grow_by(network, overgrown, selection)(images()) - network(images())).abs().max() > 1e-4
    grown = grow_by(network, overgrown, selection, new_units="zero_out")
    assert (grown(images()) - network(images())).abs().max() < 1e-12
    F.cross_entropy(grown(images()), torch.arange(4)).backward()
    grad = grown.classifier.weight.grad
    assert grad is not None
    assert grad[:, MIXED[-1] :].abs().max() > 0


def test_the_classifier_keeps_its_biases_and_outgoing_weights_except_with_quirks() -> None:
    network = active_network()
    overgrown = overgrow(network)
    selection = [torch.ones(count, dtype=torch.bool) for count in overgrown.candidates_per_layer]
    kept, quirky = (grow_by(network, overgrown, selection, quirks=quirks) for quirks in (False, True))
    old = 2 * MIXED[-1]
    for grown in (kept, quirky):
        assert grown.classes == 10
        halves = network.classifier.weight / 2
        assert torch.equal(grown.classifier.weight[:, :old], torch.cat([halves, halves], 1))
    assert torch.equal(kept.classifier.bias, network.classifier.bias)
    assert torch.equal(kept.classifier.weight[:, old:], overgrown.outgoing)
    assert not torch.isclose(quirky.classifier.bias, network.classifier.bias).any()
    assert not quirky.classifier.weight[:, old:].any()
    drawn = FireflyVGG19(kept.widths, 10, generator=seeded()).classifier.bias
    assert torch.equal(quirky.classifier.bias.float(), drawn)
