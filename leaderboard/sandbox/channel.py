"""Messages between judge, sandbox and evaluator: a JSON header and blobs of bytes over a pair of pipes.

Nothing is unpickled, every length is bounded before anything of that length is read, and every wait has an end.
"""

from __future__ import annotations

import json
import os
import selectors
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alma_env.errors import AlmaError

HEADER_BYTES = 2**20
BLOBS = 64
_LENGTH = struct.Struct(">Q")
_DTYPES = ("uint8", "int32", "int64", "float32", "float64")


class WireError(AlmaError):
    """The other side closed the connection, took too long, or sent what is no message."""


@dataclass(frozen=True)
class Message:
    """What was sent.

    Attributes:
        kind: what it is about.
        fields: plain JSON values.
        blobs: bytes that go with them.
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    blobs: Sequence[bytes | bytearray | memoryview] = ()


class Channel:
    """One end of a connection.

    Args:
        reading, writing: file descriptors, which become non-blocking.
        most: bytes of blobs that a message may bring.
    """

    def __init__(self, reading: int, writing: int, *, most: int = 2**31) -> None:
        self.reading, self.writing, self.most = reading, writing, most
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def send(self, message: Message, *, deadline: float | None = None) -> None:
        """Send a message.

        Args:
            message: its fields must be JSON values.
            deadline: on the clock `time.monotonic`.

        Raises:
            WireError: the other side is gone, or does not read.
        """
        header = json.dumps([message.kind, dict(message.fields), [len(blob) for blob in message.blobs]]).encode()
        if len(header) > HEADER_BYTES:
            raise WireError(f"a header of {len(header):,} bytes: at most {HEADER_BYTES:,}")
        for part in (_LENGTH.pack(len(header)) + header, *message.blobs):
            self._write(memoryview(part).cast("B"), deadline)

    def receive(self, *, deadline: float | None = None) -> Message:
        """Wait for a message.

        Raises:
            WireError: the other side is gone, sends nothing, too much, or what is no message.
        """
        if deadline is not None and time.monotonic() > deadline:  # also where there is always something to read
            raise WireError("the other side took too long")
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        if length > HEADER_BYTES:
            raise WireError(f"a header of {length:,} bytes: at most {HEADER_BYTES:,}")
        try:
            kind, fields, lengths = json.loads(bytes(self._read(length, deadline)))
            plain = isinstance(kind, str) and isinstance(fields, dict) and isinstance(lengths, list)
            sizes = [size for size in lengths if type(size) is int and size >= 0] if plain else []
        except (ValueError, TypeError, RecursionError) as error:
            raise WireError(f"not a message: {str(error)[:200]}") from error
        if not plain or len(sizes) != len(lengths) or len(sizes) > BLOBS:
            raise WireError("not a message: a header is its kind, its fields and the lengths of its blobs")
        if sum(sizes) > self.most:
            raise WireError(f"{sum(sizes):,} bytes in a message: at most {self.most:,}")
        return Message(kind, fields, [self._read(size, deadline) for size in sizes])

    def close(self) -> None:
        """Close both descriptors."""
        for descriptor in {self.reading, self.writing}:
            os.close(descriptor)

    def _write(self, part: memoryview, deadline: float | None) -> None:
        while len(part):
            try:
                part = part[os.write(self.writing, part) :]
            except BlockingIOError:
                self._wait(self.writing, selectors.EVENT_WRITE, deadline)
            except (BrokenPipeError, OSError) as error:
                raise WireError(f"the other side is gone ({error})") from error

    def _read(self, length: int, deadline: float | None) -> bytearray:
        out = bytearray()
        while len(out) < length:
            try:
                part = os.read(self.reading, min(length - len(out), 2**20))
            except BlockingIOError:
                self._wait(self.reading, selectors.EVENT_READ, deadline)
                continue
            except OSError as error:
                raise WireError(f"the other side is gone ({error})") from error
            if not part:
                raise WireError("the other side closed the connection")
            out += part
        return out

    def _wait(self, descriptor: int, event: int, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise WireError("the other side took too long")
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, event)
            selector.select(left)


def pair() -> tuple[tuple[int, int], tuple[int, int]]:
    """Two pipes: (reading, writing) of one side, and of the other."""
    here_reads, there_writes = os.pipe()
    there_reads, here_writes = os.pipe()
    return (here_reads, here_writes), (there_reads, there_writes)


def described(array: NDArray[Any]) -> dict[str, Any]:
    """dtype and shape of an array, as fields; its bytes are the blob."""
    return {"dtype": array.dtype.name, "shape": list(array.shape)}


def as_blob(array: NDArray[Any]) -> memoryview:
    """The bytes of an array, not copied where it is contiguous."""
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def as_array(blob: bytes | bytearray | memoryview, about: Any) -> NDArray[Any]:
    """The array of a blob, a view of its bytes.

    Raises:
        WireError: dtype or shape are not allowed, or do not fit the bytes.
    """
    try:
        dtype, shape = np.dtype(about["dtype"]), tuple(about["shape"])
        if dtype.name not in _DTYPES or not all(type(side) is int and side >= 0 for side in shape) or len(shape) > 8:
            raise ValueError(f"dtype {dtype.name}, shape {shape}")
        return np.frombuffer(blob, dtype).reshape(shape)
    except (ValueError, TypeError, KeyError) as error:
        raise WireError(f"not an array: {str(error)[:200]}") from error
