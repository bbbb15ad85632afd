"""One computation for several environments: the charges, and the predictors that each environment accepts."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

import alma_env
from alma_env import AlmaEnv, UnmeteredTrainingError
from alma_env.metering import Meter, phase, running


def environments(count: int) -> list[AlmaEnv]:
    made = [alma_env.make("Digits-ALMA-v0", ticks=3) for _ in range(count)]
    for seed, env in enumerate(made):
        env.reset(seed=seed)
    return made


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), ToFloat(), nn.Linear(64, 10))


class ToFloat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


def train(predictor: nn.Module, x: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(predictor.parameters(), 0.1)
    predictor(x).square().mean().backward()
    optimizer.step()


def test_each_meter_is_charged_an_equal_part_of_each_phase() -> None:
    x, meters = torch.rand(8, 64), [Meter(), Meter(), Meter()]
    networks = [network() for _ in meters]
    with alma_env.shared(meters):
        for one in networks:
            train(one, x)
            with phase("validation"), torch.no_grad():
                one(x)
    single = Meter()
    with single:
        train(network(), x)
        with phase("validation"), torch.no_grad():
            network()(x)
    expected = dataclasses.replace(single.take(), declared=("a part of work shared by 3 runs",))
    assert expected.flops.keys() == {"training", "validation"}
    assert [one.take() for one in meters] == [expected] * 3


def test_an_environment_accepts_only_the_predictor_that_it_was_given() -> None:
    first, second = environments(2)
    predictors = [network() for _ in range(2)]
    with alma_env.shared([first.meter, second.meter]) as shares:
        for env, predictor in zip((first, second), predictors, strict=True):
            train(predictor, torch.rand(8, 64))
            shares.give(env.meter, predictor)
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        second.step(copy.deepcopy(predictors[0]))
    first.step(predictors[0])
    second.step(predictors[1])
    assert first.ledger.comp == second.ledger.comp > 0


def test_the_provenance_of_a_given_predictor_is_saved() -> None:
    first, second = environments(2)
    predictor = network()
    with alma_env.shared([first.meter, second.meter]) as shares:
        train(predictor, torch.rand(8, 64))
        train(network(), torch.rand(8, 64))
        shares.give(first.meter, predictor)
    meter_again = copy.deepcopy(first.meter)
    assert all(
        meter_again.provenance(parameter) == first.meter.provenance(parameter) for parameter in predictor.parameters()
    )
    assert all(second.meter.provenance(parameter) is None for parameter in predictor.parameters())


def test_giving_a_predictor_that_was_trained_elsewhere_does_not_make_it_metered() -> None:
    first, second = environments(2)
    predictor = network()
    train(predictor, torch.rand(8, 64))
    with alma_env.shared([first.meter, second.meter]) as shares:
        for _ in range(2):
            train(network(), torch.rand(8, 64))
        shares.give(first.meter, predictor)
    with pytest.raises(UnmeteredTrainingError):
        first.step(predictor)


def test_two_environments_must_not_get_one_predictor_or_its_copy() -> None:
    meters, predictor = [Meter(), Meter()], network()

    def give_twice() -> None:
        with alma_env.shared(meters) as shares:
            train(predictor, torch.rand(8, 64))
            train(network(), torch.rand(8, 64))
            shares.give(meters[0], predictor)
            shares.give(meters[1], copy.deepcopy(predictor))

    with pytest.raises(ValueError, match="give each environment its own predictor"):
        give_twice()
    assert [one.total for one in meters] == [0, 0]


def test_two_environments_must_not_get_a_part_of_one_predictor_but_equal_constants_are_allowed() -> None:
    meters, whole, other = [Meter(), Meter()], network(), network()

    def build_upon() -> None:
        with alma_env.shared(meters) as shares:
            train(whole, torch.rand(8, 64))
            shares.give(meters[0], whole)
            shares.give(meters[1], nn.Sequential(whole, nn.Linear(10, 10)))

    with pytest.raises(ValueError, match="a part of it, was given"):
        build_upon()
    with alma_env.shared(meters) as shares:
        for meter_of, predictor in zip(meters, (whole, other), strict=True):
            train(predictor, torch.rand(8, 64))
            shares.give(meter_of, nn.Sequential(predictor, nn.BatchNorm1d(10)))  # its weights are ones and zeros


def test_work_that_cannot_be_divided_equally_is_refused() -> None:
    meters = [Meter(), Meter(), Meter()]
    with pytest.raises(RuntimeError, match="2 FLOPs cannot be divided equally among 3"), alma_env.shared(meters):
        torch.ones(1, 1) @ torch.ones(1, 1)


def test_running_repeated_and_unknown_meters_are_refused() -> None:
    one, other = Meter(), Meter()
    with pytest.raises(ValueError, match="2 meters: must be different"), alma_env.shared([one, one]):
        pass
    with pytest.raises(ValueError, match="at least one"), alma_env.shared([]):
        pass
    with one, pytest.raises(RuntimeError, match="a meter is running"), alma_env.shared([one, other]):
        pass
    with pytest.raises(ValueError, match="is not one of this computation's meters"), alma_env.shared([one]) as shares:
        shares.give(other, network())


def test_declared_work_belongs_to_one_environment() -> None:
    def declare() -> None:
        with alma_env.shared([Meter(), Meter()]):
            meter = running()
            assert meter is not None
            meter.declare(4, reason="outside of PyTorch")

    with pytest.raises(RuntimeError, match="declare them to its meter"):
        declare()
