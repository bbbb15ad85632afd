"""Other networks, gradients and threads, which bring training from outside into the meter's block."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env import UnmeteredTrainingError

from ..gallery import attack, each
from .linear import CLASSES, FEATURES, REFUSED, charge, counted_step, fit, in_thread, network, solution, tensors


def its_state(model, worker):
    model.load_state_dict(worker.state_dict())


def its_sum(model, worker):
    for parameter, other in zip(model.parameters(), worker.parameters(), strict=True):
        parameter.mul_(0).add_(other)


def its_gradients(model, worker):
    for parameter, other in zip(model.parameters(), worker.parameters(), strict=True):
        parameter.grad = parameter.detach() - other.detach()
    torch.optim.SGD(model.parameters(), lr=1.0).step()


@pytest.mark.parametrize(
    "moved", each("trains a worker in a thread, and the block takes", [its_state, its_sum, its_gradients], REFUSED)
)
@pytest.mark.parametrize("made", [lambda model: copy.deepcopy(model), lambda model: network()])
@pytest.mark.parametrize("inside", [False, True])
def test_a_worker_trained_in_a_thread_cannot_hand_over(started, moved, made, inside):
    env, model, observation = started
    worker = made(model)
    if not inside:
        in_thread(fit, worker, observation)
    with env.meter:
        charge()
        if inside:
            in_thread(fit, worker, observation)
        with torch.no_grad():
            moved(model, worker)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("trains a network outside, and deploys it as a new one", REFUSED)
def test_a_new_network_trained_outside_is_not_an_initialisation(started):
    env, _, observation = started
    worker = network()
    fit(worker, observation)
    again = network()
    again.load_state_dict(worker.state_dict())
    with env.meter:
        fit(again, observation, 1)
    with pytest.raises(UnmeteredTrainingError, match="may have been trained"):
        env.step(again)


@attack("computes gradients outside, and applies them inside", REFUSED)
def test_gradients_made_outside_cannot_be_applied_inside(started):
    env, model, observation = started
    x, y = tensors(observation)
    nn.functional.cross_entropy(model(x), y).backward()
    with env.meter:
        charge()
        torch.optim.SGD(model.parameters(), lr=0.5).step()
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("writes weights into the state of an optimizer before a counted function steps it", REFUSED)
def test_an_optimizers_state_from_outside_is_foreign(started):
    env, model, observation = started
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.5)
    with env.meter:
        for _ in range(2):
            counted_step(model, optimizer, *tensors(observation))
    weight = model[0].weight
    goal = torch.from_numpy(solution(observation))
    optimizer.state[weight]["momentum_buffer"] = (weight.detach() - goal) / 0.5e-6
    with env.meter:
        counted_step(model, optimizer, *tensors(observation))
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("computes gradients outside, and a counted function applies them", REFUSED)
def test_gradients_made_outside_cannot_be_applied_by_a_counted_function(started):
    @alma_env.meter.count_once
    def apply(model, optimizer):
        charge()
        optimizer.step()

    env, model, observation = started
    x, y = tensors(observation)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with env.meter:
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            apply(model, optimizer)
    weight = model[0].weight
    weight.grad = weight.detach() - torch.from_numpy(solution(observation))
    with env.meter:
        apply(model, optimizer)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("rewrites labels in a counted function, and selects weights from them", REFUSED)
def test_labels_that_a_counted_function_rewrote_are_no_data():
    @alma_env.meter.count_once
    def rewrite(labels, values):
        charge()
        labels[1_000:].copy_(values[1_000:])

    rng = np.random.default_rng(0)
    data = rng.normal(size=(20_000, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, 20_000)
    env, model = alma_env.make("Arrays-ALMA-v0", train=data, test=data, ticks=5), network()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    y, weights = tensors(observation)[1], solution(observation)
    with env.meter, torch.no_grad():
        rewrite(y, torch.arange(len(y)))
        chosen = y[torch.from_numpy(np.round(weights.ravel() * 1_000).astype(np.int64) + 2_000)]
        model[0].weight.copy_(((chosen - 2_000).float() / 1_000).view(weights.shape))
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("writes weights in a thread between two calls of a counted function", REFUSED)
def test_a_thread_between_two_counted_calls_is_seen(started):
    env, model, observation = started
    weights = torch.from_numpy(solution(observation))

    @alma_env.meter.count_once
    def step(weight, x):
        x @ weight.T
        weight.mul_(1.0)

    with env.meter, torch.no_grad():
        step(model[0].weight, tensors(observation)[0])
        in_thread(model[0].weight.data.copy_, weights)
        step(model[0].weight, tensors(observation)[0])
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("writes weights in a thread after the last call of a counted function", REFUSED)
def test_a_thread_after_a_counted_call_is_seen(started):
    env, model, observation = started
    weights = torch.from_numpy(solution(observation))
    step = alma_env.meter.count_once(lambda weight, x: weight.mul_(1.0).add_((x @ weight.T).sum(), alpha=0.0))
    with env.meter, torch.no_grad():
        step(model[0].weight, tensors(observation)[0])
        in_thread(model[0].weight.data.copy_, weights)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)
