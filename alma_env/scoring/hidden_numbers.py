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
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash
from torch import Tensor, nn

from alma_env.scoring.held_objects import (
    filled,
    has_library_code,
    is_library_class,
    is_library_function,
    is_library_module,
    is_tool,
    literals_in,
    names_in,
    wrapped,
)
from alma_env.scoring.held_objects import parts as held_parts
from alma_env.scoring.module_tree import attributes_of, submodules

FEW = 16  # numbers that may change without a charge, such as a counter or a temperature
MANY = 64  # more numbers than these in one place count as buffers

_NAMED = ("_parameters", "_buffers", "_modules")
_REGISTRIES = frozenset(vars(nn.Module()))  # parameters, buffers, submodules, hooks and the training flag
_TEXT_PER_NUMBER = 4  # bytes
_BITS_PER_NUMBER = 64  # of a Python integer
# Truth values, short texts, names and nested lists are choices. More bits of them than this in one place are numbers.
_CHOICES = 2048
_MANY_CHOICES = 4096  # in one place: the names of thousands of classes
_NAMES = 8192  # in one module
_LITERALS = 8192  # in the code of one function
_CONSTANTS = {None: b"None", False: b"False", True: b"True"}
_READERS = frozenset({"numpy", "tolist", "__array__", "data_ptr", "untyped_storage", "__dlpack__"})
_SCALARS = (int, float, complex, np.generic)
_TEXTS = (str, bytes, bytearray, memoryview)
_COLLECTIONS = (list, tuple, set, frozenset, collections.deque, array.array)


