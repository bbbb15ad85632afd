"""A small corpus, and what a stream releases of it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from alma_env.text import tokenizer as tokens
from alma_env.text.stream import TextStream

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
