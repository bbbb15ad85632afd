"""The memory of a text stream does not grow with the corpus, because the stream is built once and read from the disk.

The corpus repeats the lines of a real text, in another order for each copy, so that no two documents are equal.
ALMA_TEXT is the folder or file of the text (default: the text of the package). ALMA_TEXT_MEBIBYTES is the size of the
corpus. A child process builds and reads the stream, and this process samples its memory.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from alma_env.text import documents
from alma_env.text.stream import tiny_text

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory is read from /proc of Linux"),
]

# Each printed line ends a phase. The child continues when it receives a line, after its memory has been read.
CHILD = """
import sys
import numpy as np
import torch
from alma_env.text.stream import text_stream
from alma_env.text.tokenizer import tokenizers

def phase(*words):
    print(*words, flush=True)
    sys.stdin.readline()

train, valid, cache = sys.argv[1:]
tokenizers()
phase("imported")
stream = text_stream(train, valid=valid, cache=cache)
phase("built", stream.data.vocabulary)
order, read = np.random.default_rng(0), 0
for t in range(1, stream.ticks + 1):
    arrays = stream.megabatch(t)["train"]
    for rows in np.array_split(order.permutation(stream.sequences), -(-stream.sequences // 24)):
        x, y = (torch.from_numpy(arrays[name][rows]).long() for name in ("x", "y"))
        assert torch.equal(x[:, 1:], y[:, :-1])
        read += x.numel()
phase("read", read)
"""


def write_corpus(source: str, folder: Path, size: int) -> None:
    """Write at least `size` bytes of documents of 1 to 30 lines each, in several files."""
    files = documents.files_of(source, "ALMA_TEXT")
    lines = [line for file in files for document in documents.documents(file) for line in document.split(b"\n")]
    numbers, written, copies = random.Random(0), 0, 0
    while written < size:
        numbers.shuffle(lines)
        with (folder / f"copy-{copies:05}.txt").open("wb") as out:
            start = 0
            while start < len(lines):
                end = start + numbers.randint(1, 30)
                out.write(b"\n".join(lines[start:end]) + b"\n\n")
                start = end
            written += out.tell()
        copies += 1


def mebibytes(pid: int) -> dict[str, float]:
    """Return the resident memory of a process, its peak, and the anonymous memory (not mapped from a file), in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    fields = (line.split(":") for line in status.splitlines())
    return {name: int(value.split()[0]) / 1024 for name, value in fields if name in ("VmRSS", "VmHWM", "RssAnon")}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Create a folder for the corpus and its tokens, and remove it at the end (pytest keeps its own folders)."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_the_memory_of_a_stream_is_a_small_part_of_its_corpus(benchmark, folder):
    size = int(os.environ.get("ALMA_TEXT_MEBIBYTES", "1024"))
    source = os.environ.get("ALMA_TEXT", str(tiny_text().train))
    train = folder / "train"
    train.mkdir()
    write_corpus(source, train, size << 20)
    size = sum(file.stat().st_size for file in train.iterdir()) >> 20
    command = [sys.executable, "-c", CHILD, str(train), str(tiny_text().valid), str(folder / "cache")]
    phases: dict[str, dict[str, float]] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        anonymous, started = 0.0, time.perf_counter()
        while len(phases) < 3 and child.poll() is None:
            now = mebibytes(child.pid)
            anonymous = max(anonymous, now["RssAnon"])
            line = child.stdout.readline()
            if line:
                now |= {"anonymous": anonymous, "seconds": time.perf_counter() - started}
                phases[line.strip()] = now
                anonymous = 0.0
                child.stdin.write("\n")
                child.stdin.flush()
            time.sleep(0.01)
    assert child.returncode == 0
    (_, before), (built, building), (read, reading) = phases.items()
    # VmHWM is the peak of this process. ru_maxrss of a child would include the peak of its parent.
    resident = {name: phase["VmHWM"] - before["VmRSS"] for name, phase in (("build", building), ("all", reading))}
    own = {name: phase["anonymous"] - before["RssAnon"] for name, phase in (("build", building), ("read", reading))}
    most = max(own.values())
    benchmark.extra_info.update(corpus=size, resident=resident, anonymous=own, phases=phases)
    benchmark.pedantic(lambda: None, rounds=1)
    print(
        f"\ncorpus {size} MiB; {built} (tokens of the vocabulary) in {building['seconds']:.0f} s, "
        f"{read} (tokens) in {reading['seconds'] - building['seconds']:.0f} s\n"
        f"peaks over {before['VmRSS']:.0f} MiB of the imports: resident while building {resident['build']:.0f} MiB, "
        f"anonymous while building {own['build']:.0f} MiB, anonymous while reading {own['read']:.0f} MiB\n"
        f"anonymous memory, which the system cannot take back: {most:.0f} MiB = corpus / {size / most:.1f}\n"
        f"resident, with the pages of the token files that it may take back: {resident['all']:.0f} MiB = "
        f"corpus / {size / resident['all']:.1f}"
    )
    assert size > 20 * most
