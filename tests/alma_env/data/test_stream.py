from __future__ import annotations

import copy
import hashlib
import pickle
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alma_env import DataSet, Stream, from_arrays, partition
from alma_env.data.image_files import datasets

SCHEMES = ("alma", "continuum")


def numbered(n: int) -> DataSet:
    """A data set whose inputs are their own row numbers."""
    rows = np.arange(n)
    x = rows.astype(np.float32)[:, None]
    return from_arrays((x, rows % 3), (x[:5], rows[:5] % 3), classes=3)


def rows_of(parts: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    return [np.concatenate(part) for part in parts]


@settings(max_examples=60)
@given(
    n=st.integers(10, 300),
    ticks=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
    fraction=st.sampled_from([0.1, 0.25, 0.5, 0.9]),
    scheme=st.sampled_from(SCHEMES),
)
def test_a_partition_consists_of_disjoint_equal_parts_and_a_remainder(
    n: int, ticks: int, seed: int, fraction: float, scheme: str
) -> None:
    size = n // ticks
    if int(fraction * size) < 1:
        with pytest.raises(ValueError, match="ticks="):
            partition(n, ticks, seed, valid_fraction=fraction, scheme=scheme)
        return
    parts = partition(n, ticks, seed, valid_fraction=fraction, scheme=scheme)
    assert len(parts) == ticks
    rows = np.concatenate(rows_of(parts))
    assert len(set(rows.tolist())) == len(rows) == ticks * size
    assert rows.min() >= 0
    assert rows.max() < n
    for train, valid in parts:
        assert len(train) + len(valid) == size
        assert len(valid) == int(fraction * size)
        assert train.dtype == valid.dtype == np.int64


@pytest.mark.parametrize(("n", "ticks", "train", "valid"), [(50_000, 100, 450, 50), (60_000, 500, 108, 12)])
def test_the_papers_streams_have_the_papers_sizes(n: int, ticks: int, train: int, valid: int) -> None:
    parts = partition(n, ticks, seed=1)
    assert {(len(t), len(v)) for t, v in parts} == {(train, valid)}
    assert np.array_equal(np.sort(np.concatenate(rows_of(parts))), np.arange(n))


def test_the_partition_of_a_seed_never_changes() -> None:
    first_train, first_valid = partition(60_000, 500, seed=0)[0]
    assert first_train[:5].tolist() == [11836, 4665, 22718, 49837, 4944]
    assert first_valid[:5].tolist() == [1580, 45301, 14924, 7602, 24188]
    assert partition(60_000, 500, seed=0)[499][1][:3].tolist() == [9172, 10965, 50982]
    assert partition(60_000, 500, seed=2**40 + 1)[0][0][:3].tolist() == [23869, 59597, 15436]


@pytest.mark.parametrize("fraction", [0.29, np.float32(0.29)])
def test_the_validation_fraction_is_read_as_a_decimal_number(fraction: float) -> None:
    assert 0.29 * 100 < 29  # so the floor of a product of doubles would be wrong
    train, valid = partition(100, 1, 0, valid_fraction=fraction)[0]
    assert (len(train), len(valid)) == (71, 29)


def test_different_seeds_and_ticks_give_different_examples_and_splits() -> None:
    a, b = partition(1000, 10, 0), partition(1000, 10, 1)
    assert not np.array_equal(a[0][0], b[0][0])
    positions = [np.flatnonzero(np.isin(np.sort(np.concatenate(p)), p[1])) for p in a]
    assert len({tuple(p.tolist()) for p in positions}) == len(a)


def test_a_coarser_stream_of_a_seed_consists_of_unions_of_consecutive_megabatches() -> None:
    fine, coarse = rows_of(partition(1200, 12, 3)), rows_of(partition(1200, 4, 3))
    for t, megabatch in enumerate(coarse):
        assert set(megabatch) == set(np.concatenate(fine[3 * t : 3 * t + 3]))


def test_both_parts_keep_the_order_of_the_megabatch() -> None:
    order = partition(100, 1, 0, valid_fraction=0.01)[0][0].tolist()  # all but one
    for part in partition(100, 1, 0, valid_fraction=0.5)[0]:
        places = [order.index(row) for row in part if row in order]
        assert places == sorted(places)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_partition_does_not_change_global_random_state(scheme: str) -> None:
    before = np.random.get_state(), random.getstate(), torch.get_rng_state()  # noqa: NPY002
    partition(1000, 10, 0, scheme=scheme)
    after = np.random.get_state(), random.getstate(), torch.get_rng_state()  # noqa: NPY002
    assert before[0][0] == after[0][0]
    assert np.array_equal(before[0][1], after[0][1])
    assert before[0][2:] == after[0][2:]
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])


def test_a_partition_does_not_depend_on_global_seeds() -> None:
    np.random.seed(1)  # noqa: NPY002
    a = partition(500, 5, 7, scheme="continuum")
    np.random.seed(2)  # noqa: NPY002
    b = partition(500, 5, 7, scheme="continuum")
    assert all(np.array_equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True))


# SHA-256 of the rows (each mega-batch: train, then valid; int64, little-endian); continuum 1.2.7 gives the same rows.
CONTINUUM_DIGESTS = {
    (60, 6, 0): "eb1d2c464e655595",
    (1000, 10, 1): "3f9ca31109d5daa8",
    (500, 50, 123): "9c82a74d89c4fde5",
    (997, 10, 4): "f7db8b359d7e89da",
    (1403, 70, 9): "c44a1fa5018346b7",
}


