"""What an object is, and what it holds: whether a library defined it, and its parts as copies and pickles see them."""

from __future__ import annotations

import copyreg
import functools
import logging
import operator
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

from torch import nn

_TOOLS = frozenset({"torch", "numpy", "alma_env", "agents", "leaderboard"})
_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_LIBRARIES = frozenset(sys.stdlib_module_names) | _TOOLS


def is_in(kind: type, packages: frozenset[str]) -> bool:
    """Return whether a class belongs to one of these packages, and does not only claim their name.

    A module class whose ``forward`` was replaced belongs to none: its answers are those of another code.
    """
    # A metaclass can make two classes equal, so that a cache would confuse them.
    known = _plain_class_is_in(kind, packages) if type(kind) is type else _class_is_in(kind, packages)
    # Not cached, because a program can replace the function, or its code, at any time.
    return known and (nn.Module not in kind.__mro__ or _has_own_forward(kind))


def _has_own_forward(kind: type) -> bool:
    """Return whether a module class computes what its package wrote, and not a function that replaced it."""
    base = next(base for base in kind.__mro__ if "forward" in vars(base))
    forward = vars(base)["forward"]
    if not isinstance(forward, types.FunctionType):
        return False
    code = forward.__code__
    # A decorator of PyTorch has code in its folder too, but another name.
    named = code.co_qualname in (f"{base.__qualname__}.forward", "_forward_unimplemented")
    return named and code.co_filename.startswith(_folder_of(base.__module__.partition(".")[0]))


def _class_is_in(kind: type, packages: frozenset[str]) -> bool:
    module, name = kind.__module__, kind.__qualname__
    package = module.partition(".")[0] if isinstance(module, str) else ""
    if package not in packages:
        return False
    try:
        if operator.attrgetter(name)(sys.modules[module]) is kind:
            return True
    except (AttributeError, KeyError):
        pass  # some classes of libraries are not found by their name
    if not kind.__flags__ & _MADE_BY_PYTHON:
        return True
    folder = _folder_of(package)
    functions = [value for value in vars(kind).values() if isinstance(value, types.FunctionType)]
    return bool(functions) and all(one.__code__.co_filename.startswith(folder) for one in functions)


def _folder_of(package: str) -> str:
    """Return the folder of the files of a package, with a separator at its end."""
    return os.path.dirname(getattr(sys.modules.get(package), "__file__", None) or os.__file__) + os.sep


_plain_class_is_in = functools.lru_cache(maxsize=4096)(_class_is_in)


def is_library_class(kind: type) -> bool:
    """Return whether a class is one of Python, PyTorch, NumPy or this project."""
    return is_in(kind, _LIBRARIES)


def is_library_module(module: types.ModuleType) -> bool:
    """Return whether a module is one of Python, PyTorch, NumPy or this project."""
    return module.__name__.partition(".")[0] in _LIBRARIES


def is_library_function(function: types.FunctionType) -> bool:
    """Return whether a function is one of Python, PyTorch, NumPy or this project."""
    module = function.__module__ or ""
    home = sys.modules.get(module)
    return module.partition(".")[0] in _LIBRARIES and home is not None and function.__globals__ is vars(home)


def has_library_code(function: types.FunctionType) -> bool:
    """Return whether a library wrote the code of a function, whatever module the function names, as decorators do."""
    home = sys.modules.get(str(function.__globals__.get("__name__")))
    if home is None or vars(home) is not function.__globals__ or not is_library_module(home):
        return False
    return function.__code__.co_filename.startswith(_folder_of(home.__name__.partition(".")[0]))


def is_tool(value: object) -> bool:
    """Return whether an object is one of PyTorch, NumPy or this project."""
    kind: Any = type(value)
    return is_in(kind, _TOOLS)


def wrapped(value: Any) -> list[Any]:
    """Return what a class attribute calls: a function, and what it wraps, if it is decorated; or another object.

    Class methods, static methods and properties, and the wrappers of Python's library, are left out for their function.
    """
    value = getattr(value, "__func__", value)
    value = value.fget if isinstance(value, property) else value
    found: list[Any] = []
    while all(value is not one for one in found):
        found.append(value)
        held = getattr(value, "__dict__", None)  # no attribute that a class computes, perhaps without end
        if not (isinstance(held, dict) and "__wrapped__" in held):
            break
        value = held["__wrapped__"]
    *wrappers, last = found
    return [one for one in wrappers if isinstance(one, types.FunctionType) or not is_library_class(type(one))] + [last]


def filled(cell: types.CellType) -> bool:
    """Return whether a variable of a closure has a value."""
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def parts(value: Any) -> Iterator[Any]:
    """Yield the attributes of an object; of an object without attributes, what its pickle holds."""
    kind: Any = type(value)
    own = kind in copyreg.dispatch_table or kind.__reduce__ is not object.__reduce__
    slots = [name for base in kind.__mro__ for name in _slots(base)]
    if hasattr(value, "__dict__") or slots:
        yield _without_loggers(value)
        yield from (getattr(value, name, None) for name in slots)
        if not own:
            return
    try:
        reduce = copyreg.dispatch_table.get(kind)
        found = reduce(value) if reduce else value.__reduce_ex__(4)
    except Exception:  # it cannot be copied either
        return
    if not isinstance(found, str):
        _, arguments, *rest = found
        yield arguments
        yield from (part if number == 0 else list(part) for number, part in enumerate(rest[:3]) if part is not None)


def _without_loggers(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, without those that change when other parts of a program use a logger.

    These are a logger's memory of levels, and the loggers in the registry.
    """
    found: dict[str, Any] | None = getattr(value, "__dict__", None)
    if type(value) is logging.Manager:
        return {name: one for name, one in vars(value).items() if name != "loggerDict"}
    memory = found.get("_cache") if found and isinstance(value, logging.Logger) else None
    if found and isinstance(memory, dict) and all(type(one) is bool for one in memory.values()) and len(memory) <= 64:
        return {name: one for name, one in found.items() if name != "_cache"}
    return found


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of variables and attributes in the code of a function."""
    inner = [name for value in code.co_consts if isinstance(value, types.CodeType) for name in names_in(value)]
    return (*code.co_names, *inner)


@functools.lru_cache(maxsize=4096)
def literals_in(code: types.CodeType) -> tuple[Any, ...]:
    """Return the numbers and texts in the code of a function, without its documentation."""
    values = [value for value in code.co_consts if not isinstance(value, types.CodeType)]
    documented = bool(code.co_consts) and isinstance(code.co_consts[0], str)
    inner = [one for value in code.co_consts if isinstance(value, types.CodeType) for one in literals_in(value)]
    return (*values[documented:], *inner)
