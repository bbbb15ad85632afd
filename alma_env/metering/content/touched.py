"""What a metered block knows of a storage that it touched, and how the content flows from operation to operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alma_env.metering.content.content_flow import Flow
from alma_env.metering.content.storages import WeakStorage, bytes_of, sample

FEW = 16  # numbers from outside of the block that a tensor may hold, such as the mean of each channel


class Touched:
    """A storage that the running block touched."""

    __slots__ = (
        "content",
        "data",
        "foreign",
        "made",
        "numbers",
        "reference",
        "released",
        "sample",
        "scalars",
        "written",
    )

    def __init__(self, reference: WeakStorage) -> None:
        self.reference = reference
        self.foreign = ""  # why the content is foreign
        self.written = False  # by an operation of the block
        self.made = True  # by operations, of this or an earlier block: a copy is then made, too
        self.released = False  # data that the environment handed out
        self.data = False  # computed from such data alone
        self.numbers = 0  # numbers from outside that it holds
        self.scalars: frozenset[float] = frozenset()  # those of them that were written one at a time
        self.sample: int | None = None  # of the content after the last operation
        self.content: int | None = None  # checksum at the first look


class Inputs:
    """What an operation reads."""

    __slots__ = ("anything", "before", "data", "foreign", "made", "numbers", "pairs")

    def __init__(self) -> None:
        self.anything = False  # whether it reads tensors at all; if not, its numbers are what it writes
        self.foreign = ""
        self.data = False
        self.made = True
        self.numbers = 0
        self.pairs: Sequence[Inputs] = ()  # of each tensor, if the operation copies several
        self.before: tuple[int, int] | None = None  # key and bytes of a known storage that the operation may enlarge


def is_parameter(thing: Any) -> bool:
    """Return whether a thing is a tensor to be trained: a parameter, or a leaf that needs a gradient."""
    return type(thing) is nn.Parameter or (isinstance(thing, Tensor) and thing.requires_grad and thing.is_leaf)


def as_bytes(storage: torch.UntypedStorage) -> Tensor:
    """Return a tensor of the bytes of a storage, in its memory."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def values_of(storage: torch.UntypedStorage, dtype: torch.dtype) -> Any:
    """Return the content of a storage as an array: of `dtype` if NumPy has it, else of integers of the same size."""
    content = np.frombuffer(bytes_of(storage), np.uint8)
    kind = float_type(dtype) or np.dtype({1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}.get(dtype.itemsize, "u1"))
    return content.view(kind) if len(content) % kind.itemsize == 0 else content


def float_type(dtype: torch.dtype) -> np.dtype[Any] | None:
    """Return the NumPy type of floats of this dtype, or None."""
    kinds = {torch.float32: np.float32, torch.float64: np.float64, torch.float16: np.float16}
    return np.dtype(kinds[dtype]) if dtype in kinds else None


def is_constant(values: Any) -> bool:
    """Return whether all values are equal."""
    # Most arrays are refused by a few values: at regular places, or in the middle of an image with a border.
    middle = len(values) // 2
    few = values[:: max(1, len(values) // 64)], values[middle : middle + 1024]
    return len(values) < 2 or all(bool((part == values[0]).all()) for part in (*few, values))


def selects_examples(source: Touched, args: tuple[Any, ...]) -> bool:
    """Return whether an operation selects whole examples of data, or labels."""
    x, by = args[0], args[1]
    if isinstance(by, list | tuple):
        by = by[0] if len(by) == 1 else None
    if x.dim() == 0 or not (isinstance(by, Tensor) or by == 0):
        return False
    if x.dim() == 1:
        return source.released and not x.is_floating_point()
    return source.data and x.numel() >= len(x) * (FEW // 2)


def numbers_written(touched: Touched, tensor: Tensor, flow: Flow, inputs: Inputs, args: tuple[Any, ...]) -> int:
    """Return how many numbers from outside an operation wrote into a part of a storage; an equal one counts once."""
    value = args[-1 if flow.into_parts is None else flow.into_parts] if args else 0
    scalar: float | None = None
    if isinstance(value, Tensor):
        if inputs.numbers == 1 and value.dim() == 0 and (flow.overwrites or flow.into_parts is not None):
            scalar = sample(value)  # `x[0] = 0.5` fills with a tensor
    elif flow.copies is None and (flow.into_parts is not None or (flow.overwrites and not inputs.anything)):
        scalar = value if isinstance(value, int | float) else None
    if scalar is None:
        size = value.numel() if flow.into_parts is not None and isinstance(value, Tensor) else tensor.numel()
        return min(size, inputs.numbers) if size > FEW else size * bool(inputs.numbers)
    if scalar in (0, 1, -1) or scalar in touched.scalars:
        return 0
    touched.scalars |= {scalar}
    return 1
