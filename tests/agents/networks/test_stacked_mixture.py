"""Experts that are computed together give the numbers of single experts, to rounding, at the same cost."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agents.learners.gmoe import GMoE
from agents.networks.gate_tree import Routing
from agents.networks.mixture import MixtureMLP, MixtureNetwork, MixtureVGG19, build_mixture, mixture_body
from agents.networks.mlp_vgg import Normalize, Predictor
from agents.networks.stacked_mixture import StackedMixture, can_stack_experts
from agents.training.settings import StageSettings
from agents.training.stage import Examples
from alma_env.metering import Meter

KINDS = pytest.mark.parametrize("kind", ["mlp", "vgg19"])
SHAPES = {"mlp": (1, 8, 8), "vgg19": (3, 32, 32)}
SETTINGS = {
    "mlp": StageSettings(3, 16, "adadelta", 1.0),
    "vgg19": StageSettings(2, 8, "sgd", 0.05, augmentation="crop_flip", weight_decay=1e-4),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(kind: str) -> Any:
    def create(generator: torch.Generator) -> Predictor:
        mlp = kind == "mlp"
        body = MixtureMLP(64, 6, 10, generator=generator) if mlp else MixtureVGG19(3, 10, generator=generator)
        return Predictor(Normalize(255, (0.5,), (0.25,)), body)

    return create


def mixture(kind: str, splits: tuple[int, ...], *, tree: bool = True) -> MixtureNetwork:
    """Return a float64 network with different experts."""
    body = mixture_body(build_mixture(build(kind), seeded(), 1, Routing(tree=tree)))
    for layer in body.mixtures:
        layer.regrow(splits, seeded(5))
    return body.double()


def examples(kind: str, n: int, seed: int = 0) -> Examples:
    x = torch.randint(0, 256, (n, *SHAPES[kind]), dtype=torch.uint8, generator=seeded(seed))
    return Examples(x, torch.randint(0, 10, (n,), generator=seeded(seed + 1)))


def gradients(network: nn.Module, x: Tensor) -> None:
    network.train()(x).square().sum().backward()


@KINDS
@pytest.mark.parametrize(("splits", "tree"), [((0,), True), ((0, 1, 0, 2), True), ((0, 0, 1), False)])
@pytest.mark.parametrize("training", [True, False])
def test_outputs_and_gradients_equal_those_of_the_mixture(
    kind: str, splits: tuple[int, ...], tree: bool, training: bool
) -> None:
    body = mixture(kind, splits, tree=tree)
    stacked = StackedMixture(body)
    x = torch.randn(8, *SHAPES[kind], dtype=torch.float64, generator=seeded(3))
    outputs = [network.train(training)(x) for network in (body, stacked)]
    assert (outputs[0] - outputs[1]).abs().max() < 1e-12 < outputs[0].std()
    for network in (body, stacked):
        gradients(network, x)
    slopes = copy.deepcopy(body)
    for parameter in stacked.parameters():
        assert parameter.grad is not None
        parameter.data = parameter.grad
    stacked.copy_to(slopes)
    for ours, theirs in zip(slopes.parameters(), body.parameters(), strict=True):
        torch.testing.assert_close(ours.data, theirs.grad, rtol=1e-9, atol=1e-12)


@KINDS
@pytest.mark.parametrize("tree", [True, False])
def test_a_stage_gives_the_same_numbers_and_cost_together_or_not(kind: str, tree: bool) -> None:
    train, valid = examples(kind, 40), examples(kind, 10, seed=7)
    results = []
    for together in (True, False):
        learner = GMoE(build(kind), SETTINGS[kind], seed=3, tree=tree, together=together)
        learner.train(train, valid)
        for _ in range(2):
            learner.grow(train, valid)
        deployed, before = learner.predictor, copy.deepcopy(learner.predictor.state_dict())
        with Meter() as meter:
            report = learner.train(train, valid)
        results.append((report, meter.take(), learner.predictor))
        assert all(torch.equal(deployed.state_dict()[name], value) for name, value in before.items())
        assert not any(module.training for module in learner.predictor.modules())
    (ours, our_charge, our_predictor), (theirs, their_charge, their_predictor) = results
    assert our_charge.flops == their_charge.flops
    assert our_charge.forward == their_charge.forward
    assert ours.best_epoch == theirs.best_epoch
    assert ours.validation_loss == pytest.approx(theirs.validation_loss, rel=1e-4)
    assert our_predictor.state_dict().keys() == their_predictor.state_dict().keys()
    torch.testing.assert_close(our_predictor(valid.x), their_predictor(valid.x), rtol=1e-3, atol=1e-4)


def test_all_deployed_parameters_were_computed_under_the_meter() -> None:
    train, valid = examples("mlp", 40), examples("mlp", 10)
    learner = GMoE(build("mlp"), SETTINGS["mlp"], seed=3, init_experts=3, together=True)
    with Meter() as meter:
        learner.train(train, valid)
    provenances = [meter.provenance(parameter) for parameter in learner.predictor.parameters()]
    assert all(one is not None and one.counted and one.written for one in provenances)


def test_one_expert_and_hard_gates_are_not_stacked() -> None:
    assert not can_stack_experts(mixture("mlp", ()))
    assert can_stack_experts(mixture("mlp", (0,)))
    hard = mixture_body(build_mixture(build("mlp"), seeded(), 3, Routing("hard")))
    assert not can_stack_experts(hard)
    train, valid = examples("mlp", 40), examples("mlp", 10)
    learners = [GMoE(build("mlp"), SETTINGS["mlp"], seed=3, together=together) for together in (True, False)]
    reports = [learner.train(train, valid) for learner in learners]
    assert reports[0] == reports[1]
