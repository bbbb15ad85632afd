"""The ALMA paper's budget of a growth step, and the candidates that are selected up to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from agents.learners.firefly.firefly import Firefly
from agents.learners.firefly.selection import select
from agents.learners.firefly.settings import GrowthSettings, growth_target
from agents.networks.firefly_network import FireflyVGG19, firefly_parameter_count

from ...random_examples import equal, seeded
from .small_firefly import CANDIDATES, DEEP, FLAT, MIXED, TRAIN, VALID, WIDTH, active_network, firefly, overgrow


def neurons(widths: Sequence[int], residuals: Sequence[int]) -> int:
    return sum(width * (1 + layers) for width, layers in zip(widths, residuals, strict=True))


def network_widths_before(learner: Firefly) -> list[int]:
    """Return the widths before the last growth step, from the reports of the earlier ones."""
    added = [
        [split + new for split, new in zip(report.splits, report.new_channels, strict=True)]
        for report in learner.growth_reports[:-1]
    ]
    return [WIDTH + sum(layer) for layer in zip(*added, strict=True)] if added else [WIDTH] * 16


@pytest.mark.parametrize(("width", "parameters"), [(4, 2446), (8, 9202), (16, 35674), (32, 140458), (64, 557386)])
def test_the_parameter_count_follows_from_the_widths(width: int, parameters: int) -> None:
    assert firefly_parameter_count([width] * 16, 10) == parameters == 135 * width**2 + 69 * width + 10
    for residuals in (FLAT, DEEP):
        network = FireflyVGG19(MIXED, 7, 1, residuals=residuals, generator=seeded())
        assert firefly_parameter_count(MIXED, 7, 1, residuals) == sum(
            parameter.numel() for parameter in network.parameters()
        )
        assert (network.widths, network.classes, network.in_channels) == (MIXED, 7, 1)
        assert network.residuals == residuals


def test_selection_takes_the_lowest_scores_of_all_layers_up_to_the_target() -> None:
    widths, candidates = (4,) * 16, 3
    size, target = growth_target(FireflyVGG19(widths, 10, generator=seeded()), widths, 1, GrowthSettings())
    assert (size(widths, FLAT), target) == (2446, math.ceil(2446 * 1.25))
    scores = torch.randn(16 * (4 + candidates), generator=seeded())
    selection = select(scores, widths, FLAT, size, target)
    grown = [width + int(part.sum()) for width, part in zip(widths, selection, strict=True)]
    chosen = torch.cat(selection)
    assert scores[chosen].max() < scores[~chosen].min()
    last = int(torch.where(chosen, scores, -torch.inf).argmax()) // (4 + candidates)
    grown_less = [width - (layer == last) for layer, width in enumerate(grown)]
    assert firefly_parameter_count(grown_less, 10) < target <= firefly_parameter_count(grown, 10)


@pytest.mark.parametrize("rate", [0.25, 0.1])
def test_after_growth_step_i_the_parameters_exceed_the_target_by_less_than_a_unit(rate: float) -> None:
    learner = firefly(growth_rate=rate)
    first = firefly_parameter_count([WIDTH] * 16, 10)
    for growth in (1, 2, 3):
        learner.grow(TRAIN, VALID)
        report, body = learner.growth_reports[-1], learner.predictor.body
        assert isinstance(body, FireflyVGG19)
        count = sum(parameter.numel() for parameter in body.parameters())
        largest_unit = max(
            count - firefly_parameter_count([width - (layer == less) for layer, width in enumerate(body.widths)], 10)
            for less in range(16)
        )
        assert first * (1 + rate * growth) <= report.target < first * (1 + rate * growth) + 1
        assert report.target <= count < report.target + largest_unit
        assert report.parameters_after == report.size == count
        added = [split + new for split, new in zip(report.splits, report.new_channels, strict=True)]
        assert sum(added) == sum(body.widths) - sum(network_widths_before(learner))
        assert 0 < report.loss_after < 10
    reports = learner.growth_reports
    assert [report.parameters_before for report in reports[1:]] == [report.parameters_after for report in reports[:-1]]


@pytest.mark.parametrize("quirks", [False, True])
def test_a_budget_of_neurons_adds_the_same_number_at_every_growth_step(quirks: bool) -> None:
    learner = firefly(budget="neurons", quirks=quirks)
    for growth in (1, 2):
        learner.grow(TRAIN, VALID)
        report = learner.growth_reports[-1]
        assert sum(report.splits) + sum(report.new_channels) == 16 * WIDTH // 4 + quirks
        assert report.size == report.target == 16 * WIDTH + growth * (16 * WIDTH // 4 + quirks)


@pytest.mark.parametrize("budget", ["parameters", "neurons"])
def test_with_depth_layers_are_candidates_and_count_by_their_size(budget: str) -> None:
    learner = firefly(depth=True, budget=budget, growth_rate=1.0, candidates=3)
    sizes, inserted = [], 0
    for _ in range(3):
        learner.grow(TRAIN, VALID)
        report, body = learner.growth_reports[-1], learner.predictor.body
        assert isinstance(body, FireflyVGG19)
        parameters = sum(parameter.numel() for parameter in body.parameters())
        assert (
            parameters == report.parameters_after == firefly_parameter_count(body.widths, 10, residuals=body.residuals)
        )
        assert report.size == (parameters if budget == "parameters" else neurons(body.widths, body.residuals))
        assert report.target <= report.size < report.target + 2 * 9 * 16 * max(body.widths) ** 2
        sizes.append(report.size)
        inserted += sum(report.new_layers)
        assert inserted == sum(body.residuals)
        learner.train(TRAIN, VALID)
    assert inserted > 0
    assert sizes == sorted(sizes)


def test_selection_inserts_a_layer_by_the_mean_score_of_its_neurons() -> None:
    widths, per_layer = (2,) * 16, 2 + 1 + 1  # two splits, a new channel, a layer
    scores = torch.arange(16.0 * per_layer)
    scores[5 * per_layer + 3] = -2
    scores[9 * per_layer] = -1
    selection = select(scores, widths, FLAT, neurons, 32 + 3, depth=True)
    assert [part.nonzero().flatten().tolist() for part in selection if part.any()] == [[3], [0]]
    assert (int(selection[5].sum()), int(selection[9].sum())) == (1, 1)
    overgrown = overgrow(active_network(), depth=True)
    per_candidate = torch.split(overgrown.neurons(), overgrown.candidates_per_layer)
    for width, sizes in zip(MIXED, per_candidate, strict=True):
        assert sizes.tolist() == [1] * (width + CANDIDATES) + [width]


@pytest.mark.parametrize(("width", "rate", "units"), [(15, 0.2, 48), (10, 0.3, 48), (25, 0.29, 116), (4, 0.25, 16)])
def test_the_number_of_neurons_has_no_rounding_error(width: int, rate: float, units: int) -> None:
    widths = [width] * 16
    network = FireflyVGG19(widths, 10, generator=seeded())
    for quirks in (False, True):
        settings = GrowthSettings(budget="neurons", growth_rate=rate, quirks=quirks)
        size, target = growth_target(network, widths, 7, settings)
        assert target - size(widths, FLAT) == units + quirks


def test_only_quirks_accept_ties_with_the_last_unit() -> None:
    scores = torch.zeros(16 * 3)
    scores[5] = -1.0
    assert torch.cat(select(scores, (2,) * 16, FLAT, neurons, 32 + 1, ties=True)).sum() == 1
    assert torch.cat(select(scores, (2,) * 16, FLAT, neurons, 32 + 2, ties=False)).sum() == 2
    assert torch.cat(select(scores, (2,) * 16, FLAT, neurons, 32 + 2, ties=True)).all()


def test_with_scores_that_are_not_finite_the_network_does_not_grow_and_warns() -> None:
    with pytest.warns(RuntimeWarning, match="lower tuning_rate"):
        assert not torch.cat(select(torch.full((48,), torch.nan), (2,) * 16, FLAT, neurons, 40)).any()
    learner = firefly(tuning_rate=1e30)
    with pytest.warns(RuntimeWarning, match="lower tuning_rate"):
        learner.grow(TRAIN, VALID)
    assert equal(learner.predictor, firefly().predictor)


def test_a_budget_above_all_candidates_takes_all_and_warns() -> None:
    with pytest.warns(RuntimeWarning, match="set more candidates"):
        assert torch.cat(select(torch.zeros(48), (2,) * 16, FLAT, neurons, 200)).all()
