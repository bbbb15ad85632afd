"""Firefly's growth step follows Wu et al. 2020 with the ALMA paper's budget, and its identities hold."""

from __future__ import annotations

import copy
import io
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from agents.learners.firefly.firefly import Firefly
from agents.learners.firefly.materialise import materialise
from agents.learners.firefly.overgrown import OvergrownVGG19
from agents.learners.firefly.selection import score, select, tune
from agents.learners.firefly.settings import GrowthSettings, growth_target
from agents.learners.sm import SingleModel
from agents.networks.firefly_network import CONVOLUTIONS, FireflyVGG19, firefly_parameter_count
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training.settings import StageSettings
from agents.training.stage import Examples
from agents.training.trainer import Trainer
from alma_env import metering
from alma_env.metering import Meter

SETTINGS = StageSettings(epochs=2, batch_size=8, learning_rate=0.05, augmentation="crop_flip", weight_decay=1e-4)
WIDTH, CANDIDATES = 3, 2
MIXED = (3, 2, 4, 2, 3, 3, 2, 4, 3, 2, 2, 3, 4, 2, 3, 2)
FLAT = (0,) * 16
DEEP = (1, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1)
# Pixels of the output of each convolution.
PIXELS = (1024,) * 2 + (256,) * 2 + (64,) * 4 + (16,) * 4 + (4,) * 4


DEPTHS = pytest.mark.parametrize(("residuals", "depth"), [(FLAT, False), (FLAT, True), (DEEP, True), (DEEP, False)])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def examples(n: int, seed: int = 0) -> Examples:
    x = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=seeded(seed))
    return Examples(x, torch.randint(0, 10, (n,), generator=seeded(seed + 1)))


TRAIN, VALID = examples(20), examples(6, seed=5)


def backbone(generator: torch.Generator) -> Predictor:
    return Predictor(Normalize(255, (0.5,), (0.25,)), FireflyVGG19([WIDTH] * 16, 10, generator=generator))


def firefly(**options: Any) -> Firefly:
    return Firefly(backbone, Trainer(SETTINGS, options.pop("seed", 3)), **{"candidates": CANDIDATES, **options})


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    ours, others = first.state_dict(), second.state_dict()
    return ours.keys() == others.keys() and all(torch.equal(ours[name], others[name]) for name in ours)


def images(n: int = 4, seed: int = 9) -> torch.Tensor:
    return torch.randn(n, 3, 32, 32, dtype=torch.float64, generator=seeded(seed))


def active_network(residuals: tuple[int, ...] = FLAT) -> FireflyVGG19:
    """Return a float64 network in eval mode with BatchNorm statistics of images, so that every layer is active."""
    network = FireflyVGG19(MIXED, 10, residuals=residuals, generator=seeded(1)).double()
    for norm in network.norms:
        norm.momentum = 1.0
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5, generator=seeded(len(norm.weight)))
        torch.nn.init.uniform_(norm.bias, -0.2, 0.6, generator=seeded(len(norm.weight)))
    with torch.no_grad():
        network.train()(images(16, seed=2))
    return network.eval()


def overgrow(network: FireflyVGG19, candidates: int = CANDIDATES, *, depth: bool = False) -> OvergrownVGG19:
    generators = [seeded(10 + layer) for layer in range(2 * CONVOLUTIONS + 1)]
    return OvergrownVGG19(network, candidates, generators, depth=depth)


def scale_up(overgrown: OvergrownVGG19) -> None:
    """Scale up the outgoing weights and the residual layers, so that they have an effect in every layer."""
    for parameter in [layer.outgoing for layer in overgrown.convolutions] + [overgrown.outgoing]:
        parameter.data.mul_(30)
    for parameter in overgrown.residuals.parameters():
        parameter.data.mul_(10)


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


