"""Numbers that a predictor keeps outside of its parameters and buffers.

A forward pass can read lists, bytes, closures, class attributes and global variables. What is found here takes part in
the fingerprint: many numbers in one place count as buffers, and numbers that changed count as changed content.
"""

from __future__ import annotations

import array
import collections
import contextvars
import functools
import io
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash
from torch import Tensor, nn

from alma_env.scoring.module_tree import attributes_of, submodules

FEW = 16  # numbers that may change without a charge, such as a counter or a temperature
MANY = 64  # more numbers than these in one place count as buffers

_REGISTRIES = frozenset(vars(nn.Module()))  # parameters, buffers, submodules, hooks and the training flag
_TOOLS = frozenset({"torch", "numpy", "alma_env", "agents", "leaderboard"})  # their objects are no hiding places
_LIBRARIES = frozenset(sys.stdlib_module_names) | _TOOLS
_TEXT_PER_NUMBER = 4  # bytes
_BITS_PER_NUMBER = 64  # of a Python integer
_SCALARS = (int, float, complex, np.generic)
_TEXTS = (str, bytes, bytearray, memoryview)
_COLLECTIONS = (list, tuple, set, frozenset, collections.deque, array.array)


@dataclass
class HiddenNumbers:
    """What a search found.

    Attributes:
        places: for each place with numbers, a hash of its content and how many numbers it has.
        tensors: tensors outside of the predictor that its code reads.
        arrays: arrays outside of the predictor that its code reads.
    """

    places: list[tuple[str, int]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)

    @property
    def many(self) -> int:
        """How many numbers are in places with many of them."""
        return sum(count for _, count in self.places if count > MANY)


def hidden_numbers(predictor: nn.Module) -> HiddenNumbers:
    """Search the attributes of a module and its submodules, the code of their classes, and what that code reads."""
    search = _Search()
    for _, module in submodules(predictor):
        search.module(module)
    if nn.modules.module._has_any_global_hook():  # type: ignore[no-untyped-call]
        for hooks in (nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks):
            for hook in hooks.values():
                search.outside(hook)
    return search.found


