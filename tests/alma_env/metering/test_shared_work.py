"""One computation for several environments: who is charged what, and who may deploy what."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

import alma_env
from alma_env import AlmaEnv, UnmeteredTrainingError, meter
from alma_env.meter import Meter


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


def test_each_meter_is_charged_its_equal_part_by_phase() -> None:
    x, meters = torch.rand(8, 64), [Meter(), Meter(), Meter()]
    networks = [network() for _ in meters]
    with alma_env.shared(meters):
        for one in networks:
            train(one, x)
            with meter.phase("validation"), torch.no_grad():
                one(x)
    alone = Meter()
    with alone:
        train(network(), x)
        with meter.phase("validation"), torch.no_grad():
            network()(x)
    expected = dataclasses.replace(alone.take(), declared=("a part of work shared by 3 runs",))
    assert expected.flops.keys() == {"training", "validation"}
    assert [one.take() for one in meters] == [expected] * 3


def test_an_environment_accepts_what_it_was_given_and_refuses_the_part_of_another() -> None:
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


def test_what_was_given_may_be_saved_and_deployed_later() -> None:
    first, second = environments(2)
    predictor = network()
    with alma_env.shared([first.meter, second.meter]) as shares:
        train(predictor, torch.rand(8, 64))
        train(network(), torch.rand(8, 64))
        shares.give(first.meter, predictor)
    meter_again = copy.deepcopy(first.meter)
    assert all(meter_again.sealed(parameter) == first.meter.sealed(parameter) for parameter in predictor.parameters())
    assert all(second.meter.sealed(parameter) is None for parameter in predictor.parameters())


def test_a_predictor_that_was_trained_elsewhere_does_not_become_metered_by_being_given() -> None:
    first, second = environments(2)
    predictor = network()
    train(predictor, torch.rand(8, 64))
    with alma_env.shared([first.meter, second.meter]) as shares:
        for _ in range(2):
            train(network(), torch.rand(8, 64))
        shares.give(first.meter, predictor)
    with pytest.raises(UnmeteredTrainingError):
        first.step(predictor)


def test_one_predictor_for_two_environments_is_refused_also_as_a_copy() -> None:
    meters, predictor = [Meter(), Meter()], network()

    def give_twice() -> None:
        with alma_env.shared(meters) as shares:
            train(predictor, torch.rand(8, 64))
            train(network(), torch.rand(8, 64))
            shares.give(meters[0], predictor)
            shares.give(meters[1], copy.deepcopy(predictor))

    with pytest.raises(ValueError, match="give each its own"):
        give_twice()
    assert [one.total for one in meters] == [0, 0]


def test_a_predictor_that_is_a_part_of_anothers_is_refused_but_not_what_is_as_it_was_made() -> None:
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
            shares.give(meter_of, nn.Sequential(predictor, nn.BatchNorm1d(10)))  # whose weights are ones and zeros


def test_work_that_cannot_be_divided_equally_is_refused() -> None:
    meters = [Meter(), Meter(), Meter()]
    with pytest.raises(RuntimeError, match="2 FLOPs cannot be divided equally among 3"), alma_env.shared(meters):
        torch.ones(1, 1) @ torch.ones(1, 1)


def test_meters_that_run_or_stand_twice_and_strangers_are_refused() -> None:
    one, other = Meter(), Meter()
    with pytest.raises(ValueError, match="needs different ones"), alma_env.shared([one, one]):
        pass
    with pytest.raises(ValueError, match="at least one"), alma_env.shared([]):
        pass
    with one, pytest.raises(RuntimeError, match="a meter is running"), alma_env.shared([one, other]):
        pass
    with pytest.raises(ValueError, match="has no part"), alma_env.shared([one]) as shares:
        shares.give(other, network())


def test_declared_work_belongs_to_one_environment() -> None:
    def declare() -> None:
        with alma_env.shared([Meter(), Meter()]):
            running = meter.running()
            assert running is not None
            running.declare(4, reason="outside of PyTorch")

    with pytest.raises(RuntimeError, match="declare them to the meter"):
        declare()