def test_before_the_first_growth_step_firefly_equals_the_single_model() -> None:
    def build(generator: torch.Generator) -> Predictor:
        normalize = Normalize(255, (0.5,), (0.25,))
        return Predictor(normalize, VGG19(WIDTH, 10, conv_bias=False, generator=generator))

    ours, single = firefly(), SingleModel(build, Trainer(SETTINGS, 3))
    x = examples(5, seed=8).x
    assert same(ours.predictor, single.predictor)
    assert torch.equal(ours.predictor(x), single.predictor(x))
    for _ in range(2):
        assert ours.train(TRAIN, VALID) == single.train(TRAIN, VALID)
        assert same(ours.predictor, single.predictor)
    assert torch.equal(ours.predictor(x), single.predictor(x))


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
    for points, where in ((0, [1.0]), (1, [0.5]), (3, [1 / 6, 3 / 6, 5 / 6])):
        scores = score(overgrown, batches, points)
        assert scores.count_nonzero() > len(scores) / 2
        for unit in range(0, len(scores), 5):
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


def network_widths_before(learner: Firefly) -> list[int]:
    """Return the widths before the last growth step, from the reports of the earlier ones."""
    added = [
        [split + new for split, new in zip(report.splits, report.new_channels, strict=True)]
        for report in learner.growth_reports[:-1]
    ]
    return [WIDTH + sum(layer) for layer in zip(*added, strict=True)] if added else [WIDTH] * 16


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


def neurons(widths: Sequence[int], residuals: Sequence[int]) -> int:
    return sum(width * (1 + layers) for width, layers in zip(widths, residuals, strict=True))


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
    assert same(learner.predictor, firefly().predictor)


def test_a_budget_above_all_candidates_takes_all_and_warns() -> None:
    with pytest.warns(RuntimeWarning, match="set more candidates"):
        assert torch.cat(select(torch.zeros(48), (2,) * 16, FLAT, neurons, 200)).all()


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


def test_all_deployed_parameters_were_computed_under_the_meter() -> None:
    learner, run_meter = firefly(), Meter()
    with run_meter:
        learner.grow(TRAIN, VALID)
        learner.train(TRAIN, VALID)
    provenances = [run_meter.provenance(parameter) for parameter in learner.predictor.parameters()]
    assert all(one is not None and one.counted and one.written for one in provenances)


def test_only_the_same_seed_gives_the_same_result_and_the_global_generator_is_not_used() -> None:
    before = torch.get_rng_state()
    learners = [firefly(), firefly(), firefly(seed=4)]
    for learner in learners:
        learner.train(TRAIN, VALID)
        learner.grow(TRAIN, VALID)
        learner.train(TRAIN, VALID)
    assert same(learners[0].predictor, learners[1].predictor)
    assert learners[0].growth_reports == learners[1].growth_reports != learners[2].growth_reports
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("options", [{}, {"budget": "neurons"}, {"depth": True, "growth_rate": 0.5}])
def test_a_learner_restored_after_a_growth_step_continues_to_the_last_bit(options: dict[str, Any]) -> None:
    straight = firefly(**options)
    straight.train(TRAIN, VALID)
    straight.grow(TRAIN, VALID)
    states = [copy.deepcopy(straight.state_dict())]  # between growth step and stage
    straight.train(TRAIN, VALID)
    states.append(copy.deepcopy(straight.state_dict()))
    straight.grow(TRAIN, VALID)
    straight.train(TRAIN, VALID)
    for done, state in enumerate(states):
        torch.save(state, file := io.BytesIO())
        file.seek(0)
        resumed = firefly(**options)
        resumed.load_state_dict(torch.load(file, weights_only=True))
        assert not resumed.predictor.training
        if done == 0:
            resumed.train(TRAIN, VALID)
        resumed.grow(TRAIN, VALID)
        resumed.train(TRAIN, VALID)
        assert same(resumed.predictor, straight.predictor)
        assert resumed.growth_reports == straight.growth_reports
        assert resumed.stage == 3


