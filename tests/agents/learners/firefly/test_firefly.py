"""The learner: seeds, saved states, deployed predictors, reports, and the arguments that it refuses."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from agents.learners.firefly.firefly import Firefly
from agents.learners.sm import SingleModel
from agents.networks.firefly_network import FireflyVGG19
from agents.networks.mlp_vgg import MLP, VGG19, Normalize, Predictor
from agents.training.stage import Examples
from agents.training.trainer import Trainer
from alma_env.metering import Meter

from ...random_examples import equal, examples, seeded
from .small_firefly import SETTINGS, TRAIN, VALID, WIDTH, firefly


def test_before_the_first_growth_step_firefly_equals_the_single_model() -> None:
    def build(generator: torch.Generator) -> Predictor:
        normalize = Normalize(255, (0.5,), (0.25,))
        return Predictor(normalize, VGG19(WIDTH, 10, conv_bias=False, generator=generator))

    ours, single = firefly(), SingleModel(build, Trainer(SETTINGS, 3))
    x = examples(5, (3, 32, 32), seed=8).x
    assert equal(ours.predictor, single.predictor)
    assert torch.equal(ours.predictor(x), single.predictor(x))
    for _ in range(2):
        assert ours.train(TRAIN, VALID) == single.train(TRAIN, VALID)
        assert equal(ours.predictor, single.predictor)
    assert torch.equal(ours.predictor(x), single.predictor(x))


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
    assert equal(learners[0].predictor, learners[1].predictor)
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
        assert equal(resumed.predictor, straight.predictor)
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
    assert all(equal(now, then) for now, then in zip(deployed, copies, strict=True))
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
    assert equal(learner.predictor, other.predictor)
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
