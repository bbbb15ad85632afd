"""Files of images are found, downloaded and unpacked; missing and damaged files are named."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alma_env import DataSet, DataUnavailableError, load
from alma_env.data import image_files
from alma_env.data.datasets import data_root

from .small_arrays import images


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
