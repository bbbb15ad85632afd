"""Training of the predictor outside of the meter's block, followed by an operation on it inside."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

import alma_env
from alma_env import UnmeteredTrainingError
from alma_env.metering import meter

from ..gallery import each
from .linear import REFUSED, charge, fit, in_thread, solution, tensors


def trained_before(env, model, observation):
    fit(model, observation)


def trained_in_pause(env, model, observation):
    with env.meter, env.meter.paused():
        fit(model, observation)


def trained_in_thread(env, model, observation):
    with env.meter:
        in_thread(fit, model, observation)


def trained_without_modes(env, model, observation):
    with env.meter, _disable_current_modes():
        fit(model, observation)


def trained_in_numpy(env, model, observation):
    model[0].weight.detach().numpy()[...] = solution(observation)


WHERE = [trained_before, trained_in_pause, trained_in_thread, trained_without_modes, trained_in_numpy]


def multiplied(model, observation):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.0)


def added_to_zero(model, observation):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.zeros_like(parameter))


def trained_for_one_honest_step(model, observation):
    fit(model, observation, 1)


def moved_through_new_tensors(model, observation):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((parameter * 2) / 2)


def replaced(model, observation):
    for name, parameter in list(model[0].named_parameters()):
        setattr(model[0], name, nn.Parameter(parameter.detach() + 0))


def touched(model, observation):
    meter.running().touch(model)


def changed_by_a_counted_function(model, observation):
    @alma_env.meter.count_once
    def again(model, x):
        model(x)

    again(model, tensors(observation)[0])
    multiplied(model, observation)


@pytest.mark.parametrize("where", each("launders a predictor that was", WHERE, REFUSED))
@pytest.mark.parametrize(
    "washed",
    each(
        "trains outside of the block, and inside the parameters are",
        [
            multiplied,
            added_to_zero,
            trained_for_one_honest_step,
            moved_through_new_tensors,
            replaced,
            touched,
            changed_by_a_counted_function,
        ],
        REFUSED,
    ),
)
def test_a_predictor_that_was_trained_outside_stays_so(started, where, washed):
    env, model, observation = started
    where(env, model, observation)
    with env.meter:
        charge()
        washed(model, observation)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)
    env.meter.declare(10_000, reason="the work outside")
    env.step(model)
    assert env.ledger[1].declared


def test_what_was_declared_once_can_be_trained_on(started):
    env, model, observation = started
    fit(model, observation)
    env.meter.declare(10_000, reason="the work outside")
    observation, *_ = env.step(model)
    with env.meter:
        fit(model, observation, 2)
    observation, *_ = env.step(model)
    trained_in_numpy(env, model, observation)
    with env.meter:
        fit(model, observation, 2)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)