def test_a_deployed_predictor_never_changes() -> None:
    learner = firefly()
    deployed = [learner.predictor]
    copies = [copy.deepcopy(learner.predictor)]
    state = learner.state_dict()
    for act in (learner.train, learner.grow, learner.train, learner.grow):
        act(TRAIN, VALID)
        deployed.append(learner.predictor)
        copies.append(copy.deepcopy(learner.predictor))
    learner.load_state_dict(state)
    assert len({id(predictor) for predictor in [*deployed, learner.predictor]}) == 6
    assert all(same(now, then) for now, then in zip(deployed, copies, strict=True))
    assert not any(predictor.training for predictor in deployed)


def test_the_report_has_the_loss_on_v_before_and_after_a_growth_step() -> None:
    learner = firefly()
    learner.train(TRAIN, VALID)
    losses = [F.cross_entropy(learner.predictor(VALID.x), VALID.y).item()]
    learner.grow(TRAIN, VALID)
    losses.append(F.cross_entropy(learner.predictor(VALID.x), VALID.y).item())
    report = learner.growth_reports[0]
    assert [report.loss_before, report.loss_after] == pytest.approx(losses, rel=1e-5)
    assert report.loss_before != report.loss_after


def test_from_scratch_a_stage_starts_from_new_weights_of_the_grown_network() -> None:
    learner = firefly(from_scratch=True)
    learner.train(TRAIN, VALID)
    learner.grow(TRAIN, VALID)
    grown = learner.predictor.body
    assert isinstance(grown, FireflyVGG19)
    other = firefly(from_scratch=True)
    state = learner.state_dict()
    state["predictor"] = {name: torch.zeros_like(value) for name, value in state["predictor"].items()}
    normalize = learner.predictor.normalize.state_dict(prefix="normalize.")
    other.load_state_dict({**state, "predictor": {**state["predictor"], **normalize}})
    learner.train(TRAIN, VALID)
    other.train(TRAIN, VALID)
    assert same(learner.predictor, other.predictor)
    body = learner.predictor.body
    assert isinstance(body, FireflyVGG19)
    assert body.widths == grown.widths


def test_growth_lowers_the_training_loss_of_a_trained_network() -> None:
    # The label is the brightness of the image, which can be learned.
    y = torch.arange(64) % 4
    x = (60 * y[:, None, None, None] + torch.randint(0, 30, (64, 3, 32, 32), generator=seeded())).to(torch.uint8)
    train = Examples(x, y)
    learner = firefly(candidates=4)
    learner.train(train, train)
    learner.grow(train, train)
    report = learner.growth_reports[0]
    assert report.loss_after < report.loss_before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("candidates", 0),
        ("growth_rate", 0.0),
        ("growth_rate", float("nan")),
        ("growth_rate", math.inf),
        ("budget", "flops"),
        ("score_points", -1),
        ("new_units", "random"),
        ("tuning_rate", -1e-3),
        ("penalty", -0.01),
        ("penalty", float("nan")),
    ],
)
def test_a_hyper_parameter_out_of_range_raises_with_its_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name}="):
        firefly(**{name: value})


def test_other_networks_raise() -> None:
    def mlp(generator: torch.Generator) -> Predictor:
        return Predictor(Normalize(255, (0.5,), (0.25,)), MLP(3 * 32 * 32, 4, 10, generator=generator))

    with pytest.raises(ValueError, match="agent 'ff' with a MLP.*use a data set of 32×32 images"):
        Firefly(mlp, Trainer(SETTINGS))
    with pytest.raises(ValueError, match=r"widths=\(3, 3\)"):
        FireflyVGG19([3, 3], 10, generator=seeded())
    with pytest.raises(ValueError, match="input of shape.*from 32 to 63"):
        FireflyVGG19([2] * 16, 10, generator=seeded())(torch.zeros(1, 3, 28, 28))
