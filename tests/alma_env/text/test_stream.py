from __future__ import annotations

import bz2
import copy
import gzip
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from alma_env.errors import DataUnavailableError
from alma_env.text import arguments, packing
from alma_env.text import documents as corpus
from alma_env.text import tokenizer as tokens
from alma_env.text.arguments import TextArguments
from alma_env.text.stream import TextStream, text_stream, tiny_text

LENGTH = 16
WORDS = "best times worst age wisdom foolishness epoch belief incredulity season light darkness spring".split()  # noqa: SIM905


def sentences(n: int, seed: int, mark: str = "document") -> list[str]:
    """Return n documents of one to three lines; each line has the number of its document."""
    draw = random.Random(seed)
    return [
        "\n".join(f"{mark} {i}: {' '.join(draw.choices(WORDS, k=40))}." for _ in range(draw.randint(1, 3)))
        for i in range(n)
    ]


TRAIN, VALID, TEST = sentences(60, 0), sentences(6, 1, "valid"), sentences(7, 2, "test")


def put(file: Path, documents: list[str]) -> Path:
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., TextStream]:
    """A function that makes a stream of 3 mega-batches of 60 documents, with changed arguments."""

    def make(**changes: Any) -> TextStream:
        arguments: dict[str, Any] = {
            "train": tmp_path / "train.txt",
            "valid": tmp_path / "valid.txt",
            "ticks": 3,
            "sequence_length": LENGTH,
            "vocabulary_size": 300,
            "cache": tmp_path / "cache",
        }
        return text_stream(**arguments | changes)

    put(tmp_path / "train.txt", TRAIN)
    put(tmp_path / "valid.txt", VALID)
    put(tmp_path / "test.txt", TEST)
    return make