@pytest.mark.parametrize(("n", "ticks", "seed"), CONTINUUM_DIGESTS)
def test_the_continuum_scheme_gives_the_recorded_partitions(n: int, ticks: int, seed: int) -> None:
    rows = np.concatenate(rows_of(partition(n, ticks, seed, valid_fraction=0.1, scheme="continuum")))
    digest = hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()
    assert digest[:16] == CONTINUUM_DIGESTS[n, ticks, seed]


@pytest.mark.parametrize(("n", "ticks", "seed"), CONTINUUM_DIGESTS)
def test_the_continuum_scheme_is_the_partition_of_the_continuum_package(n: int, ticks: int, seed: int) -> None:
    datasets()  # so that continuum can import torchvision with a CPU build of torch
    pytest.importorskip("continuum", exc_type=ImportError)
    from continuum.datasets import InMemoryDataset
    from continuum.scenarios import ALMA
    from continuum.tasks import TaskType

    x = np.arange(n)[:, None].astype(np.float64)
    scenario = ALMA(
        InMemoryDataset(x, np.arange(n) % 7, data_type=TaskType.TENSOR),
        nb_megabatches=ticks,
        random_seed=seed,
    )
    ours = rows_of(partition(n, ticks, seed, valid_fraction=0.1, scheme="continuum"))
    assert len(scenario) == len(ours) == ticks
    for taskset, megabatch in zip(scenario, ours, strict=True):
        theirs = taskset.get_raw_samples()[0][:, 0].astype(np.int64)
        if n % ticks == 0:
            assert theirs.tolist() == np.sort(megabatch).tolist()
        else:
            assert len(megabatch) == n // ticks <= len(theirs)
            assert set(megabatch) <= set(theirs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ticks": 0}, "ticks=0: a stream has at least 1 mega-batch"),
        ({"ticks": -3}, "ticks=-3"),
        ({"ticks": 101}, "ticks=101: 100 examples are too few .*at most 10"),
        ({"ticks": 11}, "ticks=11: a mega-batch of 9 examples has no valid part .*at least 10.*at most 10"),
        ({"n": 5, "ticks": 1}, "more examples or a larger valid_fraction"),
        ({"n": 0}, "n=0: a stream needs at least one example"),
        ({"seed": -1}, "seed=-1: .*non-negative"),
        ({"seed": 2**32, "scheme": "continuum"}, r"seed=4294967296: .*2\*\*32"),
        ({"valid_fraction": 0.0}, "valid_fraction=0.0: must lie between 0 and 1"),
        ({"valid_fraction": 1.0}, "valid_fraction=1.0"),
        ({"valid_fraction": float("nan")}, "valid_fraction=nan"),
        ({"scheme": "other"}, "scheme='other': must be 'alma' or 'continuum'"),
    ],
)
def test_an_impossible_partition_is_refused_with_the_rule(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partition(**{"n": 100, "ticks": 10, "seed": 0} | arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{"seed": 1.5}, {"seed": True}, {"ticks": "7"}, {"seed": None}])
def test_numbers_that_are_not_integers_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="must be an integer"):
        partition(**{"n": 100, "ticks": 10, "seed": 0} | arguments)  # type: ignore[arg-type]


def test_the_error_names_the_largest_possible_number_of_ticks() -> None:
    assert len(partition(100, 10, 0)) == 10
    assert len(partition(100, 33, 0, valid_fraction=0.34)) == 33
    with pytest.raises(ValueError, match="at most 33"):
        partition(100, 34, 0, valid_fraction=0.34)


def test_a_stream_returns_the_examples_of_its_partition() -> None:
    data = numbered(100)
    stream = Stream(data, ticks=5, seed=2)
    assert len(stream) == 5
    for t, (train, valid) in enumerate(partition(100, 5, 2), start=1):
        megabatch = stream.megabatch(t)
        assert megabatch["train"]["x"][:, 0].astype(int).tolist() == train.tolist()
        assert megabatch["valid"]["x"][:, 0].astype(int).tolist() == valid.tolist()
        assert megabatch["train"]["y"].tolist() == (train % 3).tolist()
        assert stream.indices(t)[1].tolist() == valid.tolist()


def test_writing_to_a_megabatch_changes_neither_the_data_nor_the_next_copy() -> None:
    data = numbered(100)
    stream = Stream(data, ticks=5, seed=2)
    first = stream.megabatch(1)
    expected = first["train"]["x"].copy()
    first["train"]["x"][:] = -1
    first["valid"]["y"][:] = 0
    assert np.array_equal(stream.megabatch(1)["train"]["x"], expected)
    assert data.train_x.min() == 0


@pytest.mark.parametrize("t", [0, 6, -1])
def test_ticks_outside_the_stream_are_refused(t: int) -> None:
    with pytest.raises(IndexError, match=f"t={t}: the mega-batches of this stream are 1..5"):
        Stream(numbered(100), ticks=5, seed=2).megabatch(t)


def test_the_indices_of_a_stream_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Stream(numbered(100), ticks=5, seed=2).indices(1)[0][0] = 0


def test_a_stream_can_be_copied_and_pickled() -> None:
    stream = Stream(numbered(100), 5, 2, valid_fraction=0.25, scheme="continuum")
    assert copy.deepcopy(stream) is stream
    again = pickle.loads(pickle.dumps(stream))
    assert again == stream
    assert again.indices(3)[0].tolist() == stream.indices(3)[0].tolist()


def test_small_megabatches_are_unbalanced_by_chance(real_data: Callable[..., DataSet]) -> None:
    data = real_data("MNIST")
    counts = [np.bincount(data.train_y[np.concatenate(p)], minlength=10) for p in partition(60_000, 500, 0)]
    assert np.min(counts) < 6 < 20 < np.max(counts)  # a stratified partition would have about 12 of each class
