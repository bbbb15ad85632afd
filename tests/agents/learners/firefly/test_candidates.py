"""The candidates of an over-grown network: their gates, their tuning, and their scores (Wu et al. 2020)."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F

from agents.learners.firefly.selection import score, tune
from agents.learners.firefly.settings import GrowthSettings

from .small_firefly import CANDIDATES, DEPTHS, active_network, images, overgrow, scale_up


@DEPTHS
def test_an_overgrown_network_with_closed_gates_equals_the_network(residuals: tuple[int, ...], depth: bool) -> None:
    network = active_network(residuals)
    overgrown = overgrow(network, depth=depth)
    scale_up(overgrown)
    gates = torch.zeros(sum(overgrown.candidates_per_layer), dtype=torch.float64)
    assert (overgrown(images(), gates) - network(images())).abs().max() < 1e-12
    assert torch.equal(overgrown(images(), gates + 1), overgrown(images()))
    assert (overgrown(images()) - network(images())).abs().max() > 1e-4
    assert network(images()).std() > 0.05


def test_tuning_descends_the_penalised_loss_on_the_candidates_only() -> None:
    network = active_network()
    overgrown, settings = overgrow(network), GrowthSettings(tuning_rate=0.02, penalty=0.5)
    by_hand = copy.deepcopy(overgrown)
    batches = [(images(3, seed), torch.arange(3)) for seed in range(3)]
    tune(overgrown, batches, settings)

    means = [torch.zeros_like(parameter) for parameter in by_hand.parameters()]
    speeds = [torch.zeros_like(parameter) for parameter in by_hand.parameters()]
    for x, y in batches:
        loss = F.cross_entropy(by_hand(x), y)
        for layer in by_hand.convolutions:
            loss = loss + 0.5 * (layer.split_directions**2).sum() + 0.5 * 0.01 * (layer.incoming**2).sum()
        candidates = [parameter for parameter in by_hand.parameters() if parameter.numel()]
        slopes = iter(torch.autograd.grad(loss, candidates))
        for parameter, mean, speed in zip(by_hand.parameters(), means, speeds, strict=True):
            if parameter.numel():
                slope = next(slopes)
                mean.mul_(0.9).add_(0.1 * slope**2)
                speed.mul_(0.1).add_(slope / (mean.sqrt() + 1e-8))
                parameter.data -= 0.02 * speed
    for ours, expected in zip(overgrown.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(ours, expected)
    for ours, frozen in zip(overgrown.buffers(), overgrow(network).buffers(), strict=True):
        assert torch.equal(ours, frozen)


@DEPTHS
def test_the_score_is_the_derivative_of_the_loss_with_respect_to_the_gate(
    residuals: tuple[int, ...], depth: bool
) -> None:
    network, x, y = active_network(residuals), images(6), torch.arange(6)
    overgrown = overgrow(network, depth=depth)
    scale_up(overgrown)
    batches = [(x[:4], y[:4]), (x[4:], y[4:])]
    # The number of points is the same for all units, so that more points are tried on fewer units.
    for points, where, every in ((0, [1.0], 5), (1, [0.5], 11), (3, [1 / 6, 3 / 6, 5 / 6], 17)):
        scores = score(overgrown, batches, points)
        assert scores.count_nonzero() > len(scores) / 2
        for unit in range(0, len(scores), every):
            slopes = []
            for gamma, (part_x, part_y) in itertools.product(where, batches):
                losses = []
                for step in (1e-6, -1e-6):
                    gates = torch.full_like(scores, gamma)
                    gates[unit] += step
                    losses.append(F.cross_entropy(overgrown(part_x, gates), part_y).item())
                slopes.append((losses[0] - losses[1]) / 2e-6)
            assert scores[unit].item() == pytest.approx(sum(slopes) / len(slopes), rel=1e-4, abs=1e-8)


def test_the_derivative_of_a_split_is_zero_at_a_closed_gate() -> None:
    network, x, y = active_network(), images(), torch.arange(4)
    overgrown = overgrow(network)
    scores = score(overgrown, [(x, y)])
    splits = torch.cat([torch.arange(width + CANDIDATES) < width for width in network.widths])
    gates = splits.logical_not().double().requires_grad_()
    slopes = torch.autograd.grad(F.cross_entropy(overgrown(x, gates), y), gates)[0]
    assert slopes[splits].abs().max() < 1e-12 < scores[splits].abs().max()
    assert slopes[~splits].abs().max() > 1e-6
