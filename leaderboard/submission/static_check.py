"""What can be said about a submission without running it. Nothing of it is imported or executed here."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from alma_env import Ledger
from leaderboard import manifest as manifests
from leaderboard import package as packages
from leaderboard.claims import claimed_ledgers
from leaderboard.errors import SubmissionError
from leaderboard.manifest import Manifest
from leaderboard.package import Package
from leaderboard.rules import UNVERIFIED
from leaderboard.text_rules import refused_character, shown

MANIFEST = "submission.toml"
AGENT = "agent.py"
ENTRY = "make_agent"
# Of one Python file and of all: a syntax tree is hundreds of times as large, and the time that Python takes to parse a
# text with fields in it (f"{x}{x}…") grows with the square of its length.
MAXIMUM_SOURCE_BYTES = 128 * 1024
MAXIMUM_SOURCES_BYTES = 1024 * 1024
# What a verification has beside the standard library: this project and what it needs.
AVAILABLE = frozenset(
    ("agents", "alma_env", "gymnasium", "matplotlib", "numpy", "rich", "scipy", "sklearn", "torch", "torchvision")
)


@dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes:
        errors: what has to be mended; a submission with any is not taken.
        warnings: what will probably surprise its authors.
        manifest: the submission's manifest, None where it could not be read.
        package: its files, None where they could not be read.
        claims: the claimed ledgers by seed; empty where there are none.
    """

    errors: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    manifest: Manifest | None = None
    package: Package | None = None
    claims: Mapping[int, Ledger] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the submission can be sent."""
        return not self.errors


def check_path(path: Path) -> Report:
    """Check a folder or an archive.

    Raises:
        OSError: it cannot be read.
    """
    try:
        package = packages.read(path)
    except SubmissionError as error:
        return Report(error.problems)
    return check(package)


def check(package: Package) -> Report:
    """Check the files of a submission."""
    errors: list[str] = []
    notes = [f"{shown(name)}: hidden or compiled, so it is left out" for name in package.left_out[:10]]
    manifest = None
    claims: dict[int, Ledger] = {}
    if MANIFEST not in package.files:
        errors.append(f"{MANIFEST}: missing; `alma-leaderboard init` writes one")
    else:
        try:
            manifest = manifests.parse(package.files[MANIFEST])
        except SubmissionError as error:
            errors += error.problems
    if AGENT not in package.files:
        errors.append(f"{AGENT}: missing; write one with a function {ENTRY}(env), as `alma-leaderboard init` does")
    sources = {path: content for path, content in package.files.items() if path.endswith(".py")}
    size = sum(map(len, sources.values()))
    if size > MAXIMUM_SOURCES_BYTES:
        errors.append(f"{size} bytes of Python; at most {MAXIMUM_SOURCES_BYTES} are read; keep data in other files")
        sources = {}
    for path, content in sources.items():
        _check_source(path, content, package, errors, notes)
    if manifest is not None and manifest.env in UNVERIFIED:
        errors.append(f"env = {manifest.env!r}: runs on text are not verified yet; send an agent for images")
    if manifest is not None:
        claims, problems = claimed_ledgers(package.files, manifest)
        errors += problems
    return Report(tuple(errors), tuple(dict.fromkeys(notes)), manifest, package, claims)


def _check_source(path: str, content: bytes, package: Package, errors: list[str], notes: list[str]) -> None:
    if len(content) > MAXIMUM_SOURCE_BYTES:
        errors.append(
            f"{path}: {len(content)} bytes of Python; at most {MAXIMUM_SOURCE_BYTES} are read; keep data in other files"
        )
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in texts, which are the authors' business
            text = content.decode("utf-8")
            tree = ast.parse(text, path)
    except UnicodeDecodeError as error:
        errors.append(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8")
        return
    except SyntaxError as error:
        errors.append(f"{path}, line {error.lineno}: not Python {_python()} ({shown(error.msg)}); mend it")
        return
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        errors.append(f"{path}: cannot be parsed ({shown(str(error))}); simplify it")
        return
    hidden = refused_character(text, allowed="\n\r\t\f")
    if hidden is not None:
        errors.append(f"{path}: {hidden}, which makes code look like other code; write it as an escape, \\uXXXX")
    if path == AGENT:
        errors += _entry_problems(tree)
    for name in sorted(_imported(tree) - AVAILABLE - sys.stdlib_module_names - _own_modules(package)):
        notes.append(f"{path}: imports {shown(name)}, which a verification has only if it is part of the submission")


def _entry_problems(tree: ast.Module) -> list[str]:
    remedy = f"write `def {ENTRY}(env):` at the top level of {AGENT}, returning an agent"
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == ENTRY
    ]
    if not found:
        return [f"{AGENT}: no function {ENTRY}, which the verification calls; {remedy}"]
    last = found[-1]  # which is what the name means in the end
    if not isinstance(last, ast.FunctionDef):
        return [f"{AGENT}, line {last.lineno}: {ENTRY} is no plain function; {remedy}"]
    arguments = last.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    if positional < 1 or required > 1 or any(default is None for default in arguments.kw_defaults):
        return [f"{AGENT}, line {last.lineno}: {ENTRY} cannot be called with the environment alone; {remedy}"]
    return []


def _imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def _own_modules(package: Package) -> set[str]:
    return {path.split("/")[0].removesuffix(".py") for path in package.files if path.endswith(".py")}


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
