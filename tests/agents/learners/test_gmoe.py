"""gMoE: it equals the single model before growth, growth keeps the function, and the loss selects the expert."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from agents.learners.gmoe import GMoE, leaf_totals
from agents.learners.sm import SingleModel
from agents.networks.mixture import MixtureMLP, MixtureVGG19, mixture_body
from agents.networks.mlp_vgg import Predictor
from agents.training.settings import StageSettings
from agents.training.trainer import Trainer

from ..random_examples import equal
from .backbones import Backbone, build_mlp, build_vgg19


@dataclass(frozen=True)
class GrowingBackbone(Backbone):
    mixture: Callable[[torch.Generator], Predictor]

    def grown(self, growths: int, **keywords: Any) -> GMoE:
        """Return a learner after this number of stages, each followed by a growth step."""
        learner = GMoE(self.mixture, Trainer(self.settings, 3), **keywords)
        for stage in range(1, growths + 1):
            learner.train(*self.stage(stage))
            learner.grow(*self.stage(stage + 1))
        return learner


mixture_mlp, mixture_vgg19 = partial(build_mlp, kind=MixtureMLP), partial(build_vgg19, kind=MixtureVGG19)
MLP_BACKBONE = GrowingBackbone(build_mlp, StageSettings(2, 16, "adadelta", 1.0), (1, 8, 8), 40, mixture_mlp)
VGG_BACKBONE = GrowingBackbone(
    build_vgg19, StageSettings(2, 8, "sgd", 0.05, augmentation="crop_flip"), (3, 32, 32), 20, mixture_vgg19
)


@pytest.fixture(params=["mlp", "vgg19"])
def backbone(request: pytest.FixtureRequest) -> GrowingBackbone:
    return MLP_BACKBONE if request.param == "mlp" else VGG_BACKBONE


ROUTINGS: list[dict[str, Any]] = [{}, {"gating": "hard"}, {"gating": "hard", "straight_through": "sparse"}]


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_before_the_first_growth_step_it_equals_the_single_model_to_the_last_bit(
    backbone: GrowingBackbone, routing: dict[str, Any]
) -> None:
    single = SingleModel(backbone.build, Trainer(backbone.settings, 3))
    learner = GMoE(backbone.mixture, Trainer(backbone.settings, 3), **routing)
    x = backbone.examples(7, seed=99).x
    for stage in (0, 1, 2):
        if stage:
            ours, theirs = (each.train(*backbone.stage(stage)) for each in (learner, single))
            assert ours == theirs
        assert torch.equal(learner.predictor(x), single.predictor(x))


@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_a_growth_step_does_not_change_the_output(backbone: GrowingBackbone, routing: dict[str, Any]) -> None:
    learner = backbone.grown(1, **routing)
    learner.train(*backbone.stage(2))
    x = learner.predictor.normalize(backbone.examples(9, seed=50).x).double()
    before = copy.deepcopy(learner.predictor.body).double()
    learner.grow(*backbone.stage(3))
    after = learner.predictor.body.double()
    assert all(len(layer.experts) == 3 for layer in mixture_body(learner.predictor).mixtures)
    assert (after.eval()(x) - before.eval()(x)).abs().max() < 1e-12
    if not routing:  # soft: also with batch statistics, which are equal in both children
        assert (after.train()(x) - before.train()(x)).abs().max() < 1e-12


def test_a_flat_growth_changes_the_function(backbone: GrowingBackbone) -> None:
    learner = backbone.grown(1, tree=False)
    learner.train(*backbone.stage(2))
    x = backbone.examples(9, seed=50).x
    before = learner.predictor(x)
    learner.grow(*backbone.stage(3))
    assert (learner.predictor(x) - before).abs().max() > 1e-6


@pytest.mark.parametrize("gating", ["soft", "hard"])
def test_the_losses_of_the_leaves_add_up_to_the_loss_in_every_layer(backbone: GrowingBackbone, gating: Any) -> None:
    learner = backbone.grown(2, gating=gating)
    valid = backbone.examples(23, seed=60)
    with torch.no_grad():
        total = F.cross_entropy(learner.predictor(valid.x), valid.y, reduction="sum").item()
    for layer in leaf_totals(learner.predictor, valid, batch_size=7):
        assert len(layer) == 3
        assert layer.sum().item() == pytest.approx(total, rel=1e-5)
    for layer in leaf_totals(learner.predictor, valid, batch_size=7, split_by="usage"):
        assert layer.sum().item() == pytest.approx(23, rel=1e-6)


@pytest.mark.parametrize("split_by", ["loss", "usage"])
def test_the_expert_with_the_largest_value_is_split_in_each_layer(backbone: GrowingBackbone, split_by: Any) -> None:
    learner = backbone.grown(2, split_by=split_by)
    learner.train(*backbone.stage(3))
    valid = backbone.stage(4)[1]
    expected = [int(total.argmax()) for total in leaf_totals(learner.predictor, valid, 512, split_by)]
    learner.grow(*backbone.stage(4))
    assert [layer.splits[-1] for layer in mixture_body(learner.predictor).mixtures] == expected


def test_a_growth_step_can_split_several_experts(backbone: GrowingBackbone) -> None:
    learner = backbone.grown(2, init_experts=2, grow_by=(1, 2))
    assert [layer.leaves for layer in mixture_body(learner.predictor).mixtures] == [5] * len(learner._trees())
    learner.train(*backbone.stage(3))
    before, valid = copy.deepcopy(learner.predictor), backbone.stage(4)[1]
    learner.grow(*backbone.stage(4))  # by 2: the last number holds for all later growth steps
    assert (learner.predictor.double()(valid.x) - before.double()(valid.x)).abs().max() < 1e-12
    after = mixture_body(learner.predictor.float()).mixtures
    totals = leaf_totals(before.float(), valid, 512)
    for old, new, total in zip(mixture_body(before).mixtures, after, totals, strict=True):
        weights = [_weights(expert) for expert in new.experts]
        copied = {leaf for leaf, expert in enumerate(old.experts) if weights.count(_weights(expert)) == 2}
        assert copied == set(total.argsort(descending=True)[:2].tolist())


def _weights(expert: torch.nn.Module) -> list[float]:
    return next(expert.parameters()).flatten().tolist()


@pytest.mark.parametrize("grow_by", [0, -1, 1.5, "2", True, (), (2, 0)])
def test_growth_by_a_wrong_number_raises(grow_by: Any) -> None:
    with pytest.raises(ValueError, match=r"grow_by=.*whole number, at least 1.*grow_by=\(2, 2, 4\)"):
        GMoE(mixture_mlp, Trainer(MLP_BACKBONE.settings), grow_by=grow_by)


def test_growth_by_more_experts_than_there_are_raises() -> None:
    with pytest.raises(ValueError, match=r"grow_by=\(1, 3\).*3 of 2 experts.*at most 2"):
        GMoE(mixture_mlp, Trainer(MLP_BACKBONE.settings), grow_by=(1, 3))


@pytest.mark.parametrize("routing", [*ROUTINGS, {"tree": False}, {"init_experts": 2}, {"split_by": "random"}], ids=str)
def test_a_restored_learner_continues_to_the_last_bit_and_old_predictors_do_not_change(
    backbone: GrowingBackbone, routing: dict[str, Any]
) -> None:
    growths = 2 if backbone is MLP_BACKBONE else 1  # a growth step copies the experts of both in the same way
    undisturbed, stopped = (backbone.grown(growths, **routing) for _ in range(2))
    resumed = GMoE(backbone.mixture, Trainer(backbone.settings, 3), **routing)
    resumed.load_state_dict(copy.deepcopy(stopped.state_dict()))
    deployed = stopped.predictor
    kept = {name: tensor.clone() for name, tensor in deployed.state_dict().items()}
    for learner in (undisturbed, stopped, resumed):
        learner.train(*backbone.stage(3))
        learner.grow(*backbone.stage(4))
        learner.train(*backbone.stage(4))
    assert equal(stopped.predictor, undisturbed.predictor)
    assert equal(resumed.predictor, undisturbed.predictor)
    assert all(torch.equal(kept[name], tensor) for name, tensor in deployed.state_dict().items())


def test_a_state_of_another_network_is_refused_and_changes_nothing() -> None:
    learner = MLP_BACKBONE.grown(1)
    state, predictor = copy.deepcopy(learner.state_dict()), learner.predictor
    del state["trees"][-1]
    with pytest.raises(ValueError, match="shorter"):
        learner.load_state_dict(state)
    assert (learner.stage, learner.growths, learner.predictor) == (1, 1, predictor)


def test_two_growth_steps_before_one_stage_draw_different_gates() -> None:
    learner = MLP_BACKBONE.grown(1)
    learner.grow(*MLP_BACKBONE.stage(2))
    for layer in mixture_body(learner.predictor).mixtures:
        assert layer.gates is not None
        assert not torch.equal(layer.gates.weight[:2], layer.gates.weight[2:])


@pytest.mark.parametrize("gating", ["soft", "hard"])
def test_predictors_can_be_exported(gating: Any) -> None:
    learner = MLP_BACKBONE.grown(2, gating=gating)
    x = MLP_BACKBONE.examples(6, seed=8).x
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(learner.predictor, (x,), dynamic_shapes={"x": {0: batch}})
    for size in (2, 6):
        torch.testing.assert_close(exported.module()(x[:size]), learner.predictor(x[:size]))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"straight_through": "thin"}, "straight_through='thin'"),
        ({"split_by": "size"}, "split_by='size'.*loss, usage, random"),
    ],
)
def test_a_hyper_parameter_out_of_range_raises(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GMoE(mixture_mlp, Trainer(MLP_BACKBONE.settings), **keywords)


def test_growth_of_a_fixed_mixture_and_another_network_raise() -> None:
    fixed = GMoE(mixture_mlp, Trainer(MLP_BACKBONE.settings), init_experts=2, fixed=True)
    with pytest.raises(ValueError, match="growth='never'"):
        fixed.grow(*MLP_BACKBONE.stage(1))
    with pytest.raises(TypeError, match="MLP"):
        GMoE(build_mlp, Trainer(MLP_BACKBONE.settings))
