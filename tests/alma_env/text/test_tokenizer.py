"""Tokens: the tokenizer of a stream, and the ids of its sequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from alma_env.text import tokenizer as tokens
from alma_env.text.stream import TextStream

from .corpora import TRAIN, VALID, ids_of, put, released


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
