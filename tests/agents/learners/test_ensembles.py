"""Ens, UMix and gEns: identities of the paper's formulas, some of them exact."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from agents.learners.ens import Ens
from agents.learners.gens import GEns
from agents.learners.sm import SingleModel
from agents.learners.umix import UMix
from agents.networks.mlp_vgg import MLP
from agents.networks.uniform_mixture import UniformMixture
from agents.training.settings import StageSettings
from agents.training.trainer import Trainer
from alma_env import Ensemble
from alma_env.metering import Meter

from ..random_examples import equal, seeded
from .backbones import Backbone, build_mlp, build_vgg19

ADADELTA = StageSettings(epochs=3, batch_size=16, optimizer="adadelta", learning_rate=1.0)
SGD = StageSettings(
    epochs=2, batch_size=8, optimizer="sgd", learning_rate=0.05, weight_decay=1e-3, augmentation="crop_flip"
)


@pytest.fixture(params=["mlp", "vgg19"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    if request.param == "mlp":
        return Backbone(build_mlp, ADADELTA, (1, 8, 8), 40)
    return Backbone(build_vgg19, SGD, (3, 32, 32), 20)


def make(kind: Any, backbone: Backbone, *, seed: int = 3, **keywords: Any) -> Any:
    return kind(backbone.build, Trainer(backbone.settings, seed), **keywords)


def train(learner: Any, backbone: Backbone, stages: int, *, grow: bool = False) -> None:
    for stage in range(1, stages + 1):
        data = backbone.stage(stage)
        if grow and stage > 1:
            learner.grow(*data)
        learner.train(*data)


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


# --- identities with the single model ----------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [partial(Ens, members=1), partial(UMix, members=1), partial(UMix, members=1, reduce="sum"), GEns]
)
def test_with_one_member_every_learner_equals_the_single_model(kind: Any, backbone: Backbone) -> None:
    single, learner = make(SingleModel, backbone), make(kind, backbone)
    x = backbone.examples(7, seed=99).x
    for stage in (0, 1, 2):
        if stage:
            for each in (single, learner):
                each.train(*backbone.stage(stage))
        assert torch.equal(learner.predictor(x), single.predictor(x))


def test_member_0_of_an_ensemble_equals_the_single_model_at_every_stage(backbone: Backbone) -> None:
    single, ensemble = make(SingleModel, backbone), make(Ens, backbone, members=3)
    for stage in (0, 1, 2):
        if stage:
            for each in (single, ensemble):
                each.train(*backbone.stage(stage))
        assert equal(ensemble.predictor.members[0], single.predictor.body)
        assert not equal(ensemble.predictor.members[1], single.predictor.body)


def test_members_of_a_growing_ensemble_equal_single_models_from_scratch(backbone: Backbone) -> None:
    single = make(SingleModel, backbone, from_scratch=True)
    growing = make(GEns, backbone)
    for stage in (1, 2, 3):
        data = backbone.stage(stage)  # the identity holds for any data
        if stage > 1:
            growing.grow(*data)
        growing.train(*data)
        single.train(*data)
        assert len(growing.predictor.members) == stage
        assert equal(growing.predictor.members[-1], single.predictor.body)


def test_members_of_a_warm_started_growing_ensemble_equal_the_stages_of_the_single_model(backbone: Backbone) -> None:
    single, growing = make(SingleModel, backbone), make(GEns, backbone, warm_start=True)
    for stage in (1, 2, 3):
        data = backbone.stage(stage)
        if stage > 1:
            growing.grow(*data)
        growing.train(*data)
        single.train(*data)
        assert equal(growing.predictor.members[-1], single.predictor.body)


def test_frozen_members_do_not_change_to_the_last_bit(backbone: Backbone) -> None:
    growing = make(GEns, backbone, members=2)
    train(growing, backbone, 1)
    frozen = [weights(member) for member in growing.predictor.members]
    data = backbone.stage(2)
    growing.grow(*data)
    growing.train(*data)
    assert len(growing.predictor.members) == 4
    for before, member in zip(frozen, growing.predictor.members, strict=False):
        assert all(torch.equal(before[name], tensor) for name, tensor in member.state_dict().items())


def test_without_growth_the_newest_members_train_further(backbone: Backbone) -> None:
    single, growing = make(SingleModel, backbone), make(GEns, backbone)
    train(single, backbone, 2)
    train(growing, backbone, 2)
    assert equal(growing.predictor.members[0], single.predictor.body)


def test_growing_twice_before_a_stage_equals_growing_by_two(backbone: Backbone) -> None:
    once, twice = make(GEns, backbone, members=2), make(GEns, backbone, members=1)
    once.grow(*backbone.stage(1))
    for _ in range(2):
        twice.grow(*backbone.stage(1))
    assert all(
        equal(ours, theirs)
        for ours, theirs in zip(list(once.predictor.members)[-2:], list(twice.predictor.members)[-2:], strict=True)
    )


def test_the_flops_of_an_ensemble_are_the_sum_over_its_members(backbone: Backbone) -> None:
    charges = []
    for kind in (SingleModel, partial(Ens, members=4), partial(UMix, members=4)):
        learner, meter = make(kind, backbone), Meter()
        with meter:
            train(learner, backbone, 1)
        charges.append(meter.take())
    for charge in charges[1:]:
        assert charge.flops == {phase: 4 * flops for phase, flops in charges[0].flops.items()}
        assert charge.forward == {phase: 4 * flops for phase, flops in charges[0].forward.items()}


# --- formulas ------------------------------------------------------------------------------------------


def test_the_output_of_an_ensemble_is_the_log_of_the_mean_probability(backbone: Backbone) -> None:
    ensemble = make(Ens, backbone, members=3)
    train(ensemble, backbone, 1)
    x = backbone.examples(9, seed=50)
    prepared = ensemble.predictor.prepare(x.x)
    members = torch.stack([member(prepared) for member in ensemble.predictor.members]).double()
    expected = members.softmax(-1).mean(0).log()
    torch.testing.assert_close(ensemble.predictor(x.x).double(), expected, rtol=1e-4, atol=1e-5)
    # Jensen: the ensemble's negative log-likelihood is at most the mean of its members'.
    ours = F.cross_entropy(expected, x.y)
    assert ours <= sum(F.cross_entropy(logits, x.y) for logits in members) / 3 + 1e-12


def test_the_logit_space_averages_logits(backbone: Backbone) -> None:
    growing = make(GEns, backbone, members=2, space="logit")
    x = backbone.examples(9, seed=50).x
    prepared = growing.predictor.prepare(x)
    expected = sum(member(prepared) for member in growing.predictor.members) / 2
    torch.testing.assert_close(growing.predictor(x), expected)


def test_the_gradient_of_a_mixture_is_one_nth_of_that_at_the_same_output() -> None:
    members = [MLP(64, 5, 10, generator=seeded(seed)).double() for seed in range(3)]
    x, y = torch.rand(11, 64, dtype=torch.float64, generator=seeded(9)), torch.arange(11) % 10
    gradients = {}
    for reduce in ("mean", "sum"):
        mixture = UniformMixture(copy.deepcopy(members), reduce)  # type: ignore[arg-type]
        answer = mixture(x)
        reversed_answer = UniformMixture(list(mixture.members)[::-1], reduce)(x)  # type: ignore[arg-type]
        torch.testing.assert_close(reversed_answer, answer, rtol=0, atol=1e-14)
        # The gradient of member j is (1/N) J_jᵀ (softmax(g) − onehot(y)) for the mean, N times that for the sum.
        cotangent = (answer.detach().softmax(1) - F.one_hot(y, 10)) / len(x)
        F.cross_entropy(answer, y).backward()
        gradients[reduce] = [parameter.grad.clone() for parameter in mixture.members[1].parameters()]
        member = copy.deepcopy(members[1])
        member(x).backward(cotangent)
        scale = 3 if reduce == "mean" else 1
        for parameter, gradient in zip(member.parameters(), gradients[reduce], strict=True):
            torch.testing.assert_close(gradient * scale, parameter.grad, rtol=0, atol=1e-14)


def test_clipping_uses_the_norm_of_each_member() -> None:
    backbone = Backbone(build_mlp, dataclasses.replace(ADADELTA, clip=0.1), (1, 8, 8), 40)
    single, learner = make(SingleModel, backbone), make(Ens, backbone, members=3)
    for each in (single, learner):
        train(each, backbone, 2)
    assert equal(single.predictor.body, learner.predictor.members[0])


# --- every learner -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "grow"),
    [
        (partial(Ens, members=2), False),
        (partial(UMix, members=2), False),
        (partial(GEns, members=2), True),
        (partial(GEns, warm_start=True), True),
    ],
)
def test_a_restored_learner_continues_to_the_last_bit_and_old_predictors_do_not_change(
    kind: Any, grow: bool, backbone: Backbone
) -> None:
    undisturbed, stopped = make(kind, backbone), make(kind, backbone)
    train(undisturbed, backbone, 3, grow=grow)
    train(stopped, backbone, 2, grow=grow)
    deployed, kept = stopped.predictor, weights(stopped.predictor)
    resumed = make(kind, backbone)
    resumed.load_state_dict(copy.deepcopy(stopped.state_dict()))
    assert equal(resumed.predictor, stopped.predictor)
    for learner in (resumed, stopped):
        if grow:
            learner.grow(*backbone.stage(3))
        learner.train(*backbone.stage(3))
        assert equal(learner.predictor, undisturbed.predictor)
    assert all(torch.equal(kept[name], tensor) for name, tensor in deployed.state_dict().items())


@pytest.mark.parametrize("kind", [partial(Ens, members=2), partial(UMix, members=2), GEns])
def test_predictors_can_be_exported_and_copied(kind: Any, backbone: Backbone) -> None:
    learner = make(kind, backbone)
    train(learner, backbone, 2, grow=kind is GEns)
    x = backbone.examples(6, seed=8).x
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(learner.predictor, (x,), dynamic_shapes={"x": {0: batch}})
    for size in (2, 6):
        torch.testing.assert_close(exported.module()(x[:size]), learner.predictor(x[:size]))
    assert torch.equal(copy.deepcopy(learner.predictor)(x), learner.predictor(x))


@pytest.mark.parametrize("kind", [Ens, UMix, GEns])
def test_an_ensemble_without_members_raises(kind: Any) -> None:
    with pytest.raises(ValueError, match="members=0.*at least 1"):
        kind(build_mlp, Trainer(ADADELTA), members=0)
    with pytest.raises(ValueError, match="0 members"):
        Ensemble([])
