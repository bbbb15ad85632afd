"""Custom data sets from rows, files and folders equal those from the same arrays; inputs stay on the disk."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import resource
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import agents
import alma_env
from agents.cli import main
from alma_env.data import rows
from alma_env.data.arrays import is_mapped

RANDOM = np.random.default_rng(0)
IMAGES, LABELS = RANDOM.integers(0, 256, (60, 3, 8, 8)).astype(np.uint8), np.arange(60) % 3
FLOATS = RANDOM.normal(size=(60, 5)).astype(np.float32)
ROUND = RANDOM.integers(0, 9, (60, 5)).astype(np.float32)  # exact in bfloat16


def pairs(x, y):
    return list(zip(x, y, strict=True))


def expected(x, **keywords):
    return alma_env.from_arrays((x[:40], LABELS[:40]), (x[40:], LABELS[40:]), **keywords)


def as_image(x):
    return Image.fromarray(x.transpose(1, 2, 0))


def columns(x, y):
    return [{"image": one, "label": label} for one, label in pairs(x, y)]


@pytest.mark.parametrize(
    ("form", "x"),
    [
        (lambda x, y: pairs(x, y), IMAGES),
        (lambda x, y: pairs(map(torch.from_numpy, x), map(torch.tensor, y.tolist())), FLOATS),
        (lambda x, y: pairs(map(as_image, x), y.tolist()), IMAGES),
        (lambda x, y: columns(map(as_image, x), y), IMAGES),
        (lambda x, y: TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), FLOATS),
        (lambda x, y: TensorDataset(torch.from_numpy(x).bfloat16(), torch.from_numpy(y)), ROUND),
        (lambda x, y: pairs(map(torch.Tensor.bfloat16, torch.from_numpy(x)), y), ROUND),
    ],
    ids=["arrays", "tensors", "images", "columns", "TensorDataset", "TensorDataset of bfloat16", "bfloat16"],
)
def test_a_data_set_of_rows_equals_the_arrays(form, x):
    data = alma_env.from_dataset(form(x[:40], LABELS[:40]), form(x[40:], LABELS[40:]))
    other = expected(x)
    assert data.digest == other.digest
    assert (data.scale, data.classes) == (other.scale, other.classes)
    np.testing.assert_allclose(data.mean, other.mean, rtol=1e-12)
    np.testing.assert_allclose(data.std, other.std, rtol=1e-12)


def test_a_learner_runs_on_memory_mapped_inputs_with_the_same_ledger():
    def ledger(data):
        env = alma_env.make("Arrays-ALMA-v0", data=data, ticks=2)
        return agents.run(env, agents.make("sm", env, width=4, wait=1, epochs=2, seed=0), seed=0)

    data = alma_env.from_dataset(pairs(IMAGES[:40], LABELS[:40]), pairs(IMAGES[40:], LABELS[40:]))
    assert is_mapped(data.train_x)
    assert is_mapped(data.test_x)
    same = expected(IMAGES, mean=data.mean, std=data.std)
    assert [row.error for row in ledger(data)] == [row.error for row in ledger(same)]


class Large:
    """Rows of 1 MiB that are made when they are read."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int):
        if index >= self.n:
            raise IndexError(index)
        return np.full((1, 1024, 1024), index % 7, np.uint8), index % 2


@pytest.mark.skipif(sys.platform != "linux", reason="the limit counts memory that is not a file's on Linux only")
def test_inputs_that_exceed_the_memory_are_streamed(tmp_path):
    """128 MiB of inputs, while the process may allocate 96 MiB more than it has now."""
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/status") as file:
        now = next(int(line.split()[1]) for line in file if line.startswith("VmData")) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (now + (96 << 20), hard))
    try:
        data = alma_env.from_dataset(Large(120), Large(8), folder=tmp_path)
        env = alma_env.make("Arrays-ALMA-v0", data=data, ticks=12)
        observation, _ = env.reset(seed=0)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    assert observation["train"]["x"].shape == (9, 1, 1024, 1024)
    assert not list(tmp_path.iterdir())  # the file disappears with the data set


def test_a_full_disk_is_an_error_that_names_the_folder(monkeypatch, tmp_path):
    class Full:
        def __init__(self, dir):
            self.dir = dir

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rows.tempfile, "TemporaryFile", Full)
    with pytest.raises(OSError, match=r"cannot write 7,680 bytes .* give folder=") as caught:
        alma_env.from_dataset(pairs(IMAGES[:40], LABELS[:40]), pairs(IMAGES[40:], LABELS[40:]), folder=tmp_path)
    assert caught.value.filename == str(tmp_path)


