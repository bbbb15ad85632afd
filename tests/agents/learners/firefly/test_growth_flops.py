"""The FLOPs of a growth step equal sums by hand."""

from __future__ import annotations

import pytest
import torch

from agents.networks.firefly_network import FireflyVGG19
from alma_env import metering
from alma_env.metering import Meter

from ...random_examples import seeded
from .small_firefly import CANDIDATES, DEEP, FLAT, MIXED, TRAIN, VALID, WIDTH, firefly, overgrow

# Pixels of the output of each convolution.
PIXELS = (1024,) * 2 + (256,) * 2 + (64,) * 4 + (16,) * 4 + (4,) * 4


def layer_multiply_adds(widths: tuple[int, ...], candidates: int) -> list[tuple[int, int, int]]:
    """Return the multiply-adds of W, of V with A, and of M, per convolution of the over-grown network and image."""
    inputs = (3, *widths[:-1])
    return [
        (
            9 * pixels * before * width,
            9 * pixels * before * (width + candidates),
            9 * pixels * (0 if layer == 0 else candidates) * (width + candidates),
        )
        for layer, (before, width, pixels) in enumerate(zip(inputs, widths, PIXELS, strict=True))
    ]


@pytest.mark.parametrize(("width", "candidates"), [(2, 1), (4, 5), (3, 70)])
def test_the_cost_of_the_overgrown_network_equals_the_closed_form(width: int, candidates: int) -> None:
    overgrown = overgrow(FireflyVGG19([width] * 16, 10, generator=seeded()), candidates)
    flops = metering.count(overgrown, torch.zeros(1, 3, 32, 32)).total
    every = width + candidates
    outline = 9 * every**2 * 1872 + 27 * every * 1024 + 10 * every  # one network of this width
    directions = 9 * width**2 * 1872 + 27 * width * 1024  # the convolution with V is separate
    assert flops == 2 * (outline + directions)
    by_layer = layer_multiply_adds((width,) * 16, candidates)
    assert flops == 2 * (sum(map(sum, by_layer)) + 10 * every)


def network_multiply_adds(widths: tuple[int, ...]) -> int:
    return sum(layer[0] for layer in layer_multiply_adds(widths, 0)) + 10 * widths[-1]


@pytest.mark.parametrize("score_points", [0, 2])
def test_the_flops_of_a_growth_step_equal_the_sum_by_hand(score_points: int) -> None:
    learner, growth_meter = firefly(score_points=score_points), Meter()
    with growth_meter:
        learner.grow(TRAIN, VALID)
    layers = layer_multiply_adds((WIDTH,) * 16, CANDIDATES)
    classifier, outgoing = 10 * WIDTH, 10 * CANDIDATES
    forward = sum(map(sum, layers)) + classifier + outgoing
    to_inputs = forward - sum(layers[0])  # the images need no gradient
    to_candidates = sum(splits_and_new + m for _, splits_and_new, m in layers) + outgoing  # W is frozen
    tune = forward + to_inputs + to_candidates
    passes = max(score_points, 1) * (forward + to_inputs)
    body = learner.predictor.body
    assert isinstance(body, FireflyVGG19)
    losses = network_multiply_adds((WIDTH,) * 16) + network_multiply_adds(body.widths)
    charge = growth_meter.take()
    assert charge.flops == {"growth": 2 * (len(TRAIN) * (tune + passes) + len(VALID) * losses)}
    assert charge.declared == ()


def test_the_flops_of_residual_layers_are_those_of_their_convolutions() -> None:
    def flops(residuals: tuple[int, ...], *, depth: bool) -> int:
        network = FireflyVGG19(MIXED, 10, residuals=residuals, generator=seeded())
        return metering.count(overgrow(network, depth=depth), torch.zeros(1, 3, 32, 32)).total

    pooled = (1024, 256, 256, 64, 64, 64, 64, 16, 16, 16, 16, 4, 4, 4, 4, 1)  # after the pooling, if there is one
    layers = [2 * 9 * pixels * (width + CANDIDATES) ** 2 for pixels, width in zip(pooled, MIXED, strict=True)]
    flat = flops(FLAT, depth=False)
    assert flops(FLAT, depth=True) == flat + sum(layers)
    assert flops(DEEP, depth=False) == flat + sum(count * cost for count, cost in zip(DEEP, layers, strict=True))
    assert flops(DEEP, depth=True) == flops(DEEP, depth=False) + sum(layers)
