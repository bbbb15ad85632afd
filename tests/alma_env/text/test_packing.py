"""Packing: the order of the documents, and the parts of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from alma_env.text import packing
from alma_env.text.arguments import TextArguments
from alma_env.text.stream import TextStream

from .corpora import LENGTH, TEST, TRAIN, VALID, content, put, released, texts_of


def test_the_order_of_the_documents_depends_on_the_seed_only(tmp_path: Path) -> None:
    arguments = TextArguments({}, 1, 5, LENGTH, 300, None)
    (one, hidden) = packing._parts(arguments, 40).values()
    order = [*one.tolist(), *hidden.tolist()]
    others = [
        TextArguments({"test": ()}, 4, 5, 8, 400, None),
        TextArguments({}, 7, 5, 99, 257, tmp_path),
    ]
    for other in others:
        assert np.concatenate(list(packing._parts(other, 40).values())).tolist() == order
    assert (
        np.concatenate(list(packing._parts(TextArguments({}, 1, 6, LENGTH, 300, None), 40).values())).tolist() != order
    )
    # These numbers must never change.
    assert packing._parts(TextArguments({}, 1, 0, LENGTH, 300, None), 10)[packing.train_file(1)].tolist() == [
        2,
        4,
        5,
        8,
        0,
    ]


@pytest.mark.parametrize("test", [False, True])
def test_the_parts_are_disjoint_equal_and_cover_all_documents(test: bool) -> None:
    arguments = TextArguments({"test": ()} if test else {}, 4, 0, LENGTH, 300, None)
    parts = packing._parts(arguments, 63)
    assert list(parts) == [f"train-{t}.tokens" for t in (1, 2, 3, 4)] + ([] if test else ["test.tokens"])
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(63))
    assert {len(part) for part in parts.values()} <= {63 // len(parts), 63 // len(parts) + 1}


@pytest.mark.parametrize("test", [None, "test.txt"])
def test_megabatches_are_disjoint_and_have_equal_numbers_of_sequences(
    tmp_path: Path, small: Callable[..., TextStream], test: str | None
) -> None:
    stream = small(test=None if test is None else tmp_path / test)
    assert stream.ticks == 3
    seen: list[str] = []
    for t in (1, 2, 3):
        arrays = stream.megabatch(t)["train"]
        assert arrays["x"].shape == arrays["y"].shape == (stream.sequences, LENGTH)
        assert arrays["x"].dtype == arrays["y"].dtype == np.int32
        documents = released(stream, t)
        assert set(documents[:-1]) <= set(TRAIN)
        assert any(document.startswith(documents[-1]) for document in TRAIN)
        seen += documents[:-1]
    assert len(set(seen)) == len(seen) > 35
    held = texts_of(stream, stream.data.test_x, stream.data.test_y)
    if test is None:  # a hidden part of the stream, as large as a mega-batch
        assert stream.data.test_x.shape == (stream.sequences, LENGTH)
        assert set(held[:-1]) <= set(TRAIN) - set(seen)
        assert len(held) > 5
    else:
        assert held[:-1] == TEST[: len(held) - 1]
        assert len(held) >= len(TEST)
    assert stream.data.vocabulary == 300
    for pair in content(stream):
        values = np.frombuffer(pair, np.int32)
        assert values.min() >= 0
        assert values.max() < 300


def test_with_a_given_test_set_the_megabatches_are_larger(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    assert small(test=[tmp_path / "test.txt"]).sequences > 1.2 * small().sequences


def test_the_smallest_part_determines_the_number_of_sequences(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    stream = small()
    manifest = json.loads((stream.data.folder / "manifest.json").read_text())
    counts = [n for name, n in manifest["tokens"].items() if name != "valid.tokens"]
    assert len(counts) == 4
    assert len(set(counts)) > 1
    assert stream.sequences == (min(counts) - 1) // LENGTH


def test_a_warning_is_given_if_most_of_the_text_is_dropped(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    put(tmp_path / "train.txt", ["one line"] * 30 + [" ".join(TRAIN)])
    with pytest.warns(UserWarning, match="tokens of train are dropped, .* or others are long") as warned:
        stream = small(test=tmp_path / "test.txt", sequence_length=2)
    dropped, total = (int(number.replace(",", "")) for number in str(warned[0].message).split()[0:3:2])
    assert total - dropped == stream.ticks * stream.sequences * 2
    assert dropped > total / 2


def test_validation_is_the_held_out_set_at_every_tick(small: Callable[..., TextStream]) -> None:
    stream = small()
    for t in (1, 2, 3):
        documents = released(stream, t, "valid")
        assert documents[:-1] == VALID[: len(documents) - 1]
        assert len(documents) >= len(VALID)
