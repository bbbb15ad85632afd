"""Honest learners, who do something similar to what the cheaters do, are accepted."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import alma_env

from .linear import CLASSES, charge, counted_step, fit, network, solution, tensors


def plain(env, model, observation):
    with env.meter:
        fit(model, observation)
    return model


def built_outside(env, model, observation):
    second = network()
    with env.meter:
        fit(second, observation)
    return second


def built_inside(env, model, observation):
    with env.meter:
        second = network()
        fit(second, observation)
    return second


def with_adam(env, model, observation):
    x, y = tensors(observation)
    with env.meter:
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
        for _ in range(40):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y, weight=torch.tensor([1.0, 0.7, 1.2])).backward()
            optimizer.step()
    return model


def in_shuffled_batches(env, model, observation):
    x, y = tensors(observation)
    rng = np.random.default_rng(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with env.meter:
        for rows in np.array_split(rng.permutation(len(x)), 4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model


def in_batches_of_numpy(env, model, observation):
    part = observation["train"]
    rng = np.random.default_rng(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with env.meter:
        for start in range(0, 32, 16):
            for rows in (slice(start, start + 16), rng.permutation(len(part["x"]))[:16]):
                x, y = torch.from_numpy(part["x"][rows]), torch.from_numpy(part["y"][rows])
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    return model


def on_rescaled_data(env, model, observation):
    x = torch.from_numpy((observation["train"]["x"] - 0.25) / 3)
    y = torch.tensor(observation["train"]["y"])
    with env.meter:
        nn.functional.cross_entropy(model(x), y).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model


def with_the_best_weights_kept_outside(env, model, observation):
    with env.meter:
        fit(model, observation)
    best = copy.deepcopy(model.state_dict())
    with env.meter:
        fit(model, observation)
    model.load_state_dict(best)
    with env.meter:
        fit(model, observation, 1)
    return model


def after_a_copy_of_the_environment(env, model, observation):
    with env.meter:
        fit(model, observation)
    copied = copy.deepcopy(env)
    with copied.meter:
        fit(model, observation)
    copied.step(model)
    assert copied.ledger[1].comp > env.meter.total
    with env.meter:
        fit(model, observation, 0)
    return plain(env, network(), observation)


def with_parts_erased(env, model, observation):
    x, y = tensors(observation)
    x = x.clone()
    with env.meter:
        for row in range(40):
            x[row, row % 9 : row % 9 + 3] = 0.25
        nn.functional.cross_entropy(model(x.clone()), y).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model


def in_an_opaque_format(env, model, observation):
    with env.meter, torch.no_grad():
        x = tensors(observation)[0].to_mkldnn().to_dense()
        model[0].weight.add_((x.T @ nn.functional.one_hot(tensors(observation)[1], CLASSES).float()).T, alpha=0.01)
    return model


def with_forward_derivatives(env, model, observation):
    x, y = tensors(observation)
    weight, bias = (parameter.detach() for parameter in model.parameters())
    with env.meter:
        direction = torch.randn_like(weight)
        loss = lambda weight: nn.functional.cross_entropy(x @ weight.T + bias, y)  # noqa: E731
        _, slope = torch.func.jvp(loss, (weight,), (direction,))
        with torch.no_grad():
            model[0].weight.sub_(slope * direction, alpha=0.01)
    return model


@pytest.mark.parametrize(
    "learner",
    [
        plain,
        with_parts_erased,
        in_an_opaque_format,
        with_forward_derivatives,
        built_outside,
        built_inside,
        with_adam,
        in_shuffled_batches,
        in_batches_of_numpy,
        on_rescaled_data,
        with_the_best_weights_kept_outside,
        after_a_copy_of_the_environment,
    ],
)
def test_honest_learners_are_accepted(started, learner):
    env, model, observation = started
    for tick in range(1, 4):
        predictor = learner(env, model, observation)
        observation, *_ = env.step(predictor)
        assert env.ledger[tick].comp > 0
        if learner is after_a_copy_of_the_environment:
            return


def test_data_gathered_in_numpy_are_recognised(started):
    env, model, observation = started
    gathered = []
    for _ in range(3):
        gathered.append(observation["train"])
        both = {name: np.concatenate([part[name] for part in gathered]) for name in ("x", "y")}
        with env.meter:
            fit(model, {"train": both})
        observation, *_ = env.step(model)
    assert env.tick == 3


@pytest.mark.parametrize("step", [counted_step, counted_step.fn], ids=["counted once", "counted"])
@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize("whole", [False, True])
def test_rows_of_replayed_data_are_recognised(started, step, factor, whole):
    env, model, observation = started
    rng, x, y = np.random.default_rng(0), torch.empty(0, 12), torch.empty(0, dtype=torch.int64)
    for _ in range(3):
        with env.meter:
            new = tensors(observation)
            x, y = torch.cat([x, new[0] if factor == 1 else new[0] * factor]), torch.cat([y, new[1]])
            if whole:
                step(model, torch.optim.SGD(model.parameters(), lr=0.1), x, y)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for rows in np.array_split(rng.permutation(len(x)), 4):
                step(model, optimizer, x[rows], y[rows])
        observation, *_ = env.step(model)
    assert env.ledger[3].comp > env.ledger[2].comp > 0


def test_labels_of_equal_examples_are_recognised_with_any_of_their_values():
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2, (400, 8)).astype(np.float32), rng.integers(0, 3, 400)  # 256 different examples
    env = alma_env.make("Arrays-ALMA-v0", train=data, test=data, ticks=3)
    model = nn.Linear(8, 3)
    observation, _ = env.reset(seed=0, options={"predictor": model})
    rows = rng.permutation(len(observation["train"]["x"]))[:64]
    with env.meter:
        fit(model, {"train": {name: array[rows] for name, array in observation["train"].items()}})
    env.step(model)
    assert env.ledger[1].comp > 0


def test_a_few_numbers_written_again_and_again_are_a_few(started):
    env, model, observation = started
    x, y = tensors(observation)
    with env.meter:
        weight = torch.ones(3)
        for k in range(20):
            weight[k % 3] = 1 + 0.01 * k
        nn.functional.cross_entropy(model(x), y, weight=weight).backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    env.step(model)
    assert env.ledger[1].comp > 0


def test_a_declaration_explains_numbers_of_this_tick_and_of_later_ones(started):
    env, model, observation = started
    weights = solution(observation)
    with env.meter, torch.no_grad():
        env.meter.declare(1000, reason="least squares")
        kept = torch.zeros(weights.shape)
        for row, values in enumerate(weights.tolist()):
            for column, value in enumerate(values):
                kept[row, column] = value
        model[0].weight.copy_(kept * 0.25)
    env.step(model)
    with env.meter, torch.no_grad():
        charge()
        model[0].weight.copy_(kept * 0.5)
    env.step(model)
    assert env.ledger[1].comp >= 1000
    assert env.ledger[2].comp > 0


def test_a_declaration_explains_the_state_of_an_optimizer(started):
    env, model, observation = started
    optimizer = torch.optim.Adam(model.parameters())
    x, y = tensors(observation)
    with env.meter:
        for _ in range(2):
            counted_step(model, optimizer, torch.from_numpy(np.sin(x.numpy())), y)
        env.meter.declare(1000, reason="a sine of NumPy")
    observation, *_ = env.step(model)
    with env.meter:
        counted_step.fn(model, optimizer, *tensors(observation))
    env.step(model)
    assert env.ledger[1].comp > 1000
    assert env.ledger[2].comp > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_data_scaled_far_from_zero_are_recognised(dtype):
    rng = np.random.default_rng(0)
    x, y = rng.normal(1_000, 0.5, (300, 8)).astype(np.float32), rng.integers(0, 3, 300)
    env, model = alma_env.make("Arrays-ALMA-v0", train=(x, y), test=(x, y), ticks=3), nn.Linear(8, 3)
    part = env.reset(seed=0, options={"predictor": model})[0]["train"]
    scaled = ((part["x"] - part["x"].mean()) / part["x"].std()).astype(dtype)
    with env.meter:
        fit(model, {"train": {"x": torch.from_numpy(scaled).float().numpy(), "y": part["y"]}})
        assert not env.meter.content.look_at_all([torch.from_numpy(scaled)])[1]
    env.step(model)
    assert env.ledger[1].comp > 0


def test_examples_that_a_counted_function_changed_in_place_can_be_replayed():
    @alma_env.meter.count_once
    def squash(x):
        x[:40].tanh_()
        return (x @ x.T).sum()

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3_000, 12)).astype(np.float32), rng.integers(0, 3, 3_000)
    env, model = alma_env.make("Arrays-ALMA-v0", train=(x, y), test=(x, y), ticks=3), network()
    x, y = tensors(env.reset(seed=0, options={"predictor": model})[0])
    for prepare in (squash, len):  # at the second tick, the examples are as they were left
        with env.meter:
            prepare(x)
            nn.functional.cross_entropy(model(x), y).backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        env.step(model)
    assert env.ledger[2].comp > 0
