"""Untrained predictors: seeds, attributes and hooks that would hold learned numbers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env.errors import PredictorError, UnmeteredTrainingError
from alma_env.scoring.spaces import UntrainedPredictor

from ..gallery import attack, case


class NumberOfOnesOwn(int):
    """A seed with an attribute."""


@pytest.mark.parametrize("seed", [
    case("takes a list of trained numbers as the seed of an untrained predictor", "refused", [1, 2, 3]),
    case("takes a sequence of seeds", "refused", np.random.SeedSequence(1)),
    case("takes a random generator as the seed", "refused", np.random.default_rng(0)),
    case("takes an array as the seed", "refused", np.arange(9)),
    case("takes a number of NumPy as the seed", "refused", np.int64(3)),
    case("takes an integer with attributes as the seed", "refused", NumberOfOnesOwn(3)),
    case("takes a truth value as the seed", "refused", True),
    case("takes an integer of a thousand digits as the seed", "refused", 10**1000),
    case("takes a negative seed", "refused", -1),
    case("takes no seed, so that the weights differ each time", "refused", None),
])  # fmt: skip
def test_the_seed_of_an_untrained_predictor_is_a_plain_integer(seed):
    with pytest.raises((TypeError, ValueError), match="seed="):
        UntrainedPredictor((1, 8, 8), 10, seed)
    changed = UntrainedPredictor((1, 8, 8), 10, 3)
    changed.seed = seed
    assert not changed.is_pristine()


def hide_in_method(predictor):
    predictor.weight.data += 1
    predictor._initial_weight = lambda: predictor.weight


def hide_in_answer(predictor):
    predictor.weight.data += 1
    predictor.is_pristine = lambda: True


def hide_in_call(predictor):
    predictor._call_impl = lambda x: torch.ones(len(x), 10)


def hide_in_attribute(predictor):
    predictor._learned = torch.ones(640)


def hide_in_parameter(predictor):
    predictor.weight.learned = torch.ones(640)


def hide_in_gradient(predictor):
    predictor.weight.register_hook(lambda gradient: gradient)


def hide_in_hook(predictor):
    predictor.register_forward_hook(lambda module, inputs, out: out + 1)


def hide_in_hook_with_keywords(predictor):
    predictor.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)


def hide_in_buffer(predictor):
    predictor.register_buffer("learned", torch.ones(640), persistent=False)


def hide_in_module(predictor):
    predictor.learned = nn.Linear(64, 10)


def hide_in_class(predictor):
    predictor.weight.data += 1
    predictor.__class__ = type("Pristine", (UntrainedPredictor,), {"is_pristine": lambda self: True})


@pytest.mark.parametrize("hide", [
    case("replaces the method that draws the weights", "refused as unmetered", hide_in_method),
    case("replaces the method that says whether it is untrained", "refused as unmetered", hide_in_answer),
    case("replaces the call of an untrained predictor", "no longer untrained", hide_in_call),
    case("keeps numbers in an attribute of an untrained predictor", "no longer untrained", hide_in_attribute),
    case("keeps numbers in an attribute of its parameter", "no longer untrained", hide_in_parameter),
    case("keeps numbers in a hook of its parameter", "no longer untrained", hide_in_gradient),
    case("keeps numbers in a hook", "no longer untrained", hide_in_hook),
    case("keeps numbers in a hook with keywords", "no longer untrained", hide_in_hook_with_keywords),
    case("keeps numbers in a buffer", "no longer untrained", hide_in_buffer),
    case("keeps numbers in a module", "no longer untrained", hide_in_module),
    case("says by a subclass that it is untrained", "refused as unmetered", hide_in_class),
])  # fmt: skip
def test_an_untrained_predictor_has_nothing_but_the_weights_of_its_seed(hide):
    predictor = UntrainedPredictor((1, 8, 8), 10, 3)
    assert UntrainedPredictor.is_pristine(predictor)
    hide(predictor)
    assert not UntrainedPredictor.is_pristine(predictor)
    if hide in {hide_in_method, hide_in_answer, hide_in_class}:
        env = alma_env.make("Digits-ALMA-v0", ticks=2)
        env.reset(seed=0)
        with pytest.raises((UnmeteredTrainingError, PredictorError)):
            env.step(predictor)


@attack("changes nothing: an untrained predictor in another mode, copied or without gradients", "accepted")
def test_honest_untrained_predictors_are_recognised():
    space = alma_env.make("Digits-ALMA-v0", ticks=2).action_space
    space.seed(0)
    predictor = space.sample()
    predictor(torch.zeros(2, 1, 8, 8)).sum().backward()
    for same in (predictor, copy.deepcopy(predictor), predictor.eval(), predictor.requires_grad_(False)):
        assert same.is_pristine()
