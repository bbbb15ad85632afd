"""Parameters change only while the meter is running."""

from __future__ import annotations

import copy
import dataclasses
import json
import threading
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import alma_env
from alma_env import UnmeteredTrainingError
from alma_env.metering import phase

from ..predictors import Returning, train
from .predictors import Noisy


def test_training_without_the_meter_is_refused(started):
    env, model, observation = started
    train(model, observation)
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(model)
    assert env.tick == 0


def test_training_after_an_unrelated_metered_operation_is_refused(started):
    env, model, observation = started
    with env.meter:
        torch.ones(2, 2) @ torch.ones(2, 2)
    train(model, observation)
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(model)


def test_training_on_after_the_metered_block_is_refused(started):
    env, model, observation = started
    with env.meter:
        train(model, observation)
    train(model, observation)
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(model)


def test_training_in_another_thread_is_refused(started):
    env, model, observation = started
    with env.meter:
        worker = threading.Thread(target=train, args=(model, observation))
        worker.start()
        worker.join()
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


def test_training_in_another_thread_is_refused_also_if_the_network_runs_under_the_meter(env):
    observation, _ = env.reset(seed=0)
    model = Noisy()
    with env.meter:
        worker = threading.Thread(target=train, args=(model, observation))
        worker.start()
        worker.join()
        model.eval()(torch.from_numpy(observation["train"]["x"]))
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


class Registry(dict):
    """A dictionary that can have attributes."""


@pytest.mark.parametrize("registry", [Registry, OrderedDict])
def test_training_weights_that_are_attributes_of_an_empty_registry_is_refused(env, registry):
    model = Returning(lambda x: torch.zeros(len(x), 10))
    model.registry = registry()
    model.registry.bias = torch.zeros(10)
    env.reset(seed=0, options={"predictor": model})
    model.registry.bias = torch.arange(10.0)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


def test_training_in_numpy_is_refused(started):
    env, model, _ = started
    with env.meter:
        for parameter in model.parameters():
            parameter.detach().numpy()[...] += 0.1
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


def test_training_with_dispatch_modes_disabled_is_refused(started):
    from torch.utils._python_dispatch import _disable_current_modes

    env, model, observation = started
    with env.meter, _disable_current_modes():
        train(model, observation)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


def test_an_untrained_module_is_refused_for_a_true_reason_with_reset_as_the_remedy(env):
    env.reset(seed=0)
    remedy = r"reset\(options=\{'predictor': module\}\), and None to step\(\) until it is trained"
    with pytest.raises(UnmeteredTrainingError, match=f"or the predictor is new and untrained: .*{remedy}"):
        env.step(Noisy())
    with env.meter:
        made_in_a_block = Noisy()
    with pytest.raises(UnmeteredTrainingError, match=f"counted 0 FLOPs, as for an untrained predictor: .*{remedy}"):
        env.step(made_in_a_block)


def test_samples_of_the_action_space_are_accepted_until_they_change(env):
    env.reset(seed=0)
    sample = env.action_space.sample()
    env.step(sample)
    with torch.no_grad():
        sample.weight.add_(1)
    with pytest.raises(UnmeteredTrainingError):
        env.step(sample)


def test_a_second_model_trained_at_the_same_tick_can_be_deployed_later(started):
    env, model, observation = started
    second = Noisy()
    with env.meter:
        train(model, observation)
        train(second, observation)
    env.step(model)
    env.step(second)
    assert env.ledger[2].comp == 0


def test_metered_weights_that_were_restored_outside_of_the_block_are_accepted(started):
    env, model, observation = started
    with env.meter:
        train(model, observation)
        best = copy.deepcopy(model.state_dict())
        train(model, observation)
    model.load_state_dict(best)  # a copy only
    with env.meter, torch.no_grad(), phase("validation"):
        model(torch.from_numpy(observation["valid"]["x"]))
    env.step(model)
    assert env.tick == 1


def test_an_earlier_predictor_of_the_episode_can_be_deployed_again(env):
    best = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": best})
    other = copy.deepcopy(best)
    with env.meter:
        train(other, observation)
    env.step(other)
    state = env.state_dict()
    env.step(copy.deepcopy(best))
    assert env.ledger[2].error == env.ledger[0].error
    resumed = alma_env.make("Digits-ALMA-v0", ticks=env.ticks)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    resumed.step(copy.deepcopy(best))
    assert resumed.ledger[2] == dataclasses.replace(env.ledger[2], seconds=resumed.ledger[2].seconds)


