"""The entry points of the distribution alma-env, and packages of other people that have the names of its packages.

A folder or file of the user, or another distribution, can come first on Python's path under the name of a package of
this distribution. Imports then find the other package. This module finds out, and names the file and the remedy.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

DISTRIBUTION = "alma-env"
COMMANDS = "alma_env.commands"  # group of the console scripts' functions


class HiddenPackageError(ImportError):
    """Another package has the name of a package of alma-env, and comes first on Python's path."""


def of_group(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of this distribution in a group; none if the distribution is not installed."""
    with suppress(importlib.metadata.PackageNotFoundError):  # the packages are on the path, but not installed
        return importlib.metadata.distribution(DISTRIBUTION).entry_points.select(group=group)
    return ()


def hidden(package: str) -> str | None:
    """Return the reason and the remedy if Python finds another package of this name; None if it finds ours, or none.

    All packages of this distribution lie in one folder.
    """
    ours = Path(__file__).resolve().parent.parent / package
    with suppress(ValueError):  # the package has no specification, such as __main__
        spec = importlib.util.find_spec(package)
        if spec is None or not ours.is_dir():
            return None
        folders = [Path(folder).resolve() for folder in spec.submodule_search_locations or ()]
        if folders[:1] == [ours]:
            return None
        file = spec.origin or str(folders[0])  # a folder without __init__.py has no file
        return (
            f"{file}: this package named {package!r} comes first on Python's path and hides {ours}, which belongs to "
            f"alma-env; rename {file.removesuffix('/__init__.py')}, take its folder from PYTHONPATH, or use a virtual "
            "environment without the distribution that it belongs to (such as openai-agents)"
        )
    return None


def load(entry_point: EntryPoint) -> Any:
    """Return the object that an entry point names.

    Raises:
        HiddenPackageError: another package has the name of the entry point's package.
        ModuleNotFoundError: the package is not there.
    """
    reason = hidden(entry_point.module.partition(".")[0])
    if reason is not None:
        raise HiddenPackageError(reason)
    return entry_point.load()


def alma() -> int:
    """Carry out the console script ``alma``."""
    return _run("alma")


def alma_leaderboard() -> int:
    """Carry out the console script ``alma-leaderboard``."""
    return _run("alma-leaderboard")


def _run(name: str) -> int:
    """Call the function that the group `COMMANDS` has under a name; say which package hides ours, if one does."""
    try:
        (command,) = [entry_point for entry_point in of_group(COMMANDS) if entry_point.name == name]
        status: int = load(command)()
    except ImportError as error:
        imported = (error.name or "").partition(".")[0]
        reason = str(error) if isinstance(error, HiddenPackageError) else imported and hidden(imported)
        if not reason:
            raise
        print(f"{name}: {reason}", file=sys.stderr)
        return 2
    return status


def refusal(reason: str) -> Callable[..., Any]:
    """Return a function that raises HiddenPackageError: the constructor of what the hidden package would construct."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise HiddenPackageError(reason)

    return refuse


def load_from_own_file(entry_point: EntryPoint) -> Any:
    """Return the function that an entry point names, from the file of a package that is hidden.

    The module is not entered into ``sys.modules``. It must import nothing from its own package.
    """
    file = Path(__file__).resolve().parent.parent.joinpath(*entry_point.module.split(".")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(f"hidden {entry_point.module}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, entry_point.attr)
