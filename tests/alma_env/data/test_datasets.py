from __future__ import annotations

import copy
import gzip
import hashlib
import io
import pickle
import subprocess
import sys
import tracemalloc
import urllib.error
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import alma_env
from alma_env import DataSet, DataUnavailableError, from_arrays, load
from alma_env.data import image_files
from alma_env.data.datasets import DIGITS_TRAIN, data_root
from alma_env.data.normalisation import moments

DIGESTS = {
    "MNIST": "e3408df646eea59cda40e96e8f7dc9a8",
    "FashionMNIST": "ba4ce6a00dd564ec12a453947d28cfc5",
    "CIFAR10": "e0376c64560abd50aa3870318f7bf740",
}
REAL = tuple(DIGESTS)


# --- custom arrays ---------------------------------------------------------------------------------


def images(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def labels(n: int, classes: int = 3) -> np.ndarray:
    return np.arange(n) % classes


def small(**options: Any) -> DataSet:
    return from_arrays((images(20, 2, 4, 4), labels(20)), (images(10, 2, 4, 4, seed=1), labels(10)), **options)


def test_custom_arrays_become_a_data_set() -> None:
    data = small(name="Mine")
    assert data.name == "Mine"
    assert data.classes == 3
    assert data.train_x.shape == (20, 2, 4, 4)
    assert data.train_x.dtype == np.uint8
    assert data.train_y.dtype == data.test_y.dtype == np.int64
    assert data.scale == 255.0


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


def test_given_normalisation_is_kept() -> None:
    data = small(mean=0.5, std=[0.25, 0.5], scale=16, classes=7)
    assert (data.mean, data.std, data.scale, data.classes) == ((0.5, 0.5), (0.25, 0.5), 16.0, 7)


@pytest.mark.parametrize("given", [{"mean": 0.5}, {"std": 0.5}, {"mean": 0.5, "std": [0.5]}])
def test_one_number_is_used_for_every_channel(given: dict[str, Any]) -> None:
    data = from_arrays((RGB, Y), (RGB, Y), **given)
    assert len(data.mean) == len(data.std) == 3
    for name in given:
        assert getattr(data, name) == (0.5, 0.5, 0.5)


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


X, Y = images(6, 1, 2, 2), np.arange(6) % 2
RGB = images(6, 3, 2, 2)


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


@pytest.mark.parametrize("shape", [(3, 2), (70_001, 3), (9_000, 3, 5, 2), (70_000, 1, 2, 2)])
def test_the_moments_of_floats_are_those_of_numpy_to_the_last_bit(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(3, 2, shape).astype(np.float32)
    channels = [x[:, c] for c in range(shape[1])] if len(shape) > 2 else [x]
    expected = [channel.astype(np.float64) / 1.7 for channel in channels]
    mean, std = moments(x, 1.7)
    assert mean == tuple(values.mean() for values in expected)
    assert std == tuple(values.std() for values in expected)


# --- identity, copies, pickles ------------------------------------------------------------------


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


# --- load: names, options, folders --------------------------------------------------------------


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
    subprocess.run([sys.executable, "-c", code], check=True)


def test_torchvision_can_be_imported_twice() -> None:
    assert image_files.datasets() is image_files.datasets()
    assert image_files.datasets().MNIST.__name__ == "MNIST"


def test_the_checksums_are_those_of_torchvision() -> None:
    for name in ("CIFAR10", "CIFAR100"):
        files, theirs = image_files.layout(name), getattr(image_files.datasets(), name)
        assert files.train == dict(theirs.train_list)
        assert files.test == dict(theirs.test_list)
        assert files.archives == {theirs.filename: theirs.tgz_md5}
        assert files.folder == theirs.base_folder
    for name in ("MNIST", "FashionMNIST"):
        theirs = dict(getattr(image_files.datasets(), name).resources)
        assert {Path(path).name: md5 for path, md5 in image_files.layout(name).archives.items()} == theirs
    assert list(image_files.layout("EMNIST").archives.values()) == [image_files.datasets().EMNIST.md5]
    assert set(image_files.EMNIST_SPLITS) == set(image_files.datasets().EMNIST.splits)


# --- load: offline, damaged, downloaded ---------------------------------------------------------


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


@pytest.mark.parametrize(
    ("name", "file", "folder"),
    [
        ("MNIST", "train-images-idx3-ubyte", "MNIST/raw"),
        ("FashionMNIST", "t10k-labels-idx1-ubyte", "FashionMNIST/raw"),
        ("EMNIST", "emnist-byclass-train-images-idx3-ubyte", "EMNIST/raw"),
        ("CIFAR10", "data_batch_5", "cifar-10-batches-py"),
        ("CIFAR100", "train", "cifar-100-python"),
    ],
)
@pytest.mark.usefixtures("offline")
def test_offline_the_error_names_the_files_and_the_folder(name: str, file: str, folder: str, tmp_path: Path) -> None:
    for download in (True, False):
        with pytest.raises(DataUnavailableError) as error:
            load(name, root=tmp_path, download=download)
        message = str(error.value)
        assert name in message
        assert file in message
        assert str(tmp_path / folder) in message
        assert "ALMA_DATA" in message
        assert ("no network in tests" in message) == download
        assert (error.value.__cause__ is not None) == download
    assert list(tmp_path.iterdir()) == []  # an interrupted download leaves no files


@pytest.mark.usefixtures("offline")
def test_a_root_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataUnavailableError, match=r"MNIST in .*file"):
        load("MNIST", root=tmp_path / "file" / "data")


def test_a_download_has_a_timeout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import socket

    seen = []

    def hang(*_: object, **__: object) -> None:
        seen.append(socket.getdefaulttimeout())
        raise TimeoutError("timed out")

    monkeypatch.setattr("urllib.request.urlopen", hang)
    with pytest.raises(DataUnavailableError, match="timed out"):
        load("CIFAR10", root=tmp_path)
    assert seen == [image_files.TIMEOUT]
    assert socket.getdefaulttimeout() is None


@pytest.mark.usefixtures("offline")
def test_a_damaged_file_is_named_and_not_changed(real_data: Callable[..., DataSet], tmp_path: Path) -> None:
    real_data("MNIST")
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name in image_files.layout("MNIST").files:
        (folder / name).symlink_to(data_root() / "MNIST" / "raw" / name)
    damaged = folder / "t10k-labels-idx1-ubyte"
    content = bytearray(damaged.read_bytes())
    content[1000] ^= 1
    damaged.unlink()
    damaged.write_bytes(content)
    with pytest.raises(DataUnavailableError, match=r"t10k-labels-idx1-ubyte: MD5 .* instead of 27ae3e4e"):
        load("MNIST", root=tmp_path)
    assert damaged.read_bytes() == content


def idx(array: np.ndarray) -> bytes:
    """The file format of the MNIST family."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


class FakeEmnist:
    """A tiny EMNIST 'letters' archive, with torchvision and the published sizes adjusted to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.x = {"train": images(8, 28, 28), "test": images(4, 28, 28, seed=1)}
        self.y = {"train": np.arange(1, 9, dtype=np.uint8), "test": np.array([1, 26, 2, 3], dtype=np.uint8)}
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for part in ("train", "test"):
                for kind, array in (("images-idx3", self.x[part]), ("labels-idx1", self.y[part])):
                    stored = array.swapaxes(1, 2) if array.ndim == 3 else array  # columns first
                    packed = gzip.compress(idx(np.ascontiguousarray(stored)))
                    archive.writestr(f"gzip/emnist-letters-{part}-{kind}-ubyte.gz", packed)
        self.archive = file.getvalue()
        md5 = hashlib.md5(self.archive).hexdigest()
        monkeypatch.setattr(image_files.datasets().EMNIST, "md5", md5)
        monkeypatch.setitem(image_files.EMNIST_SPLITS, "letters", (8, 4, 26))
        layout = image_files.layout

        def adjusted(name: str, split: str = "byclass") -> image_files.Layout:
            return replace(layout(name, split), archives={"EMNIST/raw/gzip.zip": md5})

        monkeypatch.setattr(image_files, "layout", adjusted)

    def check(self, data: DataSet) -> None:
        assert data.name == "EMNIST-letters"
        assert data.classes == 26
        assert np.array_equal(data.train_x[:, 0], self.x["train"])
        assert np.array_equal(data.test_x[:, 0], self.x["test"])
        assert data.train_y.tolist() == list(range(8))
        assert data.test_y.tolist() == [0, 25, 1, 2]


@pytest.mark.usefixtures("offline")
def test_an_archive_on_disk_is_unpacked_without_the_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emnist = FakeEmnist(monkeypatch)
    place = tmp_path / "EMNIST" / "raw" / "gzip.zip"
    place.parent.mkdir(parents=True)
    place.write_bytes(emnist.archive)
    emnist.check(load("EMNIST", split="letters", root=tmp_path, download=False))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["EMNIST"]


@pytest.mark.usefixtures("offline")
def test_a_damaged_archive_is_not_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emnist = FakeEmnist(monkeypatch)
    place = tmp_path / "EMNIST" / "raw" / "gzip.zip"
    place.parent.mkdir(parents=True)
    place.write_bytes(emnist.archive[:-1])
    with pytest.raises(DataUnavailableError, match=r"gzip\.zip"):
        load("EMNIST", split="letters", root=tmp_path, download=False)


class Response(io.BytesIO):
    """The return value of urlopen for a file."""

    def __init__(self, url: str, content: bytes) -> None:
        super().__init__(content)
        self.url, self.length = url, len(content)


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda request, **_: Response(request.full_url, content))