def test_a_metered_block_around_the_loop_is_checked_at_every_tick(env):
    model = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
        env.step(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
        with pytest.raises(UnmeteredTrainingError, match="counted 0 FLOPs"):
            env.step(model)


@pytest.mark.parametrize("copying", ["load_state_dict", "deepcopy", "foreach", "clone"])
@pytest.mark.parametrize("frozen", [False, True])
def test_copying_weights_that_were_trained_elsewhere_does_not_make_them_metered(env, copying, frozen):
    model = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    worker = copy.deepcopy(model)
    thread = threading.Thread(target=train, args=(worker, observation, 20))
    thread.start()
    thread.join()
    deployed = model
    with env.meter:
        if copying == "load_state_dict":
            deployed.load_state_dict(worker.state_dict())
        elif copying == "deepcopy":
            deployed = copy.deepcopy(worker)
        elif copying == "foreach":
            with torch.no_grad():
                torch._foreach_copy_(list(deployed.parameters()), list(worker.parameters()))
        else:
            for name, parameter in worker.named_parameters():
                setattr(deployed, name, nn.Parameter(parameter.detach().clone()))
        deployed.requires_grad_(not frozen)
        deployed(torch.from_numpy(observation["valid"]["x"]))  # some counted work
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(deployed)


def test_copies_of_metered_weights_are_accepted(env):
    model = env.action_space.sample()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with env.meter:
        train(model, observation)
        best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        train(model, observation)
        model.load_state_dict(best)
    env.step(model)
    with env.meter:
        train(model, observation)
        best = copy.deepcopy(model.state_dict())
    env.step(None)
    with env.meter:  # kept over a tick, and copied into another network that was made outside
        other = env.action_space.sample()
        other.load_state_dict(best)
        train(model, observation)
    env.step(other)
    assert [row.refused for row in env.ledger] == [False] * 4


@pytest.mark.parametrize("changed", ["scaled in place", "shuffled in place, and read again"])
def test_data_are_recognised_after_the_learner_changed_its_arrays(changed):
    rng = np.random.default_rng(0)
    x, y = rng.normal(3, 2, (120, 8)).astype(np.float32), rng.integers(0, 3, 120)
    env, model = (
        alma_env.make("Arrays-ALMA-v0", train=(x[:100], y[:100]), test=(x[100:], y[100:]), ticks=2),
        nn.Linear(8, 3),
    )
    part = env.reset(seed=0, options={"predictor": model})[0]["train"]
    if changed == "scaled in place":
        part["x"] -= part["x"].mean()
        part["x"] /= 2
        rows = slice(None)
    else:
        rng.shuffle(part["x"])
        part, rows = env.megabatch(1)["train"], rng.permutation(45)[:20]
    with env.meter:
        train(model, {"train": {"x": part["x"][rows], "y": part["y"][rows]}}, 1)
    env.step(model)
    assert env.ledger[1].comp > 0


def test_scoring_is_not_charged_to_the_meter_of_another_environment():
    env, other = (alma_env.make("Digits-ALMA-v0", ticks=3) for _ in range(2))
    env.reset(seed=0)
    with env.meter:
        other.reset(seed=0, options={"predictor": other.action_space.sample()})
        other.step(other.action_space.sample())
        other.validation_error(other.action_space.sample())
    env.step(None)
    assert env.ledger[1].comp == other.ledger[1].comp == 0


class Flat(nn.Module):
    """A predictor whose parameters are views of one vector."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.vector = parameters_to_vector(self.parameters()).detach()
        vector_to_parameters(self.vector, self.parameters())

    def forward(self, x):
        return self.linear(x.flatten(1).float() / 16)


def flat_before_the_episode(env):
    model = Flat()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    return model, observation


def flat_in_the_block(env):
    observation, _ = env.reset(seed=0)
    with env.meter:
        return Flat(), observation


@pytest.mark.parametrize("make", [flat_before_the_episode, flat_in_the_block])
def test_parameters_that_are_views_of_a_vector_are_metered(env, make):
    model, observation = make(env)
    for _ in range(2):
        with env.meter:
            train(model, observation)
        env.step(model)
    with env.meter:
        before = parameters_to_vector(model.parameters()).detach().clone()
        train(model, observation)
        average = (parameters_to_vector(model.parameters()).detach() + before) / 2
        vector_to_parameters(average, model.parameters())
    env.step(model)
    train(model, observation)
    with env.meter:
        model(torch.from_numpy(observation["train"]["x"]))
    with pytest.raises(UnmeteredTrainingError, match="while the meter was not running"):
        env.step(model)
    assert env.tick == 3