def test_an_image_that_cannot_be_read_keeps_its_own_error():
    class Damaged(Large):
        def __getitem__(self, index):
            if index == 3:
                raise OSError("cannot identify image file 'cat.png'")
            return super().__getitem__(index)

    with pytest.raises(OSError, match="cannot identify image file"):
        alma_env.from_dataset(Damaged(5), Large(2))


def test_memory_mapped_floats_have_the_moments_of_the_array(tmp_path):
    mapped_x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(60, 3, 4))
    mapped_x[:] = RANDOM.normal(2, 3, (60, 3, 4))
    data, other = (alma_env.from_arrays((x, LABELS), (x, LABELS)) for x in (mapped_x, np.array(mapped_x)))
    assert is_mapped(data.train_x)
    assert data.digest == other.digest
    np.testing.assert_allclose((data.mean, data.std), (other.mean, other.std), rtol=1e-12)


@pytest.mark.parametrize(
    ("train", "keywords", "error", "message"),
    [
        ([], {}, ValueError, "train is a list without numbered rows"),
        (iter([]), {}, ValueError, "materialise an iterable data set"),
        ([(IMAGES[0], 0), (IMAGES[0][:, :4], 1)], {}, ValueError, r"train\[1\] is uint8 \(3, 4, 8\).*a resize"),
        ([(IMAGES[0], "cat")], {}, TypeError, "y is 'cat': labels must be whole numbers"),
        ([(IMAGES[0], np.array([0, 1, 0]))], {}, TypeError, r"y is '\[0, 1, 0\]': labels must be whole numbers"),
        ([(IMAGES[0], torch.tensor([0, 1, 0]))], {}, TypeError, r"y is '\[0, 1, 0\]': labels must be whole numbers"),
        (
            [(np.zeros(0, np.float32), 0)],
            {},
            ValueError,
            r"train\[0\]: x has shape \(0,\): must have at least one number",
        ),
        ([("text", 0)], {}, TypeError, r"train\[0\]: x is a str"),
        ([{"text": "a", "label": 0}], {}, ValueError, "give columns="),
        ([{"image": IMAGES[0], "label": 0}], {"columns": ("image", "digit")}, ValueError, "no column 'digit'"),
        ([(1, 2, 3)], {}, TypeError, "must be a pair"),
    ],
)
def test_rows_that_break_a_rule_are_named(train, keywords, error, message):
    with pytest.raises(error, match=message):
        alma_env.from_dataset(train, pairs(IMAGES[40:], LABELS[40:]), **keywords)


# --- files and folders ---

NAMES = ("train_x", "train_y", "test_x", "test_y")


def write_npz(folder):
    path = folder / "own.npz"
    np.savez(path, x_train=IMAGES[:40], y_train=LABELS[:40], x_test=IMAGES[40:], y_test=LABELS[40:])
    return path


def write_npy(folder):
    parts = {"train_x": IMAGES[:40], "train_y": LABELS[:40], "test_x": IMAGES[40:], "test_y": LABELS[40:]}
    for name, array in parts.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def write_images(folder):
    order = np.argsort(LABELS, kind="stable")  # torchvision reads class after class
    for index, (x, y) in enumerate(pairs(IMAGES[order], LABELS[order])):
        place = folder / ("train" if order[index] < 40 else "test") / "abc"[y]
        place.mkdir(parents=True, exist_ok=True)
        as_image(x).save(place / f"{index:03}.png")
    return folder


@pytest.mark.parametrize("write", [write_npz, write_npy, write_images])
def test_a_path_gives_the_arrays_that_are_there(write, tmp_path):
    data = alma_env.from_path(write(tmp_path))
    if write is write_images:
        first, second = (np.argsort(part, kind="stable") for part in (LABELS[:40], LABELS[40:]))
        other = alma_env.from_arrays(
            (IMAGES[:40][first], LABELS[:40][first]), (IMAGES[40:][second], LABELS[40:][second])
        )
    else:
        other = expected(IMAGES)
    assert data.digest == other.digest
    assert alma_env.from_path(tmp_path / "own.npz" if write is write_npz else tmp_path) is data  # read once
    assert is_mapped(data.train_x) == (write is not write_npz)


