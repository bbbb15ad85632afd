"""Names that a package imports on first use: its public names, and its modules under their former names.

An ``__init__`` writes the public names once, as imports for type checkers, and calls `attach`::

    from typing import TYPE_CHECKING

    from alma_env import lazy_names

    if TYPE_CHECKING:
        from package.module import Thing as Thing  # "as Thing" marks a public name for type checkers

    __getattr__, __dir__, __all__ = lazy_names.attach(__name__, {"former_name": "room.new_name"})

`attach` reads the block from the module's source, so type checkers, ``__all__`` and the lazy imports (PEP 562) use the
same list and cannot disagree. A separate table of names would have to be kept equal to the block by hand.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

_new_names: dict[str, str] = {}  # former dotted name of a module -> its dotted name now


def attach(
    module: str, former_names: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a module whose public names are imported on first use.

    The submodules of a package are attributes, too, under their names and under their former names. `former_names` has
    the former name and the new name of each module that was moved, both relative to the package. The modules below a
    moved package are found under their former names, too. Importing a module by its former name returns the module
    itself, not a copy.
    """
    exports = _public_imports(module)
    if former_names:
        _new_names.update({f"{module}.{old}": f"{module}.{new}" for old, new in former_names.items()})
        if not any(isinstance(finder, _FormerNames) for finder in sys.meta_path):
            # First, because the files of a moved package would otherwise be loaded a second time under former names.
            sys.meta_path.insert(0, _FormerNames())

    def getattr_(name: str) -> Any:
        if name in exports:
            source, attribute = exports[name]
            value = getattr(importlib.import_module(source), attribute)
        elif (submodule := _submodule(module, name)) is not None:
            value = submodule
        else:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        setattr(sys.modules[module], name, value)
        return value

    def dir_() -> list[str]:
        return sorted({*vars(sys.modules[module]), *exports})

    return getattr_, dir_, sorted(exports)


def new_name(dotted: str) -> str:
    """Return a dotted name with the former name of a module at its beginning replaced by the new name.

    The records of runs name classes by the modules in which the classes were defined when the run was made.

    >>> import alma_env
    >>> new_name("alma_env.meter.Meter"), new_name("my_agent.Policy")
    ('alma_env.metering.Meter', 'my_agent.Policy')
    """
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        if module in _new_names:
            return ".".join([_new_names[module], *parts[length:]])
    return dotted


def _public_imports(module: str) -> dict[str, tuple[str, str]]:
    """Public name -> (module, attribute), from the ``if TYPE_CHECKING:`` blocks of a module's source."""
    spec = sys.modules[module].__spec__
    loader = None if spec is None else spec.loader
    source = loader.get_source(module) if isinstance(loader, importlib.abc.InspectLoader) else None
    if source is None:
        raise ImportError(f"{module}: the source file is missing; install the package with its .py files", name=module)
    return {
        alias.name: (statement.module, alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for alias in statement.names
        if alias.asname == alias.name
    }


def _submodule(package: str, name: str) -> ModuleType | None:
    if name.startswith("__") or not hasattr(sys.modules[package], "__path__"):
        return None
    full_name = f"{package}.{name}"
    try:
        return importlib.import_module(full_name)
    except ModuleNotFoundError as error:
        if error.name != full_name:
            raise
        return None


class _FormerNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules by their former names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return None if new_name(fullname) == fullname else importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(new_name(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has replaced the module's own spec by that of the former name.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
