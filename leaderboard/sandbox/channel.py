"""Messages between judge, contestant and evaluator: a JSON header and blobs of bytes over a pair of pipes.

Nothing is unpickled. Every length is checked before that many bytes are read, and every wait can have a deadline.
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
_LONGEST_WAIT = 86_400.0  # seconds; a selector refuses very long times
_LENGTH = struct.Struct(">Q")
_DTYPES = ("uint8", "int32", "int64", "float32", "float64")


class ChannelError(AlmaError):
    """The other side closed the connection, took too long, or sent malformed bytes."""


@dataclass(frozen=True)
class Message:
    """A request or answer: its kind, such as ``megabatch``, fields of plain JSON values, and bytes, such as arrays."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    blobs: Sequence[bytes | bytearray | memoryview] = ()


class Channel:
    """One end of a connection. A deadline is a time of the clock `time.monotonic`; None is no deadline.

    Args:
        reading, writing: file descriptors; they become non-blocking.
        most: limit in bytes of the blobs of one received message.
    """

    def __init__(self, reading: int, writing: int, *, most: int = 2**31) -> None:
        self.reading, self.writing, self.most = reading, writing, most
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def send(self, message: Message, *, deadline: float | None = None) -> None:
        """Send a message.

        Raises:
            ChannelError: the other side ended, or does not read until the deadline.
        """
        header = json.dumps([message.kind, dict(message.fields), [len(blob) for blob in message.blobs]]).encode()
        if len(header) > HEADER_BYTES:
            raise ChannelError(f"a header of {len(header):,} bytes: must have at most {HEADER_BYTES:,}")
        for part in (_LENGTH.pack(len(header)) + header, *message.blobs):
            self._write(memoryview(part).cast("B"), deadline)

    def receive(self, *, deadline: float | None = None) -> Message:
        """Wait for a message.

        Raises:
            ChannelError: the other side ended, sends nothing until the deadline, too much, or malformed bytes.
        """
        if deadline is not None and time.monotonic() > deadline:  # also if there is always something to read
            raise ChannelError("the other side took too long")
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        if length > HEADER_BYTES:
            raise ChannelError(f"a header of {length:,} bytes: must have at most {HEADER_BYTES:,}")
        try:
            kind, fields, lengths = json.loads(bytes(self._read(length, deadline)))
            plain = isinstance(kind, str) and isinstance(fields, dict) and isinstance(lengths, list)
            sizes = [size for size in lengths if type(size) is int and size >= 0] if plain else []
        except (ValueError, TypeError, RecursionError) as error:
            raise ChannelError(f"not a message: {str(error)[:200]}") from error
        if not plain or len(sizes) != len(lengths) or len(sizes) > BLOBS:
            raise ChannelError("not a message: a header must be a kind, fields and the lengths of the blobs")
        if sum(sizes) > self.most:
            raise ChannelError(f"{sum(sizes):,} bytes in a message: must have at most {self.most:,}")
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
                raise ChannelError(f"the other side ended ({error})") from error

    def _read(self, length: int, deadline: float | None) -> bytearray:
        out = bytearray()
        while len(out) < length:
            try:
                part = os.read(self.reading, min(length - len(out), 2**20))
            except BlockingIOError:
                self._wait(self.reading, selectors.EVENT_READ, deadline)
                continue
            except OSError as error:
                raise ChannelError(f"the other side ended ({error})") from error
            if not part:
                raise ChannelError("the other side closed the connection")
            out += part
        return out

    def _wait(self, descriptor: int, event: int, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ChannelError("the other side took too long")
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, event)
            selector.select(None if left is None else min(left, _LONGEST_WAIT))


def pipe_pair() -> tuple[tuple[int, int], tuple[int, int]]:
    """Open two pipes; return (reading, writing) descriptors of one side, and of the other side."""
    first_reads, second_writes = os.pipe()
    second_reads, first_writes = os.pipe()
    return (first_reads, first_writes), (second_reads, second_writes)


def array_header(array: NDArray[Any]) -> dict[str, Any]:
    """Return dtype and shape of an array as fields; `as_blob` returns its bytes."""
    return {"dtype": array.dtype.name, "shape": list(array.shape)}


def as_blob(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array, without a copy if it is contiguous."""
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def as_array(blob: bytes | bytearray | memoryview, header: Any) -> NDArray[Any]:
    """Return the array of a blob and its `array_header`, as a view of the bytes.

    Raises:
        ChannelError: the dtype or the shape is not allowed, or does not fit the bytes.
    """
    try:
        dtype, shape = header["dtype"], tuple(header["shape"])
        # NumPy gets no other text, because it evaluates some as Python.
        if dtype not in _DTYPES or not all(type(side) is int and side >= 0 for side in shape) or len(shape) > 8:
            raise ValueError(f"dtype {str(dtype)[:50]}, shape {str(shape)[:100]}")
        return np.frombuffer(blob, np.dtype(dtype)).reshape(shape)
    except (ValueError, TypeError, KeyError) as error:
        raise ChannelError(f"not an array: {str(error)[:200]}") from error
