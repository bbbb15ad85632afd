"""Files of image sets in torchvision's folder layout: check, read, and download through torchvision.

A set on disk is read without torchvision, because importing torchvision takes longer than reading CIFAR-10; the folder
may be read-only. torchvision downloads missing files, with its checksums and its progress bar, into a scratch folder
next to the set, so that an interrupted download leaves no damaged data.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from tarfile import TarError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from alma_env.errors import DataUnavailableError

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]

TIMEOUT = 15.0  # seconds without an answer until a download fails

_IDX_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
# EMNIST's published sizes: train examples, test examples, classes.
EMNIST_SPLITS: Mapping[str, tuple[int, int, int]] = {
    "byclass": (697_932, 116_323, 62),
    "bymerge": (697_932, 116_323, 47),
    "balanced": (112_800, 18_800, 47),
    "letters": (124_800, 20_800, 26),
    "digits": (240_000, 40_000, 10),
    "mnist": (60_000, 10_000, 10),
}


@dataclass(frozen=True)
class Layout:
    """The files of a set below the root, and the MD5 of each (empty if it is not published)."""

    dataset: str  # torchvision's class
    folder: str
    train: Mapping[str, str]
    test: Mapping[str, str]
    archives: Mapping[str, str]  # the downloaded files below the root, and the MD5 of each
    options: Mapping[str, str] = field(default_factory=dict)  # keywords of torchvision's class

    @property
    def files(self) -> dict[str, str]:
        """MD5 of each file of the train and the test part, by path."""
        return {**self.train, **self.test}


def _idx_layout(dataset: str, *digests: tuple[str, str]) -> Layout:
    """Return the layout from the MD5s of each part, unpacked and packed."""
    names = [f"{part}-ubyte" for part in _IDX_PARTS]
    files = [(name, unpacked) for name, (unpacked, _) in zip(names, digests, strict=True)]
    archives = {f"{dataset}/raw/{name}.gz": packed for name, (_, packed) in zip(names, digests, strict=True)}
    return Layout(dataset, f"{dataset}/raw", dict(files[:2]), dict(files[2:]), archives)


_LAYOUTS: dict[str, Layout] = {
    # torchvision checks the archives of the two MNISTs, but not the files unpacked from them.
    "MNIST": _idx_layout(
        "MNIST",
        ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
        ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "FashionMNIST": _idx_layout(
        "FashionMNIST",
        ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
        ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
        ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "CIFAR10": Layout(
        "CIFAR10",
        "cifar-10-batches-py",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        },
        {"test_batch": "40351d587109b95175f43aff81a1287e"},
        {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    ),
    "CIFAR100": Layout(
        "CIFAR100",
        "cifar-100-python",
        {"train": "16019d7e3df5f24257cddd939b257f8d"},
        {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        {"cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
    ),
}


def layout(name: str, split: str = "byclass") -> Layout:
    """Return the layout of the set `name`; `split` is for EMNIST only."""
    if name != "EMNIST":
        return _LAYOUTS[name]
    parts = {
        part: {f"emnist-{split}-{part}-{kind}-ubyte": "" for kind in ("images-idx3", "labels-idx1")}
        for part in ("train", "test")
    }
    archives = {"EMNIST/raw/gzip.zip": "58c8d27c78d21e728a6bc7b3cc06412e"}
    return Layout("EMNIST", "EMNIST/raw", parts["train"], parts["test"], archives, {"split": split})


def read(files: Layout, root: Path, *, download: bool) -> Arrays:
    """Return train and test images, uint8 (N, C, H, W), and labels, int64 (N,), as they are in the files.

    Raises:
        DataUnavailableError: a file is missing and not available for download, or differs from the original.
    """
    problems = _problems(files, root)
    if any(problem == "missing" for problem in problems.values()):
        _download(files, root, problems, download=download)
    elif problems:
        raise _unavailable(files, root, problems, "files differ from the original")
    read_part = _read_cifar if files.dataset.startswith("CIFAR") else _read_idx
    folder = root / files.folder
    try:
        arrays = (*read_part(folder, list(files.train)), *read_part(folder, list(files.test)))
        found = len(arrays[1]), len(arrays[3])
        if files.dataset == "EMNIST" and found != (expected := EMNIST_SPLITS[files.options["split"]][:2]):
            raise ValueError(f"{found} examples for train and test instead of {expected}")
        return arrays
    except (OSError, ValueError) as error:
        raise _unavailable(files, root, {}, f"cannot be read ({error})") from error


def _problems(files: Layout, root: Path) -> dict[str, str]:
    """Return the problem of each file that is missing or differs from the original."""
    found = {}
    for name, expected in files.files.items():
        path = root / files.folder / name
        if not path.is_file():
            found[name] = "missing"
        elif expected and (digest := _md5(path)) != expected:
            found[name] = f"MD5 {digest} instead of {expected}"
    return found


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _read_idx(folder: Path, names: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images, labels = (folder / name for name in names)
    header = np.fromfile(images, ">i4", count=4)
    if len(header) < 4 or header[0] != 2051:
        raise ValueError(f"{images} is not an idx file of images")
    x = np.fromfile(images, np.uint8, offset=16).reshape(header[1], 1, header[2], header[3])
    y = np.fromfile(labels, np.uint8, offset=8).astype(np.int64)
    if len(x) != len(y):
        raise ValueError(f"{images} holds {len(x)} images, {labels} {len(y)} labels")
    return x, y


def _read_cifar(folder: Path, names: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    # Safe: `_problems` has compared the files with the MD5s of the originals.
    batches = [pickle.loads((folder / name).read_bytes(), encoding="latin1") for name in names]
    x = np.concatenate([batch["data"] for batch in batches]) if len(batches) > 1 else batches[0]["data"]
    y = np.concatenate([batch.get("labels", batch.get("fine_labels")) for batch in batches])
    return x.reshape(-1, 3, 32, 32), y.astype(np.int64)


def _download(files: Layout, root: Path, problems: Mapping[str, str], *, download: bool) -> None:
    """Unpack or download the missing files, from archives on disk or from the network."""
    archives = files.archives.items()
    present = [name for name, expected in archives if (root / name).is_file() and _md5(root / name) == expected]
    if not download and len(present) < len(archives):
        raise _unavailable(files, root, problems, "not on disk, and download=False")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root, ignore_cleanup_errors=True) as folder:
            scratch = Path(folder)
            for archive in present:  # torchvision unpacks an intact archive without the network
                (scratch / archive).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / archive, scratch / archive)
            with _network_timeout(TIMEOUT):
                getattr(datasets(), files.dataset)(scratch, train=False, download=True, **files.options)
            if found := _problems(files, scratch):
                raise RuntimeError(f"the download is not the original: {found}")
            (root / files.folder).mkdir(parents=True, exist_ok=True)
            for path in (scratch / files.folder).iterdir():
                if path.suffix not in (".gz", ".zip") and not (root / files.folder / path.name).exists():
                    path.rename(root / files.folder / path.name)
    except (OSError, RuntimeError, ImportError, EOFError, HTTPException, TarError, BadZipFile) as error:
        raise _unavailable(files, root, problems, f"the download failed ({error})") from error
    if problems := _problems(files, root):
        raise _unavailable(files, root, problems, "files differ from the original")


def _unavailable(files: Layout, root: Path, problems: Mapping[str, str], why: str) -> DataUnavailableError:
    details = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    archives = ", ".join(str(root / archive) for archive in files.archives)
    return DataUnavailableError(
        f"{files.dataset} in {root}: {why}{f' ({details})' if details else ''}. "
        f"Remove damaged files and place {', '.join(files.files)} in the folder {root / files.folder}, "
        f"or place their archives: {archives}. "
        f"Or set the environment variable ALMA_DATA (or root=...) to a folder that contains {files.folder}/"
    )


@contextmanager
def _network_timeout(seconds: float) -> Iterator[None]:
    # torchvision opens URLs without a timeout: behind a firewall that drops packets it would wait for minutes.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


_registered: list[Any] = []  # keeps torch Libraries alive: their operators vanish with them


def datasets() -> Any:
    """Return the module torchvision.datasets, also with a torch build that lacks torchvision's operators."""
    try:
        return importlib.import_module("torchvision.datasets")
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]
    _registered.append(library)
    return importlib.import_module("torchvision.datasets")
