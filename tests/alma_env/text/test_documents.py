"""Documents: read from files of text, in any compression."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from alma_env.text import documents as corpus
from alma_env.text.stream import TextStream

from .corpora import TRAIN, put


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
