"""The stream: arrays, ticks, copies and pickles."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from alma_env.errors import DataUnavailableError
from alma_env.text import documents as corpus
from alma_env.text.stream import TextStream, text_stream, tiny_text

from .corpora import content


def test_writing_to_a_megabatch_changes_no_other_array(small: Callable[..., TextStream]) -> None:
    stream = small()
    before = content(stream)
    arrays = stream.megabatch(2)
    kept = arrays["train"]["y"].copy()
    arrays["train"]["x"][:] = -1
    arrays["valid"]["y"][:] = -2
    assert np.array_equal(arrays["train"]["y"], kept)
    assert (arrays["train"]["x"] == -1).all()
    assert content(stream) == before
    for held in (stream.data.test_x, stream.data.test_y):
        with pytest.raises(ValueError, match="read-only"):
            held[0, 0] = 0


@pytest.mark.parametrize("t", [0, 4, -1])
def test_ticks_outside_the_stream_are_refused(small: Callable[..., TextStream], t: int) -> None:
    with pytest.raises(IndexError, match=f"t={t}: the mega-batches of this stream are 1..3"):
        small().megabatch(t)


def test_a_copy_is_the_same_object_and_a_pickle_is_a_path(small: Callable[..., TextStream]) -> None:
    stream = small()
    assert copy.copy(stream) is stream
    assert copy.deepcopy(stream) is stream
    pickled = pickle.dumps(stream)
    assert len(pickled) < 600
    restored = pickle.loads(pickled)
    assert restored == stream
    assert hash(restored) == hash(stream)
    assert content(restored) == content(stream)
    assert "memmap" not in repr(stream)


def test_unpickling_with_a_missing_or_another_folder_is_refused(
    tmp_path: Path, small: Callable[..., TextStream]
) -> None:
    stream, other = small(), small(seed=1)
    pickled, folder = pickle.dumps(stream), stream.data.folder
    folder.rename(tmp_path / "aside")
    with pytest.raises(DataUnavailableError, match="does not exist; make it again with text_stream"):
        pickle.loads(pickled)
    other.data.folder.rename(folder)
    with pytest.raises(ValueError, match=f"the pickled stream had {stream.data.digest}"):
        pickle.loads(pickled)


def test_a_stream_does_not_change_global_generators(small: Callable[..., TextStream]) -> None:
    state, legacy = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    small().megabatch(1)
    assert random.getstate() == state
    assert np.random.get_state()[1].tolist() == legacy  # noqa: NPY002


def test_the_tiny_text_gives_a_stream_of_4_megabatches(tmp_path: Path) -> None:
    train, valid = tiny_text()
    assert train.stat().st_size + valid.stat().st_size < 150_000
    stream = text_stream(train, valid=valid, sequence_length=32, vocabulary_size=500, cache=tmp_path)
    assert stream.ticks == 4
    assert stream.data.vocabulary == 500
    assert stream.sequences == len(stream.data.test_x) > 400
    assert stream.valid_sequences > 100
    held = {document for file in (valid,) for document in corpus.documents(file)}
    assert not held & set(corpus.documents(train))
