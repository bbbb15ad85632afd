"""Arrays of one's own become a data set, or are refused with the rule or the conversion."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import alma_env
from alma_env import from_arrays

from .small_arrays import RGB, X, Y, images, labels, small


def test_custom_arrays_become_a_data_set() -> None:
    data = small(name="Mine")
    assert data.name == "Mine"
    assert data.classes == 3
    assert data.train_x.shape == (20, 2, 4, 4)
    assert data.train_x.dtype == np.uint8
    assert data.train_y.dtype == data.test_y.dtype == np.int64
    assert data.scale == 255.0


def test_tensors_with_a_gradient_are_arrays_too() -> None:
    x, y = torch.rand(40, 3, requires_grad=True), torch.arange(40) % 4
    data = alma_env.from_arrays((x, y), (x[:8], y[:8]), classes=4)
    np.testing.assert_array_equal(data.train_x, x.detach().numpy())


def test_tensors_of_bfloat16_become_float32() -> None:
    x, y = torch.rand(40, 3).bfloat16(), torch.arange(40) % 4
    data = alma_env.from_arrays((x, y), (x[:8], y[:8]), classes=4)
    np.testing.assert_array_equal(data.train_x, x.float().numpy())


def test_a_data_set_is_a_read_only_copy_of_its_arrays() -> None:
    x, y = images(20, 2, 4, 4), labels(20)
    data = from_arrays((x, y), (x, y))
    before = data.train_x.copy()
    x[:] = 0
    y[:] = 0
    assert np.array_equal(data.train_x, before)
    assert data.train_y.max() == 2
    for array in (data.train_x, data.train_y, data.test_x, data.test_y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("train", "test", "options", "error", "message"),
    [
        ((X, Y[:5]), (X, Y), {}, ValueError, "train: 6 inputs and 5 labels"),
        ((X, Y), (X[:4], Y), {}, ValueError, "test: 4 inputs and 6 labels"),
        ((X, Y), (X, Y + 1), {}, ValueError, r"test y has the label 2: labels must be 0\.\.1; pass classes="),
        ((X, Y - 1), (X, Y), {}, ValueError, "train y has the label -1"),
        ((X, Y.astype(np.uint64) + np.uint64(2**64 - 2)), (X, Y), {}, ValueError, "train y has the label -2"),
        ((X, Y), (X, Y), {"name": "Text"}, ValueError, "name=.Text.: this name is reserved .*; choose another"),
        ((X, Y), (X, Y), {"classes": 1}, ValueError, "classes=1: must be at least 2"),
        ((X, Y * 0), (X, Y * 0), {}, ValueError, "classes=1"),
        ((X, Y.astype(float)), (X, Y), {}, TypeError, "train y is float64: labels must be integers"),
        ((X, Y.astype(bool)), (X, Y), {}, TypeError, "train y is bool"),
        ((X, Y[:, None]), (X, Y), {}, ValueError, r"train y has shape \(6, 1\): must be \(N,\)"),
        ((X.astype(np.int64), Y), (X, Y), {}, TypeError, "train x is int64: must be uint8 or float"),
        ((X[:, 0, 0, 0], Y), (X, Y), {}, ValueError, r"train x has shape \(6,\)"),
        ((X[:0], Y[:0]), (X, Y), {}, ValueError, r"train x has shape \(0, 1, 2, 2\)"),
        ((X, Y), (X[:0], Y[:0]), {}, ValueError, "test x has shape"),
        ((X, Y), (X[:, :, :1], Y), {}, ValueError, "shape and dtype .* must be equal"),
        ((X, Y), (X / 255, Y), {}, ValueError, "shape and dtype .* must be equal"),
        ((np.full((6, 3), np.nan), Y), (X, Y), {}, ValueError, "NaN or infinite"),
        ((np.full((6, 3), 1e300), Y), (X, Y), {}, ValueError, "NaN or infinite values in float32"),
        ((X, Y), (X, Y), {"scale": 0}, ValueError, "scale=0: must be a positive number"),
        ((X, Y), (X, Y), {"std": 0.0}, ValueError, "must be positive"),
        ((X, Y), (X, Y), {"mean": [0.1, 0.2]}, ValueError, "one finite number, or 1"),
        ((X, Y), (X, Y), {"mean": [[0.1]]}, ValueError, "one finite number, or 1"),
        ((X, Y), (X, Y), {"std": "wide"}, ValueError, "std=wide: must be one finite number, or 1"),
        ((RGB, Y), (RGB, Y), {"mean": [0.1, 0.2]}, ValueError, "one finite number, or 3"),
        ((RGB, Y), (RGB, Y), {"std": [0.1] * 4}, ValueError, "one finite number, or 3"),
        ((X, Y, Y), (X, Y), {}, ValueError, r"train has 3 items: must be a pair \(x, y\)"),
    ],
)
def test_invalid_arrays_are_refused_with_the_rule(
    train: Any, test: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        from_arrays(train, test, **options)


SQUARE = images(6, 16, 16, 3)
NAMES = np.array(["cat", "dog"])[Y]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (SQUARE, Y, r"channels last: must be \(N, C, H, W\); use np\.ascontiguousarray\(x\.transpose\(0, 3, 1, 2\)\)"),
        (images(6, 8, 20, 1), Y, "channels last"),
        (SQUARE / 255, Y, "channels last"),
        (SQUARE[..., 0], Y, r"shape \(6, 16, 16\), images without channels: .*; use x\[:, None\], or for signals"),
        (X, NAMES, r"train y is <U3: .* y = np\.unique\(y, return_inverse=True\)"),
        (X, NAMES.astype(object), r"train y is object: .* y = np\.unique\(y, return_inverse=True\)"),
        (X, np.eye(2)[Y], r"train y has shape \(6, 2\), one-hot labels: .* use y\.argmax\(1\)"),
        (X, np.eye(2, dtype=int)[Y], "one-hot labels"),
        (X, np.eye(2)[Y] > 0, "one-hot labels"),
        (X, Y[:, None], r"train y has shape \(6, 1\): .*; use y\.reshape\(-1\)"),
        (X, Y + 0.5, "train y is float64 with fractions"),
        (X, Y * 10**9, "train y has the label 1,000,000,000 among 6 labels: .*np.unique"),
        (X.tolist(), Y, r"train x is int64: .* convert with x\.astype\('uint8'\)"),
        ([[1.0, 2.0], [3.0]], Y, "train x is not an array .*: all examples must have the same shape"),
    ],
)
def test_data_in_another_form_are_refused_with_their_conversion(x: Any, y: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        from_arrays((x, y), (x, y))


def test_floats_that_are_no_square_images_may_have_few_numbers_on_the_last_axis() -> None:
    series = np.random.default_rng(0).normal(size=(6, 16, 100, 3))
    assert from_arrays((series, Y), (series, Y)).input_shape == (16, 100, 3)


def test_a_large_label_is_allowed_where_the_number_of_classes_is_given() -> None:
    assert from_arrays((X, Y * 20), (X, Y), classes=50).classes == 50
    with pytest.raises(TypeError, match=r"classes=array\(.*: must be a whole number, for example classes=10"):
        from_arrays((X, Y), (X, Y), classes=np.arange(100_000))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [alma_env.make, gym.make])
@pytest.mark.parametrize("keywords", [{"train": (RGB.astype(int), Y)}, {"tain": (RGB, Y)}, {"ticks": X}])
def test_no_type_error_repeats_the_arrays(make: Callable[..., Any], keywords: dict[str, Any]) -> None:
    given = {"train": (RGB, Y), "test": (RGB, Y), "ticks": 2} | keywords
    with pytest.raises(TypeError) as raised:
        make("Arrays-ALMA-v0", **given)
    assert len(str(raised.value)) < 300
    assert isinstance(raised.value, alma_env.AlmaError)


def peak_of(make: Callable[[], object]) -> int:
    """The bytes that are allocated at most while a function runs; NumPy reports its arrays."""
    tracemalloc.start()
    try:
        make()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


LARGE = 4_000_000  # bytes


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((LARGE // 400, 100), np.float32),
        np.zeros((LARGE // 300, 3, 5, 5), np.float32),
        np.zeros((LARGE // 100, 1, 10, 10), np.uint8),
        np.zeros((LARGE // 300, 3, 10, 10), np.uint8),
    ],
    ids=lambda x: f"{x.dtype}{x.shape[1:]}",
)
def test_own_arrays_need_at_most_twice_their_size_and_a_memory_map_is_not_copied(x: Any, tmp_path: Path) -> None:
    y = np.arange(len(x)) % 2
    small = x[:4].copy(), y[:4]
    temporary = 2_000_000 + 2 * y.nbytes  # blocks, and the labels
    assert peak_of(lambda: from_arrays((x, y), small)) < x.nbytes + temporary
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert peak_of(lambda: from_arrays((mapped, y), small)) < temporary
    assert from_arrays((mapped, y), small) == from_arrays((x, y), small)
