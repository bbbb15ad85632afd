"""Custom data sets from a file or a folder."""

from __future__ import annotations

import functools
import os
import reprlib
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from alma_env.data import image_files
from alma_env.data.arrays import from_arrays
from alma_env.data.datasets import DataSet
from alma_env.data.rows import from_dataset, in_eight_bits
from alma_env.errors import AlmaError, ArgumentTypeError, DataUnavailableError, MissingPackageError
from alma_env.registration import ROWS_KEYWORDS

_FORMS = (
    "an .npz file with train_x, train_y, test_x, test_y (or x_train, …); a folder with these as .npy files; a folder "
    "of images train/CLASS/*.png and test/CLASS/*.png; or a folder that save_to_disk of Hugging Face wrote, with the "
    "splits train and test"
)
_NAMES = (("train_x", "train_y", "test_x", "test_y"), ("x_train", "y_train", "x_test", "y_test"))
_HUGGING_FACE = "dataset_dict.json"


def from_path(path: str | Path, **keywords: Any) -> DataSet:
    """Make a data set from a file or a folder.

    Files of ``.npy`` are memory-mapped, so they may be larger than the memory, and so may folders of images. The result
    is kept until the files change or another path is read.

    Args:
        path: an ``.npz`` file with the arrays train_x, train_y, test_x and test_y, or x_train and so on; a folder with
            these arrays as ``.npy`` files; a folder of images in torchvision's layout, ``train/CLASS/*.png`` and
            ``test/CLASS/*.png``; or a folder that ``save_to_disk`` of Hugging Face wrote, with splits train and test.
        keywords: those of `from_arrays`, such as ``classes``; for images and for folders of Hugging Face, those of
            `from_dataset`.

    Raises:
        DataUnavailableError: there is no such file or folder, it has another form, or a file is damaged.
        ValueError, TypeError: as `from_arrays` and `from_dataset`; or `path` is no path.
        MissingPackageError: the folder is of Hugging Face, and the package ``datasets`` is not installed.
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError(
            f"data of type {type(path).__name__}: must be a path or a DataSet; for two data sets of rows, such as "
            "TensorDataset, give data=alma_env.from_dataset(train, test)"
        )
    where = Path(path).expanduser().resolve()
    if not where.exists():
        raise DataUnavailableError(f"data={str(path)!r}: there is no such file or folder; give {_FORMS}")
    given = {key: _hashable(key, value) for key, value in keywords.items()}
    return _read(where, _state(where), tuple(sorted(given.items())))


def _hashable(key: str, value: Any) -> Any:
    """Return lists and arrays as tuples."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_hashable(key, one) for one in value)
    if not isinstance(value, Hashable):
        raise ArgumentTypeError(f"{key}={reprlib.repr(value)}: must be a text, a number, or a list of numbers or texts")
    return value


