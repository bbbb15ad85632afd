"""Classes whose methods lie about the content of a predictor."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import nn

import alma_env
from alma_env import PredictorError, UnmeteredTrainingError

from ..gallery import attack, each
from .linear import CLASSES, FEATURES, NUMBERS, Linear, solution


def trained(observation):
    other = nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        other.weight.copy_(torch.tensor(solution(observation)).view(FEATURES, CLASSES).T)
        other.bias.zero_()
    return other


class NoParameters(Linear):
    def parameters(self, recurse=True):
        return iter(())


class NoNames(Linear):
    def named_parameters(self, *arguments, **others):
        return iter(())


class NoModules(Linear):
    def named_modules(self, *arguments, **others):
        return iter(())

    def modules(self):
        return iter(())


@pytest.mark.parametrize(
    "kind", each("answers for its content:", [NoParameters, NoNames, NoModules], "the parameters are counted")
)
def test_parameters_are_counted_whatever_the_class_says(env, kind):
    model = kind()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].parameters == NUMBERS + CLASSES
    model.layer = trained(observation)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


class Copying(Linear):
    def __deepcopy__(self, memo):
        other = Linear()
        other.layer = copy.deepcopy(getattr(sys, "layer_of_this_test", self.layer), memo)
        return other


class Evaluating(Linear):
    def train(self, mode=True):
        if not mode and hasattr(sys, "layer_of_this_test"):
            self.layer = sys.layer_of_this_test
        return super().train(mode)

    def eval(self):
        return self.train(False)


@attack("gives the environment a copy with other weights", "the copy is refused")
def test_the_copy_that_answers_is_what_is_checked(env, monkeypatch):
    model = Copying()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    monkeypatch.setattr(sys, "layer_of_this_test", trained(observation), raising=False)
    with torch.no_grad():
        model.layer.bias += 0  # the module itself does not change
    model.note = "another structure"
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("gives the environment a member of an ensemble with other weights", "the copy is refused")
def test_a_member_of_an_ensemble_must_equal_its_copy(env, monkeypatch):
    first = Linear()
    observation, _ = env.reset(seed=0, options={"predictor": alma_env.Ensemble([first])})
    monkeypatch.setattr(sys, "layer_of_this_test", trained(observation), raising=False)
    with env.meter:
        member = Copying()
        member(torch.from_numpy(observation["train"]["x"]))
    with pytest.raises(PredictorError, match="its copy has other content"):
        env.step(alma_env.Ensemble([first, member]))


@attack("loads weights when its method eval is called", "the method is not called")
def test_eval_of_the_class_is_not_called(env, monkeypatch):
    model = Evaluating()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    monkeypatch.setattr(sys, "layer_of_this_test", trained(observation), raising=False)
    model.note = "another structure"
    env.step(model)
    assert env.ledger[1].error == env.ledger[0].error


class Undescribed(Linear):
    def __init__(self):
        super().__init__()
        self.lock = Unpicklable()


class Unpicklable:
    def __reduce_ex__(self, protocol):
        raise TypeError("no")

    def __deepcopy__(self, memo):
        return Unpicklable()


@attack("holds an object that cannot be described", "the predictor is refused without a charge")
def test_what_cannot_be_described_is_not_free(env):
    model = Undescribed()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with pytest.raises(UnmeteredTrainingError, match="cannot be described"):
        env.step(model)
    with env.meter:
        model(torch.from_numpy(observation["train"]["x"]))
    env.step(model)
