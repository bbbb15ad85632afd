"""Data sets by name: their identity, the arguments and the folder of load, and what the sets hold."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from alma_env import DataSet, from_arrays, load
from alma_env.data import image_files
from alma_env.data.datasets import DIGITS_TRAIN, data_root

from .small_arrays import small

DIGESTS = {
    "MNIST": "e3408df646eea59cda40e96e8f7dc9a8",
    "FashionMNIST": "ba4ce6a00dd564ec12a453947d28cfc5",
    "CIFAR10": "e0376c64560abd50aa3870318f7bf740",
}
REAL = tuple(DIGESTS)


def test_the_digest_depends_on_the_four_arrays_only() -> None:
    data = small()
    assert data.digest == small(name="Other", classes=9).digest
    arrays = {name: getattr(data, name).copy() for name in ("train_x", "train_y", "test_x", "test_y")}
    for name, array in arrays.items():
        changed = array.copy()
        changed.flat[-1] = 1 - changed.flat[-1] % 2
        parts = arrays | {name: changed}
        other = from_arrays((parts["train_x"], parts["train_y"]), (parts["test_x"], parts["test_y"]))
        assert other.digest != data.digest, name


def test_a_copy_is_the_same_object_and_an_unpickled_one_is_equal() -> None:
    data = small(mean=0.5)
    assert copy.copy(data) is copy.deepcopy(data) is data
    again = pickle.loads(pickle.dumps(data))
    assert again == data
    assert hash(again) == hash(data)
    assert again.mean == (0.5, 0.5)
    assert not again.train_x.flags.writeable


def test_a_loaded_set_is_shared_and_pickled_by_name() -> None:
    data = load("Digits")
    assert load("Digits") is data
    pickled = pickle.dumps(data)
    assert len(pickled) < 500
    assert pickle.loads(pickled) is data


def test_unpickling_with_other_data_on_disk_is_refused() -> None:
    data = load("Digits")
    function, (source, _) = data.__reduce__()
    with pytest.raises(ValueError, match="unpickle it with the same files"):
        function(source, "0" * 32)


def test_unknown_names_and_options_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="name='mnist': the data sets are MNIST, FashionMNIST"):
        load("mnist")
    with pytest.raises(ValueError, match="split='balanced': MNIST has no options"):
        load("MNIST", split="balanced")
    with pytest.raises(ValueError, match="split='all': must be one of byclass, bymerge"):
        load("EMNIST", split="all")
    with pytest.raises(ValueError, match=r"part='all': EMNIST has the option split \(byclass"):
        load("EMNIST", part="all")


def test_the_folder_is_alma_data_or_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALMA_DATA", str(tmp_path))
    assert data_root() == tmp_path.resolve()
    monkeypatch.setenv("ALMA_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root().parts[-2:] == ("alma-env", "data")


def test_importing_alma_env_or_reading_digits_does_not_import_torchvision() -> None:
    code = "import alma_env, sys; alma_env.load('Digits'); sys.exit('torchvision' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_digits_need_no_file_and_have_a_fixed_split() -> None:
    data = load("Digits", root="/nowhere")
    assert data.train_x.shape == (DIGITS_TRAIN, 1, 8, 8) == (1400, 1, 8, 8)
    assert data.test_x.shape == (397, 1, 8, 8)
    assert data.train_x.dtype == np.uint8
    assert data.train_x.max() == data.scale == 16
    assert data.digest == "a6cc24400873ae9819a89c72de8d6da8"
    x = data.train_x / data.scale
    assert (data.mean, data.std) == (pytest.approx((x.mean(),)), pytest.approx((x.std(),)))
    assert np.bincount(data.train_y).min() > 120
    # Other strides would make a convolution take the images for channels last, and change its last bits.
    assert data.train_x.strides == np.zeros(data.train_x.shape, np.uint8).strides


@pytest.mark.parametrize("name", REAL)
def test_real_sets_have_their_published_shape_and_content(name: str, real_data: Callable[..., DataSet]) -> None:
    data = real_data(name)
    shape = (3, 32, 32) if name == "CIFAR10" else (1, 28, 28)
    n = 50_000 if name == "CIFAR10" else 60_000
    assert data.train_x.shape == (n, *shape)
    assert data.test_x.shape == (10_000, *shape)
    assert data.train_x.dtype == data.test_x.dtype == np.uint8
    assert data.train_y.dtype == data.test_y.dtype == np.int64
    assert data.train_x.flags.c_contiguous
    assert data.classes == 10
    if name == "MNIST":
        expected = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    else:
        expected = [n // 10] * 10
    assert np.bincount(data.train_y).tolist() == expected
    assert data.digest == DIGESTS[name]


@pytest.mark.parametrize("name", REAL)
def test_normalisation_constants_equal_those_of_the_training_images(
    name: str, real_data: Callable[..., DataSet]
) -> None:
    data = real_data(name)
    for channel, (mean, std) in enumerate(zip(data.mean, data.std, strict=True)):
        counts = np.bincount(data.train_x[:, channel].reshape(-1), minlength=256)
        values = np.arange(256) / data.scale
        average = np.average(values, weights=counts)
        assert mean == pytest.approx(average, abs=6e-5)
        assert std == pytest.approx(np.sqrt(np.average((values - average) ** 2, weights=counts)), abs=1e-4)


@pytest.mark.parametrize("name", REAL)
def test_a_set_equals_the_one_that_torchvision_reads(name: str, real_data: Callable[..., DataSet]) -> None:
    data = real_data(name)
    for part, x, y in (("train", data.train_x, data.train_y), ("test", data.test_x, data.test_y)):
        theirs = getattr(image_files.datasets(), name)(data_root(), train=part == "train")
        their_x = np.asarray(theirs.data)
        their_x = their_x.transpose(0, 3, 1, 2) if their_x.ndim == 4 else their_x[:, None]
        assert np.array_equal(x, their_x)
        assert np.array_equal(y, np.asarray(theirs.targets))


@pytest.mark.usefixtures("offline")
def test_reading_writes_nothing(real_data: Callable[..., DataSet], tmp_path: Path) -> None:
    real_data("MNIST")
    (tmp_path / "MNIST").symlink_to(data_root() / "MNIST")
    before = sorted(path.name for path in (data_root() / "MNIST" / "raw").iterdir())
    tmp_path.chmod(0o555)
    data = load("MNIST", root=tmp_path)
    assert data.digest == DIGESTS["MNIST"]
    assert [path.name for path in tmp_path.iterdir()] == ["MNIST"]
    assert sorted(path.name for path in (data_root() / "MNIST" / "raw").iterdir()) == before
    tmp_path.chmod(0o755)
