"""The space of predictors behaves like Gymnasium's spaces."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from alma_env import PredictorSpace, UntrainedPredictor


def test_samples_are_modules_of_the_right_shape_determined_by_the_seed():
    one, two = (PredictorSpace((3, 4, 4), 7, seed=5) for _ in range(2))
    x = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8)
    first = one.sample()
    assert first in one
    assert first(x).shape == (6, 7)
    assert torch.equal(first(x), two.sample()(x))
    assert not torch.equal(first(x), one.sample()(x))


def test_sampling_does_not_change_global_generators():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    PredictorSpace((2,), 3, seed=0).sample()
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_masks_are_refused():
    with pytest.raises(ValueError, match="must be None, .* is not finite"):
        PredictorSpace((2,), 3).sample(mask=np.ones(2, dtype=np.int8))


def test_spaces_are_equal_by_shape_and_classes_and_can_be_copied():
    space = PredictorSpace((3, 4, 4), 7)
    assert space == PredictorSpace((3, 4, 4), 7, seed=1)
    assert space != PredictorSpace((3, 4, 4), 8)
    assert copy.deepcopy(space) == pickle.loads(pickle.dumps(space)) == space
    assert not space.is_np_flattenable


def test_equal_samples_stay_two_modules_in_a_network():
    one, two, other = (PredictorSpace((2,), 3, seed=seed).sample() for seed in (0, 0, 1))
    assert one == two == copy.deepcopy(one)
    assert one != other
    assert sum(parameter.numel() for parameter in nn.ModuleList([one, two]).parameters()) == 12
    two.weight.data += 1e-3
    assert one != two


@pytest.mark.parametrize("change", ["weight", "hook", "subclass", "attribute"])
def test_a_changed_sample_is_not_pristine(change):
    sample = PredictorSpace((2,), 3, seed=0).sample()
    assert sample.is_pristine()
    assert copy.deepcopy(sample).is_pristine()
    if change == "weight":
        sample.weight.data += 1e-3
    elif change == "hook":
        sample.register_forward_hook(lambda module, args, out: out + 1)
    elif change == "attribute":
        sample.forward = nn.Identity().forward
    else:
        sample = type("Trained", (UntrainedPredictor,), {})((2,), 3, seed=0)
    assert not sample.is_pristine()