def ids_of(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Return the ids that the sequences were cut from, up to the last target."""
    return [*x.reshape(-1).tolist(), int(y[-1, -1])]


def texts_of(stream: TextStream, x: np.ndarray, y: np.ndarray) -> list[str]:
    """Return the documents of the sequences; the last one may be incomplete."""
    tokenizer = tokens.loaded(stream.data.tokenizer_file)
    return tokenizer.decode(ids_of(x, y), skip_special_tokens=False).split(tokens.END_OF_TEXT)


def released(stream: TextStream, t: int, part: str = "train") -> list[str]:
    arrays = stream.megabatch(t)[part]
    return texts_of(stream, arrays["x"], arrays["y"])


def content(stream: TextStream) -> list[bytes]:
    arrays = [stream.megabatch(t)[part] for t in range(1, stream.ticks + 1) for part in ("train", "valid")]
    pairs = [(part["x"], part["y"]) for part in arrays] + [(stream.data.test_x, stream.data.test_y)]
    return [array.tobytes() for pair in pairs for array in pair]


def folders(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir() if path.is_dir())


# --- documents


def test_documents_equal_those_of_a_naive_reader_for_every_compression(tmp_path: Path) -> None:
    raw = {
        "b.txt": "\n\n  \t\nfirst\nof b\n\n\n\u00a0\u2003\nsecond\r\nof b\r\n\r\n  indented third \nlast line",
        "a.txt.gz": "über a\n\x0c\nand 日本 a\n",
        "c.bz2": "only c",
        "d.TXT": "\ufeffmarked d\n",
        "e.txt": "\n \n",
        ".hidden.txt": "hidden",
        "notes.md": "not text",
    }
    for name, value in raw.items():
        pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(Path(name).suffix, bytes)
        (tmp_path / name).write_bytes(pack(value.encode()))
    (tmp_path / "folder.txt").mkdir()
    files = corpus.files_of(tmp_path, "train")
    expected = []
    for name in ("a.txt.gz", "b.txt", "c.bz2", "d.TXT", "e.txt"):
        paragraphs: list[list[str]] = [[]]
        for line in raw[name].removeprefix("\ufeff").replace("\r\n", "\n").split("\n"):
            if line.strip():
                paragraphs[-1].append(line)
            else:
                paragraphs.append([])
        expected += ["\n".join(lines) for lines in paragraphs if lines]
    assert len(expected) == 7
    assert [document.decode() for file in files for document in corpus.documents(file)] == expected
    spool = corpus.concatenate(files, tmp_path, "train")
    order = np.array([6, 0, 3, 3, 1])
    assert len(spool) == 7
    assert list(spool.read(order)) == [expected[i] for i in order]


def test_a_list_of_files_is_sorted_by_name(tmp_path: Path) -> None:
    files = [put(tmp_path / name, [name]) for name in ("z/1.txt", "a/3.txt", "m/2.txt")]
    assert [file.name for file in corpus.files_of(files, "train")] == ["1.txt", "2.txt", "3.txt"]


def test_the_digest_of_a_corpus_depends_on_its_documents_not_on_its_files(
    tmp_path: Path, small: Callable[..., TextStream]
) -> None:
    (tmp_path / "packed").mkdir()
    for i in range(2):
        part = "\n \n\n".join(TRAIN[i * 30 : (i + 1) * 30])
        (tmp_path / "packed" / f"{i}.txt.bz2").write_bytes(bz2.compress(part.encode()))
    one, two = small(), small(train=tmp_path / "packed")
    assert one.data == two.data
    assert one.data.corpus == two.data.corpus == small(seed=1, ticks=2).data.corpus
    assert one.data.folder != two.data.folder
    put(tmp_path / "train.txt", [*TRAIN[:-1], TRAIN[-1] + "!"])
    assert small().data.corpus != one.data.corpus


# --- the order and the parts


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
    assert len(stream) == stream.ticks == 3
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
    assert stream.data.held_out_valid
    for t in (1, 2, 3):
        documents = released(stream, t, "valid")
        assert documents[:-1] == VALID[: len(documents) - 1]
        assert len(documents) >= len(VALID)


# --- tokens


def test_y_is_the_next_token_of_x_across_sequences_and_end_of_text_follows_every_document(
    small: Callable[..., TextStream],
) -> None:
    stream = small()
    tokenizer = tokens.loaded(stream.data.tokenizer_file)
    end = tokenizer.token_to_id(tokens.END_OF_TEXT)

    def encoded(documents: list[str]) -> list[int]:
        return [i for document in documents for i in (*tokenizer.encode(document).ids, end)]

    for t in (1, 2, 3):
        for part, source in (("train", TRAIN), ("valid", VALID)):
            arrays = stream.megabatch(t)[part]
            ids = ids_of(arrays["x"], arrays["y"])
            assert arrays["y"].reshape(-1).tolist() == ids[1:]
            *whole, last = released(stream, t, part)
            candidates = [document for document in source if document not in whole and document.startswith(last)]
            assert any(encoded([*whole, document])[: len(ids)] == ids for document in candidates)


def test_the_tokenizer_is_trained_on_the_first_megabatch_only(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    before = small()
    first, second = released(before, 1)[0], released(before, 2)[0]
    ids = before.megabatch(1)["train"]["x"]
    tokenizer = before.data.tokenizer_file.read_bytes()
    changed = "zyzzyva qwxqwx " * 40

    def replaced(document: str) -> TextStream:
        put(tmp_path / "train.txt", [changed if other == document else other for other in TRAIN])
        return small()

    after = replaced(second)
    assert after.data.tokenizer_file.read_bytes() == tokenizer
    rows = min(len(ids), after.sequences)
    assert rows > 10
    assert np.array_equal(after.megabatch(1)["train"]["x"][:rows], ids[:rows])
    assert any(changed in document for document in released(after, 2))
    assert replaced(first).data.tokenizer_file.read_bytes() != tokenizer


def test_the_characters_of_end_of_text_in_a_text_do_not_end_the_document(
    tmp_path: Path, small: Callable[..., TextStream]
) -> None:
    put(tmp_path / "valid.txt", ["one <|endoftext|> two three four five six seven eight nine ten"])
    stream = small(sequence_length=10)
    end = tokens.loaded(stream.data.tokenizer_file).token_to_id(tokens.END_OF_TEXT)
    arrays = stream.megabatch(1)["valid"]
    assert end not in ids_of(arrays["x"], arrays["y"])


def test_pieces_of_long_texts_have_the_tokens_of_the_whole_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = "It's \n x\n\ty\n 's\nre's\n's it\x1c\n\x1cz\u00a0\nt  \n\u2003\nu\n\n\nv\n" * 3 + "no line end " * 20
    whole_trained = tokens.trained([long], 320)
    whole_trained.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokens.loaded(tmp_path / "tokenizer.json")
    assert "ĠĊ" in tokenizer.get_vocab()  # white space is merged, too
    monkeypatch.setattr(tokens, "_PIECE", 3)
    monkeypatch.setattr(tokens, "_BATCH", 20)
    assert "".join(tokens.pieces(long)) == long
    assert len(list(tokens.pieces(long))) > 8
    end = tokenizer.token_to_id(tokens.END_OF_TEXT)
    whole = [*tokenizer.encode(long).ids, end, *tokenizer.encode("short").ids, end]
    for cut in (True, False):
        assert tokens.write(tokenizer, [long, "short"], tmp_path / "ids", cut=cut) == len(whole)
        assert np.fromfile(tmp_path / "ids", np.int32).tolist() == whole
    assert tokens.trained([long], 320).to_str() == whole_trained.to_str()


def test_a_given_tokenizer_adds_no_special_tokens(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    import tokenizers

    tokenizer = tokens.trained(["entirely other text " * 5], 270)
    end = tokenizer.token_to_id(tokens.END_OF_TEXT)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{tokens.END_OF_TEXT} $0", special_tokens=[(tokens.END_OF_TEXT, end)]
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(tmp_path / "mine.json"))
    stream = small(tokenizer=tmp_path / "mine.json", vocabulary_size=400)
    assert stream.data.tokenizer_file.read_bytes() == (tmp_path / "mine.json").read_bytes()
    assert stream.data.vocabulary == tokenizer.get_vocab_size() <= 270
    documents = released(stream, 1, "valid")
    assert documents[:-1] == VALID[: len(documents) - 1]
    assert len(documents) > 4
    assert stream == small(tokenizer=str(tmp_path / "mine.json"), vocabulary_size=500)
    tokens.trained(["yet another text " * 5], 270).save(str(tmp_path / "mine.json"))
    assert small(tokenizer=tmp_path / "mine.json").data != stream.data


def test_a_vocabulary_that_the_text_cannot_fill_needs_no_memory(
    small: Callable[..., TextStream],
) -> None:
    assert 300 < small(vocabulary_size=2**31).data.vocabulary < 2_000


# --- the cache


def test_cold_warm_and_rebuilt_caches_give_the_same_numbers(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    cold = small()
    (folder,) = folders(tmp_path / "cache")
    written = folder.stat().st_mtime_ns
    warm = small()
    assert folder.stat().st_mtime_ns == written
    assert warm == cold
    assert content(warm) == content(cold)
    numbers = content(cold)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    again = small()
    assert again == cold
    assert content(again) == numbers
    assert content(small(cache=tmp_path / "elsewhere")) == numbers


def test_the_numbers_do_not_depend_on_threads_or_process(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    script = (
        "import sys; from alma_env.text.stream import text_stream;"
        "print(text_stream(sys.argv[1], valid=sys.argv[2], ticks=3, sequence_length=16, vocabulary_size=300,"
        " cache=sys.argv[3]).data.digest)"
    )
    arguments = [str(tmp_path / "train.txt"), str(tmp_path / "valid.txt")]
    digests = {small().data.digest}
    for threads in ("1", "3"):
        command = [sys.executable, "-c", script, *arguments, str(tmp_path / threads)]
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"}
        digests.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    assert len(digests) == 1


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"ticks": 2}, {"sequence_length": 15}, {"vocabulary_size": 299}, {"test": "test.txt"}],
    ids=lambda change: next(iter(change)),
)
def test_another_argument_is_another_stream(
    tmp_path: Path, small: Callable[..., TextStream], change: dict[str, Any]
) -> None:
    if "test" in change:
        change = {"test": tmp_path / change["test"]}
    one, two = small(), small(**change)
    assert one != two
    assert one.data != two.data
    assert content(one) != content(two)
    assert len(folders(tmp_path / "cache")) == 2
    assert small() == one


def test_a_changed_text_is_another_stream(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    one = small()
    put(tmp_path / "valid.txt", VALID[::-1])
    assert small() != one
    assert released(small(), 2, "valid")[0] == VALID[-1]


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    make = packing.pack

    def slowly(arguments: TextArguments, folder: Path) -> None:
        put(tmp_path / "train.txt", TRAIN[::-1][1:])
        make(arguments, folder)

    monkeypatch.setattr(packing, "pack", slowly)
    with pytest.raises(DataUnavailableError, match="changed while it was read"):
        small()
    assert folders(tmp_path / "cache") == []


def test_a_failed_build_leaves_nothing(
    tmp_path: Path, small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(packing, "_sequences_in", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            small()
    assert folders(tmp_path / "cache") == []
    assert small().sequences > 0


BUILD = """
import sys, time
from pathlib import Path
from alma_env.text import packing
from alma_env.text.stream import text_stream
here, hang = Path(sys.argv[1]), sys.argv[2] == "hang"
parts = packing._parts
def slow(arguments, n):
    print("building", flush=True)
    time.sleep(600 if hang else 0.3)
    return parts(arguments, n)
packing._parts = slow
stream = text_stream(here / "train.txt", valid=here / "valid.txt", ticks=3, sequence_length=16, vocabulary_size=300,
                     cache=here / "cache", seed=int(sys.argv[3]))
print(stream.data.digest, flush=True)
"""


def build(tmp_path: Path, how: str, seed: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILD, str(tmp_path), how, str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_scratch_folders_of_killed_builds_are_removed(tmp_path: Path, small: Callable[..., TextStream]) -> None:
    with build(tmp_path, "hang") as same, build(tmp_path, "hang", seed=1) as other:
        for process in (same, other):
            assert process.stdout is not None
            assert process.stdout.readline() == "building\n"
        same.kill()
        same.wait()
        assert len(folders(tmp_path / "cache")) == 2
        stream = small()
        (living,) = (folder for folder in folders(tmp_path / "cache") if folder != stream.data.folder)
        assert ".building-" in living.name  # of the running process
        other.kill()
        other.wait()
        two = small(seed=2)
        assert folders(tmp_path / "cache") == sorted([stream.data.folder, two.data.folder])
    assert content(stream) == content(small(cache=tmp_path / "elsewhere"))


def test_two_processes_that_build_at_the_same_time_get_the_same_stream(
    tmp_path: Path, small: Callable[..., TextStream]
) -> None:
    with build(tmp_path, "go") as one, build(tmp_path, "go") as two:
        outputs = [process.communicate()[0].split() for process in (one, two)]
        assert one.returncode == two.returncode == 0
    assert sorted(map(len, outputs)) == [1, 2]  # the second process waited for the first
    assert outputs[0][-1] == outputs[1][-1] == small().data.digest
    assert len(folders(tmp_path / "cache")) == 1


def test_without_locks_the_first_build_to_finish_is_used(
    tmp_path: Path, small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    import contextlib

    from alma_env import build_cache

    monkeypatch.setattr(build_cache, "locked", lambda file, wait: contextlib.nullcontext(False))
    make, inner = packing.pack, []

    def build_twice(arguments: TextArguments, folder: Path) -> None:
        make(arguments, folder)
        if not inner:
            inner.append(None)
            inner.append(small())

    monkeypatch.setattr(packing, "pack", build_twice)
    stream = small()
    assert stream == inner[1]
    assert folders(tmp_path / "cache") == [stream.data.folder]


def cut_short(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 4)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("train-2.tokens", cut_short, "train-2.tokens has"),
        ("valid.tokens", Path.unlink, "valid.tokens is missing"),
        ("test.tokens", cut_short, "test.tokens has"),
        ("tokenizer.json", Path.unlink, "tokenizer.json is missing"),
        ("manifest.json", cut_short, "manifest.json cannot be read"),
        (
            "manifest.json",
            lambda file: file.write_text(file.read_text().replace('"seed": 0', '"seed": 1')),
            "content has changed",
        ),
        ("manifest.json", lambda file: file.write_text("[]"), "manifest.json cannot be read"),
        ("manifest.json", Path.unlink, "manifest.json is missing"),
    ],
)
def test_a_damaged_cache_is_an_error_that_names_the_folder_to_delete(
    small: Callable[..., TextStream], name: str, damage: Callable[[Path], object], message: str
) -> None:
    folder = small().data.folder
    damage(folder / name)
    with pytest.raises(DataUnavailableError, match=message) as caught:
        small()
    assert f"{folder}: " in str(caught.value)
    assert "delete this folder" in str(caught.value)


def test_verify_finds_changed_bytes_and_megabatch_finds_a_missing_file(
    small: Callable[..., TextStream],
) -> None:
    stream = small()
    stream.data.verify()
    file = stream.data.folder / "train-3.tokens"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert small() == stream
    with pytest.raises(DataUnavailableError, match=r"the content of train-3.tokens has changed; delete"):
        stream.data.verify()
    file.unlink()
    with pytest.raises(DataUnavailableError, match=r"train-3.tokens cannot be opened"):
        stream.megabatch(3)


# --- the stream


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
    del arrays
    stream.data.verify()
    for held in (stream.data.test_x, stream.data.test_y):
        with pytest.raises(ValueError, match="read-only"):
            held[0, 0] = 0


@pytest.mark.parametrize("t", [0, 4, -1])
def test_ticks_outside_the_stream_are_refused(small: Callable[..., TextStream], t: int) -> None:
    with pytest.raises(IndexError, match=f"t={t}: the mega-batches of this stream are 1..3"):
        small().megabatch(t)


def test_a_copy_is_the_same_object_and_a_pickle_is_a_path(small: Callable[..., TextStream]) -> None:
    stream = small()
    for value in (stream, stream.data):
        assert copy.copy(value) is value
        assert copy.deepcopy(value) is value
        pickled = pickle.dumps(value)
        assert len(pickled) < 600
        restored = pickle.loads(pickled)
        assert restored == value
        assert hash(restored) == hash(value)
    assert content(pickle.loads(pickle.dumps(stream))) == content(stream)
    assert "memmap" not in repr(stream)


def test_unpickling_with_a_missing_or_another_folder_is_refused(
    tmp_path: Path, small: Callable[..., TextStream]
) -> None:
    stream, other = small(), small(seed=1)
    pickled, pickled_data = pickle.dumps(stream), pickle.dumps(stream.data)
    folder = stream.data.folder
    folder.rename(tmp_path / "aside")
    with pytest.raises(DataUnavailableError, match="does not exist; make it again with text_stream"):
        pickle.loads(pickled)
    other.data.folder.rename(folder)
    for value in (pickled, pickled_data):
        with pytest.raises(ValueError, match=f"the pickled stream had {stream.data.digest}"):
            pickle.loads(value)


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


# --- errors


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"train": "nowhere"},
            DataUnavailableError,
            "train: .*nowhere' does not exist; pass",
        ),
        ({"train": "empty"}, DataUnavailableError, "train=.*no file in this folder ends in .txt, .gz, .bz2; put"),
        ({"valid": "notes.md"}, ValueError, "valid: .*notes.md' must end in one of .txt, .gz, .bz2; rename"),
        ({"valid": "all.tar.gz"}, ValueError, "all.tar.gz' must end in one of .*; rename, .* or unpack it"),
        ({"train": []}, ValueError, "must not be empty; pass at least one file"),
        ({"train": 5}, TypeError, "train=5: must be a folder, a file or a list of files"),
        ({"train": [5]}, TypeError, r"train=\[5\]: must be a folder, a file or a list of files"),
        ({"train": ["train.txt", "train.txt"]}, ValueError, "has a file twice; remove"),
        ({"train": "."}, ValueError, "among the files of train, too: held-out text .* list of files without it"),
        ({"test": "valid.txt"}, ValueError, "test: .*valid.txt' is among the files of valid, too"),
        ({"valid": "latin.txt"}, ValueError, r"latin.txt: byte 5 \(0xe9\) is not UTF-8; convert"),
        ({"valid": "cut.txt.gz"}, DataUnavailableError, "cut.txt.gz: cannot be read .*check that it is complete"),
        ({"valid": "cut.txt.bz2"}, DataUnavailableError, "cut.txt.bz2: cannot be read .*check that it is complete"),
        ({"valid": "blank.txt"}, ValueError, "valid: no document in blank.txt, only blank lines; pass text"),
        ({"ticks": 60}, ValueError, "ticks=60: train has 60 documents for 61 parts; .*fewer ticks, or pass a test set"),
        ({"ticks": 10**12}, ValueError, "60 documents for 1000000000001 parts"),
        (
            {"sequence_length": 5_000},
            ValueError,
            r"the part 'train-\d|test' has \d+ tokens, .* 5001; lower .* or ticks",
        ),
        ({"valid": "short.txt"}, ValueError, r"the part 'valid' has \d tokens, .* 17; lower sequence_length, or"),
        ({"ticks": 0}, ValueError, "ticks=0: a stream has at least 1"),
        ({"ticks": 2.0}, TypeError, "ticks=2.0: must be an integer"),
        ({"seed": -1}, ValueError, "seed=-1: the seed of a stream must be a non-negative"),
        ({"seed": None}, TypeError, "seed=None: must be an integer"),
        ({"sequence_length": 0}, ValueError, "sequence_length=0: a sequence has at least 1"),
        ({"vocabulary_size": 256}, ValueError, "vocabulary_size=256: must lie between 257 .* and 2147483648"),
        ({"vocabulary_size": 2**31 + 1}, ValueError, "vocabulary_size=2147483649: must lie between"),
        ({"tokenizer": "nowhere.json"}, DataUnavailableError, "tokenizer='.*nowhere.json': does not exist; pass"),
        ({"tokenizer": "train.txt"}, ValueError, "tokenizer='.*train.txt': cannot be read .*pass a tokenizer.json"),
        ({"tokenizer": "no-end.json"}, ValueError, r"no-end.json': has no token <\|endoftext\|>, .*add it"),
        ({"tokenizer": "lower.json"}, ValueError, "lower.json': decodes 'Naïve .*as 'naïve .*; pass a byte-level"),
        ({"tokenizer": "words.json"}, ValueError, "words.json': .*; pass a byte-level tokenizer"),
        ({"tokenizer": 5}, TypeError, "tokenizer=5: must be a path"),
        ({"cache": 5}, TypeError, "cache=5: must be a path"),
    ],
)
def test_invalid_arguments_are_refused_with_a_remedy(
    tmp_path: Path,
    small: Callable[..., TextStream],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("text")
    (tmp_path / "all.tar.gz").write_bytes(gzip.compress(b"text"))
    (tmp_path / "latin.txt").write_bytes(b"ab\ncd\xe9\n")
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "blank.txt").write_text("\n \n")
    if "cut" in str(changes):
        (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"text" * 99)[:-9])
        (tmp_path / "cut.txt.bz2").write_bytes(bz2.compress(b"text" * 99)[:40])
    no_end = tokens.trained(["text"], 260).to_str().replace(tokens.END_OF_TEXT, "<end>")
    (tmp_path / "no-end.json").write_text(no_end)
    lower = tokens.trained(["text"], 260)
    lower.normalizer = tokens.tokenizers().normalizers.Lowercase()
    lower.save(str(tmp_path / "lower.json"))
    words = tokens.tokenizers().Tokenizer(tokens.tokenizers().models.WordLevel({"text": 0, tokens.END_OF_TEXT: 1}))
    words.save(str(tmp_path / "words.json"))
    if changes == {"train": "."}:
        for name in ("latin.txt", "blank.txt"):
            (tmp_path / name).unlink()
    with pytest.raises(error, match=message):
        small(**changes)
    cache = tmp_path / "cache"
    assert not cache.is_dir() or folders(cache) == []


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'alma-env\[text\]'"):
        small()


def test_the_default_cache_is_in_the_users_cache(
    tmp_path: Path, small: Callable[..., TextStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments.platformdirs, "user_cache_path", lambda name, appauthor: tmp_path / "home" / name)
    assert small(cache=None).data.folder.parent == tmp_path / "home" / "alma-env" / "text"
