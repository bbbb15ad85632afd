"""Operations that Python code added to PyTorch's namespaces, or whose kernel it replaced.

The table of costs knows an operation by its name. `torch.library` gives any code to a name of PyTorch: a matrix product
can be called `aten::relu.product`, or replace the kernel of `aten::sinc`. The dispatcher knows which file registered
the schema and each kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import torch
from torch._ops import OpOverload

_REGISTRATION = re.compile(r"^(?P<key>[^:]*): registered at (?P<path>.*):\d+(?: ::|$)")
_FOLDER = os.path.dirname(torch.__file__) + os.sep
_BY_USERS = tuple(_FOLDER + name for name in ("library.py", f"_library{os.sep}"))  # they register for their callers
# PyTorch itself registers `prims` and `rngprims` with `torch.library`; these functions have other names in Python.
_OF_TORCH = frozenset({"prims::uniform", "prims::view_of_dtype", "prims::_unsafe_index_put_", "rngprims::philox_rand"})
_WITHOUT_WORK = frozenset({"Meta"})


def has_own_kernel(operation: OpOverload) -> bool:
    """Return whether Python code outside of PyTorch defined an operation, or replaced one of its kernels.

    >>> has_own_kernel(torch.ops.aten.relu.default)
    False
    """
    namespace, _, base = operation._schema.name.partition("::")
    if namespace in ("prims", "rngprims"):
        return operation._schema.name not in _OF_TORCH and not hasattr(torch._prims, base)
    return any(map(_is_own, _python_files(operation)))


def _python_files(operation: OpOverload) -> Iterator[str]:
    for line in torch._C._dispatch_dump(str(operation._name)).splitlines():
        found = _REGISTRATION.match(line)
        if found and found["key"] not in _WITHOUT_WORK and found["path"].endswith((".py", ">")):
            yield found["path"]


def _is_own(path: str) -> bool:
    return not path.startswith(_FOLDER) or path.startswith(_BY_USERS)