def test_emnist_letters_are_downloaded_turned_upright_and_numbered_from_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    emnist = FakeEmnist(monkeypatch)
    serve(monkeypatch, emnist.archive)
    emnist.check(load("EMNIST", split="letters", root=tmp_path / "new" / "folder"))
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["EMNIST"]


def test_a_download_with_a_wrong_checksum_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emnist = FakeEmnist(monkeypatch)
    serve(monkeypatch, emnist.archive[:-1])
    with pytest.raises(DataUnavailableError, match="corrupted"):
        load("EMNIST", split="letters", root=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("offline")
def test_emnist_files_of_another_size_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emnist = FakeEmnist(monkeypatch)
    folder = tmp_path / "EMNIST" / "raw"
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        (folder / f"emnist-letters-{part}-images-idx3-ubyte").write_bytes(idx(emnist.x["test"]))
        (folder / f"emnist-letters-{part}-labels-idx1-ubyte").write_bytes(idx(emnist.y["test"]))
    with pytest.raises(DataUnavailableError, match=r"\(4, 4\) examples .* instead of \(8, 4\)"):
        load("EMNIST", split="letters", root=tmp_path)


@pytest.mark.usefixtures("offline")
def test_cifar100_is_read_with_its_fine_labels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    x, md5 = images(12, 3, 32, 32), {}
    for name, rows in (("train", slice(0, 8)), ("test", slice(8, 12))):
        batch = {
            "data": x[rows].reshape(-1, 3072),
            "fine_labels": [99, 5, 7, 0][:4] * (2 if name == "train" else 1),
        }
        content = pickle.dumps(batch | {"coarse_labels": [1] * len(x[rows])}, protocol=2)
        (folder / name).write_bytes(content)
        md5[name] = hashlib.md5(content).hexdigest()
    files = replace(image_files.layout("CIFAR100"), train={"train": md5["train"]}, test={"test": md5["test"]})
    monkeypatch.setattr(image_files, "layout", lambda name, **_: files)
    data = load("CIFAR100", root=tmp_path)
    assert data.classes == 100
    assert np.array_equal(data.train_x, x[:8])
    assert data.test_y.tolist() == [99, 5, 7, 0]
    assert len(data.mean) == len(data.std) == 3


# --- the sets themselves ------------------------------------------------------------------------


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