@dataclass
class HiddenNumbers:
    """What a search found.

    Attributes:
        places: for each place with numbers, a hash of its content and how many numbers it has.
        choices: the same for truth values, short texts, names and nested lists, in scalars of 32 bits.
        tensors: tensors outside of the predictor that its code reads.
        arrays: arrays outside of the predictor that its code reads.
        reads_values: whether its code may read values of tensors without an operation of PyTorch.
    """

    places: list[tuple[str, int]] = field(default_factory=list)
    choices: list[tuple[str, int]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    reads_values: bool = False

    @property
    def many(self) -> int:
        """Number of the numbers in places that have more than `MANY`."""
        in_choices = sum(count for _, count in self.choices if count > _MANY_CHOICES)
        return sum(count for _, count in self.places if count > MANY) + in_choices


def may_read_values(value: object) -> bool:
    """Return whether a global variable is NumPy, a part of it, or a method of tensors that reads values."""
    if isinstance(value, types.MethodDescriptorType):
        return value.__name__ in _READERS
    if isinstance(value, np.ndarray | np.generic):
        return False
    if isinstance(value, types.ModuleType):
        home: str | None = value.__name__
    elif isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        home = value.__module__
    else:
        home = type(value).__module__
    return str(home).partition(".")[0] == "numpy"


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
        self._seen: dict[int, int] = {}  # by id: in which order the objects were found
        self._kept: list[Any] = []  # so that the ids in `_seen` stay those of these objects
        self._bits = 0  # of the choices in the place that is searched
        self._choices: list[bytes] = []  # these choices
        self._start = 0  # how many objects were found before this place
        self._inside = False  # whether this place is an attribute of the predictor

    def module(self, module: nn.Module) -> None:
        """Search the attributes of one module: many numbers are a place of their own, the others are one place."""
        rest: list[bytes] = []
        attributes = attributes_of(module)
        names = [name for name in attributes if name not in _REGISTRIES]
        names += [name for kind in _NAMED for name in attributes[kind] if not name.isdigit()]
        choices = [" ".join(names).encode(errors="surrogatepass")]
        count, bits = 0, 8 * len(choices[0])
        for name, value in attributes.items():
            if name in _REGISTRIES and not (value and name.endswith("_hooks")):
                continue
            found: list[bytes] = []
            numbers = self._numbers_in(value, found, inside=True)
            if numbers > MANY:
                self._place(self.found.places, found, numbers)
            elif numbers:
                rest += (name.encode(errors="surrogatepass"), *found)
                count += numbers
            if self._bits <= _CHOICES:
                bits += self._bits
                choices += self._choices
        if count:
            self._place(self.found.places, rest, count)
        if bits > _NAMES:
            self._place(self.found.choices, choices, bits // 32)
        self._class(type(module))

    def _numbers_in(self, value: Any, parts: list[bytes], *, inside: bool, choices: bool = True) -> int:
        """Write the content of a place to `parts`, and return how many numbers it has."""
        before = self._inside, self._start
        self._bits, self._choices, self._inside, self._start = 0, [], inside, len(self._seen)
        numbers = self._numbers(value, parts)
        self._inside, self._start = before
        if choices and self._bits > _CHOICES:
            self._place(self.found.choices, self._choices, self._bits // 32)
        return numbers

    def _place(self, places: list[tuple[str, int]], parts: list[bytes], numbers: int) -> None:
        places.append((xxhash.xxh3_128_hexdigest(b"\0".join(parts)), numbers))

    def _first(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return True

    def _numbers(self, value: Any, parts: list[bytes]) -> int:
        """Write the numbers in a value to `parts`, and return how many they are."""
        if value is None or isinstance(value, bool | type | types.ModuleType | nn.Module | Tensor):
            content = _CONSTANTS[value] if value is None or isinstance(value, bool) else b""
            named = isinstance(value, type | types.ModuleType)
            self._choose(content or getattr(value if named else type(value), "__name__").encode(), 8 if named else 1)  # noqa: B009
            parts.append(content)
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
            if len(content) <= FEW * _TEXT_PER_NUMBER:
                self._choose(content, 8 * len(content))
                return 0
            return -(-len(content) // _TEXT_PER_NUMBER)
        if isinstance(value, np.ndarray):
            if value.size > FEW or value.dtype.kind not in "biu":
                return 0  # the fingerprint has it
            parts.append(value.tobytes())
            return int(value.size)
        first = self._first(value)
        self._choose(f"{type(value).__name__} {max(-1, self._seen[id(value)] - self._start)}".encode(), 1)
        if not first:
            return 0
        if isinstance(value, dict):
            total = sum(self._numbers(one, parts) for pair in value.items() for one in pair)
            return total + self._numbers(getattr(value, "__dict__", None), parts)
        if isinstance(value, _COLLECTIONS):
            return sum(self._numbers(one, parts) for one in value)
        return sum(self._numbers(one, parts) for one in self._parts_of(value, parts))

    def _choose(self, choice: bytes, bits: int) -> None:
        self._bits += bits
        self._choices.append(choice)

    def _parts_of(self, value: Any, parts: list[bytes]) -> Iterator[Any]:
        """Yield what an object holds."""
        if isinstance(value, types.FunctionType):
            self.found.reads_values |= not _READERS.isdisjoint(names_in(value.__code__))
            yield from (cell.cell_contents for cell in value.__closure__ or () if filled(cell))
            yield from (value.__defaults__, value.__kwdefaults__, value.__dict__)
            before = self._bits
            yield from literals_in(value.__code__)
            self._bits = before + max(0, self._bits - before - _LITERALS)
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
        elif type(value) is weakref.ReferenceType:
            yield value()
        elif self._inside or not is_tool(value):
            yield from held_parts(value)

    def _class(self, kind: type) -> None:
        if is_library_class(kind) or not self._first(kind):
            return
        functions: dict[str, list[types.FunctionType]] = {}
        for base in kind.__mro__:
            if not is_library_class(base):
                for name, value in vars(base).items():
                    for part in wrapped(value):
                        if isinstance(part, types.FunctionType):
                            functions.setdefault(name, []).append(part)
                        elif not name.startswith("__") or name == "__call__":
                            self.outside(part)
        # The functions that an answer can call; others, such as a method that trains, may read anything.
        waiting = [name for name in functions if name == "forward" or (name.startswith("__") and name != "__init__")]
        while waiting:
            for function in functions.pop(waiting.pop(), ()):
                waiting += names_in(function.__code__)
                self.outside(function)

    def _globals(self, function: types.FunctionType) -> None:
        """Search the global variables that the code of a function reads, and those of the functions that it calls."""
        if has_library_code(function):  # a wrapper of PyTorch around a function, such as torch.compile's
            return
        names = names_in(function.__code__)
        for name in names:
            if name in function.__globals__:
                value = function.__globals__[name]
                self.found.reads_values |= may_read_values(value)
                if isinstance(value, types.ModuleType):
                    for inner in names:
                        self._in_module(value, inner)
                else:
                    self.outside(value)

    def _in_module(self, module: types.ModuleType, name: str) -> None:
        value = vars(module).get(name)
        library = is_library_module(module)
        if isinstance(value, (Tensor, np.ndarray, dict, bytearray, *_COLLECTIONS)) or not library:
            self.outside(value, choices=not library)

    def outside(self, value: Any, *, choices: bool = True) -> None:
        """Search a value that belongs to no module, such as a global variable. It is a place of its own."""
        if value is None or isinstance(value, _SCALARS):
            self._place(self.found.places, [repr(value).encode()], 1)
            return
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
            return
        if isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.FunctionType) and is_library_function(value):
            return
        else:
            self._tensors(value, 0)
            parts: list[bytes] = []
            before = self._bits, self._choices
            numbers = self._numbers_in(value, parts, inside=False, choices=choices)
            self._bits, self._choices = before
            self._place(self.found.places, parts, numbers)

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
                inner = [cell.cell_contents for cell in value.__closure__ or () if filled(cell)]
                inner += [value.__defaults__, value.__kwdefaults__, value.__dict__]
            elif isinstance(value, functools.partial):
                inner = [value.func, value.args, value.keywords]
            elif isinstance(value, contextvars.ContextVar):
                inner = [value.get(None)]
            elif type(value) is weakref.ReferenceType:
                inner = [value()]
            elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType) and not is_tool(value):
                inner = vars(value).values()
            else:
                return
            for one in list(inner):
                if not isinstance(one, (*_SCALARS, *_TEXTS)):
                    self._tensors(one, depth + 1)
