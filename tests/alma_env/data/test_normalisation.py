"""The mean and the deviation of the inputs, per channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alma_env import from_arrays
from alma_env.data.normalisation import moments

from .small_arrays import RGB, Y, images, labels, small


def test_normalised_training_inputs_have_mean_0_and_deviation_1_per_channel() -> None:
    data = small()
    mean, std = (np.array(v).reshape(1, 2, 1, 1) for v in (data.mean, data.std))
    x = (data.train_x / data.scale - mean) / std
    assert np.allclose(x.mean(axis=(0, 2, 3)), 0)
    assert np.allclose(x.std(axis=(0, 2, 3)), 1)


def test_double_precision_becomes_single_and_two_axes_share_one_mean() -> None:
    x = np.random.default_rng(0).normal(5, 2, (50, 7))
    data = from_arrays((x, labels(50)), (x, labels(50)))
    assert data.train_x.dtype == np.float32
    assert data.scale == 1.0
    assert data.mean == pytest.approx((x.mean(),), rel=1e-6)
    assert data.std == pytest.approx((x.std(),), rel=1e-6)


def test_a_constant_channel_gets_deviation_1() -> None:
    x = images(20, 2, 4, 4)
    x[:, 1] = 51
    data = from_arrays((x, labels(20)), (x, labels(20)))
    assert data.mean[1] == pytest.approx(0.2)
    assert data.std[1] == 1.0


def test_every_constant_has_deviation_1() -> None:
    x = np.zeros((1, 256, 7, 5), np.uint8) + np.arange(256, dtype=np.uint8).reshape(1, 256, 1, 1)
    for constants in (x, x.astype(np.float32)):
        mean, std = moments(constants, 255.0)
        assert mean == tuple(value / 255 for value in range(256))
        assert std == (1.0,) * 256


def test_given_normalisation_is_kept() -> None:
    data = small(mean=0.5, std=[0.25, 0.5], scale=16, classes=7)
    assert (data.mean, data.std, data.scale, data.classes) == ((0.5, 0.5), (0.25, 0.5), 16.0, 7)


@pytest.mark.parametrize("given", [{"mean": 0.5}, {"std": 0.5}, {"mean": 0.5, "std": [0.5]}])
def test_one_number_is_used_for_every_channel(given: dict[str, Any]) -> None:
    data = from_arrays((RGB, Y), (RGB, Y), **given)
    assert len(data.mean) == len(data.std) == 3
    for name in given:
        assert getattr(data, name) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("shape", [(3, 2), (70_001, 3), (9_000, 3, 5, 2), (70_000, 1, 2, 2)])
def test_the_moments_of_floats_are_those_of_numpy_to_the_last_bit(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(3, 2, shape).astype(np.float32)
    channels = [x[:, c] for c in range(shape[1])] if len(shape) > 2 else [x]
    expected = [channel.astype(np.float64) / 1.7 for channel in channels]
    mean, std = moments(x, 1.7)
    assert mean == tuple(values.mean() for values in expected)
    assert std == tuple(values.std() for values in expected)