def test_the_command_runs_on_data_of_the_user(tmp_path, capsys):
    path = str(write_npz(tmp_path))
    words = ["--data", path, "--wait", "2", "--width", "4", "--set", "ticks=2", "epochs=1", "--out", str(tmp_path)]
    assert main(["run", *words]) == 0
    assert (tmp_path / "Arrays-ALMA-v0").is_dir()
    assert main(["run", "MNIST-ALMA-v0", *words]) == 2
    assert "an environment with data of its own" in capsys.readouterr().err
    for without in (["run", "Arrays-ALMA-v0"], ["sweep", "--env", "Digits-ALMA-v0", "alma_env/Arrays-ALMA-v0"]):
        assert main(without) == 2
        assert "without data: give --data PATH" in capsys.readouterr().err
    assert main(["run", "--data", path, "--width", "4"]) == 2
    assert "choose at most 4, on the command line --set ticks=4" in capsys.readouterr().err
    assert main(["sweep", *words, "--workers", "1"]) == 0
    assert "1 of them from before" in capsys.readouterr().out


def test_a_path_takes_mean_and_deviation_as_arrays(tmp_path):
    path, mean = write_npz(tmp_path), np.array([0.4, 0.5, 0.6])
    assert alma_env.from_path(path, mean=mean, std=[0.2, 0.2, 0.2]).mean == pytest.approx(tuple(mean))
    with pytest.raises(ValueError, match="mean"):
        alma_env.from_path(path, mean=[[0.1]])


def test_the_columns_and_the_file_of_rows_are_for_paths_of_rows(tmp_path):
    path = write_npz(tmp_path)
    for keywords in ({"columns": ("image", "label")}, {"folder": tmp_path}):
        with pytest.raises(ValueError, match=f"{next(iter(keywords))}= with files of arrays"):
            alma_env.make("Arrays-ALMA-v0", data=path, **keywords)
    with pytest.raises(TypeError, match="mean={0: 1}: must be a text, a number, or a list"):
        alma_env.from_path(path, mean={0: 1})


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_images_of_more_than_eight_bits_are_not_cut_off(kind, tmp_path):
    def image(brightest):
        return Image.fromarray(np.linspace(0, brightest, 64).round().reshape(8, 8).astype(kind))

    def rows_of(brightest):
        return [(image(brightest), label) for label in (0, 1)] * 10

    def folder_of(brightest):
        for part, label, number in itertools.product(("train", "test"), "ab", range(5)):
            (tmp_path / part / label).mkdir(parents=True, exist_ok=True)
            image(brightest).save(tmp_path / part / label / f"{number}.tif")
        return tmp_path

    rule = "x is an image .* from 0 to 40000: must be whole numbers from 0 to 255; scale"
    data = alma_env.from_dataset(rows_of(255), rows_of(255))
    assert (data.train_x.min(), data.train_x.max()) == (0, 255)
    with pytest.raises(ValueError, match=rf"train\[0\]: {rule}"):
        alma_env.from_dataset(rows_of(40_000), rows_of(255))
    assert np.array_equal(alma_env.from_path(folder_of(255)).train_x[0], [data.train_x[0, 0]] * 3)
    with pytest.raises(ValueError, match=rf"0\.tif: {rule}"):
        alma_env.from_path(folder_of(40_000))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Image.fromarray(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)), "mode F .* from 0 to 1: .* floats"),
        (Image.fromarray(np.full((8, 8), np.nan, np.float32)), "mode F .* whole numbers"),
        (Image.new("I;16B", (8, 8), 300), "from 300 to 300"),
        (Image.new("La", (8, 8)), r"mode La \(conversion from La to L not supported\); convert it in a transform"),
    ],
)
def test_images_that_pil_would_round_or_cannot_convert_are_refused(image, message):
    rows = [(image, 0), (image, 1)] * 5
    with pytest.raises(ValueError, match=rf"train\[0\]: x is an image of .*{message}"):
        alma_env.from_dataset(rows, rows)


def test_a_path_in_no_known_form_is_an_error_that_names_the_forms(tmp_path):
    with pytest.raises(alma_env.DataUnavailableError, match="there is no such file or folder"):
        alma_env.from_path(tmp_path / "nothing")
    with pytest.raises(alma_env.DataUnavailableError, match="not in a known form; give an .npz file"):
        alma_env.from_path(tmp_path)
    np.savez(tmp_path / "part.npz", train_x=FLOATS)
    with pytest.raises(alma_env.DataUnavailableError, match="has the arrays train_x; must have"):
        alma_env.from_path(tmp_path / "part.npz")