def _state(path: Path) -> str:
    """Return xxh3_128 (hex) of path, size and time of change of each file: a file may move to another class."""
    files = [path] if path.is_file() else sorted(_files(path))
    found = [(os.fspath(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]]
    return xxhash.xxh3_128_hexdigest(repr(found).encode(errors="surrogateescape"))


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a folder; links to folders are followed, as torchvision does, except back to a parent."""
    for at, folders, names in os.walk(path, followlinks=True):
        here = Path(at).resolve()
        folders[:] = [name for name in folders if not here.is_relative_to((here / name).resolve())]
        yield from (Path(at) / name for name in names)


@functools.lru_cache(maxsize=1)
def _read(path: Path, state: str, keywords: tuple[tuple[str, Any], ...]) -> DataSet:
    given = dict(keywords)
    if path.suffix == ".npz":
        return _of_arrays(_unpacked(path), given)
    if path.is_dir():
        if names := {file.stem for file in path.glob("*.npy")}:
            return _of_arrays([_mapped(path / f"{name}.npy") for name in _names(path, names)], given)
        if (path / _HUGGING_FACE).exists():
            return _of_hugging_face(path, given)
        if (path / "train").is_dir() and (path / "test").is_dir():
            return _of_images(path, given)
    raise DataUnavailableError(f"data={str(path)!r}: not in a known form; give {_FORMS}")


@contextmanager
def _named(file: Path, form: str, remedy: str) -> Iterator[None]:
    """Name the file in an error of a library that reads it; the errors of the operating system name it already."""
    try:
        yield
    except (AlmaError, MemoryError):
        raise
    except Exception as error:  # of NumPy, of zip archives, of image formats
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataUnavailableError(
            f"data: {file}: not {form}, or a damaged one ({type(error).__name__}); {remedy}"
        ) from error


def _unpacked(file: Path) -> list[NDArray[Any]]:
    named = _named(file, "an .npz file of numbers", "write it again with np.savez")
    with named, file.open("rb") as opened, np.load(opened) as arrays:
        return [arrays[name] for name in _names(file, set(arrays.files))]


def _mapped(file: Path) -> NDArray[Any]:
    with _named(file, "an .npy file of numbers", "write it again with np.save"):
        array: NDArray[Any] = np.load(file, mmap_mode="r")
        return array


def _image(file: str) -> Any:
    """Return the image of a file with three channels, as torchvision does, but without cutting off its pixels."""
    from PIL import Image

    with _named(Path(file), "an image", "replace or remove it"), Image.open(file) as image:
        image.load()
    image = in_eight_bits(image, file)
    with _named(Path(file), "an image", "replace or remove it"):
        return image.convert("RGB")


def _names(path: Path, found: set[str]) -> tuple[str, ...]:
    for names in _NAMES:
        if found.issuperset(names):
            return names
    raise DataUnavailableError(
        f"data={str(path)!r}: has the arrays {', '.join(sorted(found)) or 'none'}; must have {', '.join(_NAMES[0])}"
    )


def _of_arrays(arrays: list[NDArray[Any]], keywords: dict[str, Any]) -> DataSet:
    for name in ROWS_KEYWORDS:
        if name in keywords:
            raise ValueError(f"{name}= with files of arrays: they have no rows to read and to store; leave it out")
    train_x, train_y, test_x, test_y = arrays
    return from_arrays((train_x, train_y), (test_x, test_y), **keywords)


def _of_images(path: Path, keywords: dict[str, Any]) -> DataSet:
    train, test = (_image_folder(path / part) for part in ("train", "test"))
    if train.classes != test.classes:
        difference = ", ".join(sorted(set(train.classes) ^ set(test.classes)))
        raise ValueError(
            f"data={str(path)!r}: train and test have different folders of classes ({difference}); make them equal"
        )
    return from_dataset(train, test, **{"classes": len(train.classes)} | keywords)


def _image_folder(path: Path) -> Any:
    """Return the images of a part; each class must have one."""
    classes = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    if not classes:
        raise DataUnavailableError(f"data: {path}: has no folder of a class; put the images into {path}/CLASS/")
    module = image_files.datasets()
    folder = module.ImageFolder(str(path), loader=_image, allow_empty=True)
    filled = set(folder.targets)
    if empty := [str(path / name) for number, name in enumerate(folder.classes) if number not in filled]:
        raise DataUnavailableError(
            f"data: {', '.join(empty)}: no image, but each folder is a class and must have one; put images of "
            f"{', '.join(module.folder.IMG_EXTENSIONS)} there, or remove the folder from train and test"
        )
    return folder


def _of_hugging_face(path: Path, keywords: dict[str, Any]) -> DataSet:
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise MissingPackageError(
            f"data={str(path)!r}: a data set of Hugging Face needs the package datasets; pip install datasets"
        ) from error
    splits = load_from_disk(str(path))
    if not {"train", "test"} <= set(splits):
        raise DataUnavailableError(f"data={str(path)!r}: has the splits {', '.join(splits)}; must have train and test")
    return from_dataset(splits["train"], splits["test"], **keywords)