class _Search:
    def __init__(self) -> None:
        self.found = HiddenNumbers()
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # so that the ids in `_seen` stay those of these objects

    def module(self, module: nn.Module) -> None:
        """Search the attributes of one module: many numbers are a place of their own, the others are one place."""
        rest: list[bytes] = []
        count = 0
        for name, value in attributes_of(module).items():
            if name in _REGISTRIES and not (value and name.endswith("_hooks")):
                continue
            parts: list[bytes] = []
            numbers = self._numbers(value, parts)
            if numbers > MANY:
                self._place(parts, numbers)
            elif numbers:
                rest += (name.encode(), *parts)
                count += numbers
        if count:
            self._place(rest, count)
        self._class(type(module))

    def _place(self, parts: list[bytes], numbers: int) -> None:
        self.found.places.append((xxhash.xxh3_128_hexdigest(b"\0".join(parts)), numbers))

    def _first(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        self._seen.add(id(value))
        self._kept.append(value)
        return True

    def _numbers(self, value: Any, parts: list[bytes]) -> int:
        """Write the numbers in a value to `parts`, and return how many they are."""
        if value is None or isinstance(value, bool | type | types.ModuleType | nn.Module | Tensor):
            parts.append(repr(value).encode() if value is None or isinstance(value, bool) else b"")
            return 0
        if isinstance(value, _SCALARS):
            if isinstance(value, int) and value.bit_length() > _BITS_PER_NUMBER:
                parts.append(hex(value).encode())
                return -(-value.bit_length() // _BITS_PER_NUMBER)
            parts.append(repr(value).encode())
            return 1
        if isinstance(value, _TEXTS):
            content = value.encode(errors="surrogatepass") if isinstance(value, str) else bytes(value)
            parts.append(content)
            # A short text is a name or a choice.
            return 0 if len(content) <= FEW * _TEXT_PER_NUMBER else -(-len(content) // _TEXT_PER_NUMBER)
        if isinstance(value, np.ndarray):
            if value.size > FEW or value.dtype.kind not in "biu":
                return 0  # the fingerprint has it
            parts.append(value.tobytes())
            return int(value.size)
        if not self._first(value):
            return 0
        if isinstance(value, dict):
            total = sum(self._numbers(one, parts) for pair in value.items() for one in pair)
            return total + self._numbers(getattr(value, "__dict__", None), parts)
        if isinstance(value, _COLLECTIONS):
            return sum(self._numbers(one, parts) for one in value)
        return sum(self._numbers(one, parts) for one in self._parts_of(value, parts))

    def _parts_of(self, value: Any, parts: list[bytes]) -> Iterator[Any]:
        """Yield what an object holds."""
        if isinstance(value, types.FunctionType):
            yield from (cell.cell_contents for cell in value.__closure__ or () if _filled(cell))
            yield from (value.__defaults__, value.__kwdefaults__, value.__dict__)
            yield from _literals(value.__code__)
            self._globals(value)
        elif isinstance(value, functools.partial):
            yield from (value.func, value.args, value.keywords)
        elif isinstance(value, types.MethodType):
            yield from (value.__func__, value.__self__)
        elif isinstance(value, types.GeneratorType | types.CoroutineType):
            parts.append(os.urandom(16))  # what cannot be described counts as changed
            yield [0] * (FEW + 1)
        elif isinstance(value, io.BytesIO | io.StringIO):
            yield value.getvalue()
        elif isinstance(value, contextvars.ContextVar):
            yield value.get(None)
        elif not _is_tool(value):
            yield getattr(value, "__dict__", None)
            for kind in type(value).__mro__:
                for name in _slots(kind):
                    yield getattr(value, name, None)

    def _class(self, kind: type) -> None:
        if _is_library(kind.__module__) or not self._first(kind):
            return
        functions: dict[str, list[types.FunctionType]] = {}
        for base in kind.__mro__:
            if not _is_library(base.__module__):
                for name, value in vars(base).items():
                    function = _function_of(value)
                    if isinstance(function, types.FunctionType):
                        functions.setdefault(name, []).append(function)
                    elif not name.startswith("__"):
                        self.outside(function)
        # The functions that an answer can call; others, such as a method that trains, may read anything.
        waiting = [name for name in functions if name == "forward" or (name.startswith("__") and name != "__init__")]
        while waiting:
            for function in functions.pop(waiting.pop(), ()):
                waiting += _names(function.__code__)
                self.outside(function)

    def _globals(self, function: types.FunctionType) -> None:
        """Search the global variables that the code of a function reads, and those of the functions that it calls."""
        names = _names(function.__code__)
        for name in names:
            if name in function.__globals__:
                value = function.__globals__[name]
                if isinstance(value, types.ModuleType):
                    for inner in names:
                        self._in_module(value, inner)
                else:
                    self.outside(value)

    def _in_module(self, module: types.ModuleType, name: str) -> None:
        value = vars(module).get(name)
        library = _is_library(module.__name__)
        if isinstance(value, (Tensor, np.ndarray, dict, bytearray, *_COLLECTIONS)) or not library:
            self.outside(value)

    def outside(self, value: Any) -> None:
        """Search a value that belongs to no module: few numbers are not counted, because they may be a counter."""
        if value is None or isinstance(value, (*_SCALARS, types.ModuleType, types.BuiltinFunctionType)):
            return
        if isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.FunctionType) and _is_library(value.__module__ or ""):
            return
        else:
            self._tensors(value, 0)
            parts: list[bytes] = []
            numbers = self._numbers(value, parts)
            if numbers > MANY:
                self._place(parts, numbers)

    def _tensors(self, value: Any, depth: int) -> None:
        """Collect the tensors and arrays in a value outside of the predictor."""
        if isinstance(value, Tensor):
            if self._first(value):
                self.found.tensors.append(value)
        elif isinstance(value, np.ndarray):
            if self._first(value):
                self.found.arrays.append(value)
        elif isinstance(value, nn.Module):
            for _, one in submodules(value):
                for kind in ("_parameters", "_buffers"):
                    for tensor in attributes_of(one)[kind].values():
                        self._tensors(tensor, depth)
        elif depth < 4:
            if isinstance(value, dict):
                inner: Any = value.values()
            elif isinstance(value, list | tuple | set | frozenset | collections.deque):
                inner = value
            elif isinstance(value, types.FunctionType):
                inner = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
                inner += [value.__defaults__, value.__kwdefaults__, value.__dict__]
            elif isinstance(value, functools.partial):
                inner = [value.func, value.args, value.keywords]
            elif isinstance(value, contextvars.ContextVar):
                inner = [value.get(None)]
            elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType) and not _is_tool(value):
                inner = vars(value).values()
            else:
                return
            for one in list(inner):
                if not isinstance(one, (*_SCALARS, *_TEXTS)):
                    self._tensors(one, depth + 1)


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


def _function_of(value: Any) -> Any:
    """Return the function in a method, class method, static method, property or decorated function."""
    value = getattr(value, "__func__", value)
    value = value.fget if isinstance(value, property) else value
    return getattr(value, "__wrapped__", value)


def _is_tool(value: object) -> bool:
    return type(value).__module__.partition(".")[0] in _TOOLS


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[str, ...]:
    inner = [name for value in code.co_consts if isinstance(value, types.CodeType) for name in _names(value)]
    return (*code.co_names, *inner)


@functools.lru_cache(maxsize=4096)
def _literals(code: types.CodeType) -> tuple[Any, ...]:
    """Return the numbers and texts in the code of a function, without its documentation."""
    values = [value for value in code.co_consts if not isinstance(value, types.CodeType)]
    documented = bool(code.co_consts) and isinstance(code.co_consts[0], str)
    inner = [one for value in code.co_consts if isinstance(value, types.CodeType) for one in _literals(value)]
    return (*values[documented:], *inner)