@pytest.mark.parametrize("content", [b"", b"garbage", "cut", "objects"])
@pytest.mark.parametrize(("write", "name"), [(write_npz, "own.npz"), (write_npy, "test_x.npy")])
def test_a_damaged_array_file_is_named_with_the_remedy(write, name, content, tmp_path, capsys):
    path, file = write(tmp_path), tmp_path / name
    if content == "objects":
        save = np.save if write is write_npy else lambda to, array: np.savez(to, **dict.fromkeys(NAMES, array))
        save(file, np.array(["a", 1], object))
    else:
        file.write_bytes(file.read_bytes()[:-100] if content == "cut" else content)
    with pytest.raises(alma_env.DataUnavailableError, match=rf"{name}: not an \.np.* of numbers, or a damaged one"):
        alma_env.from_path(path)
    assert main(["run", "--data", str(path)]) == 2
    assert f"{name}: not an {file.suffix} file of numbers" in capsys.readouterr().err


def test_an_empty_folder_of_a_class_is_named_with_the_remedy(tmp_path):
    part = write_images(tmp_path) / "train"
    for file in (part / "b").iterdir():
        file.unlink()
    with pytest.raises(alma_env.DataUnavailableError, match=f"{part / 'b'}: no image, but each folder is .* or remove"):
        alma_env.from_path(tmp_path)
    for folder in list(part.iterdir()):
        shutil.rmtree(folder)
    with pytest.raises(alma_env.DataUnavailableError, match=f"{part}: has no folder of a class; put the images into"):
        alma_env.from_path(tmp_path)


@pytest.mark.parametrize("length", [0, 20, -30])
def test_a_damaged_image_is_named_with_the_remedy(length, tmp_path, capsys):
    file = sorted(write_images(tmp_path).rglob("train/b/*.png"))[3]
    file.write_bytes(file.read_bytes()[:length])
    assert main(["run", "--data", str(tmp_path)]) == 2
    assert f"{file}: not an image, or a damaged one" in capsys.readouterr().err


TENSORS = TensorDataset(torch.from_numpy(FLOATS), torch.from_numpy(LABELS))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"data": TENSORS}, "data of type TensorDataset: .*give data=alma_env.from_dataset"),
        ({"data": (TENSORS, TENSORS)}, "data of type tuple: .*give data=alma_env.from_dataset"),
        ({"train": TENSORS, "test": TENSORS}, "train of type TensorDataset: .*give data=alma_env.from_dataset"),
        ({"train": {"x": FLOATS, "y": LABELS}, "test": {}}, r"train of type dict: must be a pair of arrays \(x, y\)"),
        ({"train": "x.npz", "test": "y.npz"}, "train of type str: .*for a file or folder, data=PATH"),
    ],
)
def test_data_of_another_type_is_refused_with_the_way_to_give_it(keywords, message):
    with pytest.raises(TypeError, match=message) as caught:
        alma_env.make("Arrays-ALMA-v0", **keywords)
    assert "raised from the environment creator" not in str(caught.value)


def test_an_image_that_moves_to_another_class_is_read_again(tmp_path):
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(3):
                Image.new("L", (8, 8), number).save(tmp_path / part / name / f"{name}-{number}.png")
    assert np.bincount(alma_env.from_path(tmp_path).train_y).tolist() == [3, 3]
    (tmp_path / "train/cat/cat-0.png").rename(tmp_path / "train/dog/cat-0.png")
    assert np.bincount(alma_env.from_path(tmp_path).train_y).tolist() == [2, 4]


class Halved(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x[::2], y // 2


def test_the_rows_of_a_tensor_dataset_of_ones_own_are_read():
    rows = Halved(torch.rand(20, 8), torch.arange(20) % 4)
    data = alma_env.from_dataset(rows, rows)
    assert (data.input_shape, data.classes) == ((4,), 2)


def test_a_link_back_to_a_parent_is_not_followed(tmp_path):
    for part in ("train", "test"):
        np.save(tmp_path / f"{part}_x.npy", np.zeros((4, 8), np.float32))
        np.save(tmp_path / f"{part}_y.npy", np.array([0, 1, 0, 1]))
    (tmp_path / "loop").symlink_to(tmp_path)
    data = alma_env.from_path(tmp_path)
    assert alma_env.from_path(tmp_path) is data  # read once
    np.save(tmp_path / "train_y.npy", np.array([1, 2, 2, 2]))
    os.utime(tmp_path / "train_y.npy", ns=(0, 0))
    assert np.bincount(alma_env.from_path(tmp_path).train_y).tolist() == [0, 1, 3]
