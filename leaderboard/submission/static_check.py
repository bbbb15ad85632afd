"""Check a submission without executing or importing any of its code."""

from __future__ import annotations

import ast
import codecs
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from alma_env import Ledger
from leaderboard.errors import SubmissionError
from leaderboard.rules import UNVERIFIED
from leaderboard.submission import manifest as manifests
from leaderboard.submission import zip_archive
from leaderboard.submission.claims import claimed_ledgers
from leaderboard.submission.manifest import Manifest
from leaderboard.submission.package import Package
from leaderboard.text_safety import disguise, hidden_character, refused_character, shown

MANIFEST = "submission.toml"
AGENT = "agent.py"
ENTRY = "make_agent"
# Limits of one Python file and of all. A syntax tree is hundreds of times larger than its source, and the time to parse
# an f-string with many fields (f"{x}{x}…") grows with the square of its length.
MAXIMUM_SOURCE_BYTES = 128 * 1024
MAXIMUM_SOURCES_BYTES = 1024 * 1024
MAXIMUM_BRACES = 3_000
_DECLARATION = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)  # of PEP 263
# The packages of a verification, in addition to the standard library.
AVAILABLE = frozenset(
    ("agents", "alma_env", "gymnasium", "matplotlib", "numpy", "rich", "scipy", "sklearn", "torch", "torchvision")
)


@dataclass(frozen=True)
class Report:
    """The result of a check.

    Attributes:
        errors: rules that the submission breaks; the board refuses it.
        warnings: probable mistakes; the board accepts it.
        manifest: None if it cannot be read.
        package: None if its files cannot be read.
        claims: the claimed ledgers by seed; empty if there are none.
    """

    errors: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    manifest: Manifest | None = None
    package: Package | None = None
    claims: Mapping[int, Ledger] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the board accepts the submission."""
        return not self.errors


def check_path(path: Path) -> Report:
    """Check a folder or an archive."""
    try:
        package = zip_archive.read(path)
    except SubmissionError as error:
        return Report(error.problems)
    except OSError as error:
        return Report((f"{error.filename or path}: cannot be read ({error.strerror or error}); make it readable",))
    return check(package)


def check(package: Package) -> Report:
    """Check the files of a submission."""
    errors: list[str] = []
    # Python writes __pycache__ wherever an agent is tried.
    left_out = [name for name in package.left_out if "__pycache__" not in name.split("/")]
    notes = [f"{shown(name)}: hidden or compiled; it is left out" for name in left_out[:10]]
    manifest = None
    claims: dict[int, Ledger] = {}
    if MANIFEST not in package.files:
        errors.append(f"{MANIFEST}: missing; `alma-leaderboard init` writes one")
    else:
        try:
            manifest = manifests.parse(package.files[MANIFEST])
            errors += _unclear_texts(manifest)
        except SubmissionError as error:
            errors += error.problems
    if AGENT not in package.files:
        errors.append(f"{AGENT}: missing; write it with a function {ENTRY}(env), as `alma-leaderboard init` does")
    sources = {path: content for path, content in package.files.items() if path.endswith(".py")}
    size = sum(map(len, sources.values()))
    if size > MAXIMUM_SOURCES_BYTES:
        errors.append(f"{size} bytes of Python; the maximum is {MAXIMUM_SOURCES_BYTES}; move data to other files")
        sources = {}
    for path, content in sources.items():
        _check_source(path, content, package, errors, notes)
    if manifest is not None:
        if manifest.env in UNVERIFIED:
            errors.append(
                f"env = {manifest.env!r}: runs on text cannot be verified yet; choose an environment with images"
            )
        claims, problems = claimed_ledgers(package.files, manifest)
        errors += problems
    return Report(tuple(errors), tuple(dict.fromkeys(notes)), manifest, package, claims)


def _check_source(path: str, content: bytes, package: Package, errors: list[str], notes: list[str]) -> None:
    if len(content) > MAXIMUM_SOURCE_BYTES:
        rule = f"the maximum is {MAXIMUM_SOURCE_BYTES}; move data to other files"
        errors.append(f"{path}: {len(content)} bytes of Python; {rule}")
        return
    if (braces := content.count(b"{")) > MAXIMUM_BRACES:
        errors.append(f"{path}: {braces} braces {{; the maximum is {MAXIMUM_BRACES}; move data to other files")
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes; authors see these themselves
            text = content.decode("utf-8")
            encoding = _declared_encoding(content)
            tree = ast.parse(text, path)
    except UnicodeDecodeError as error:
        errors.append(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8")
        return
    except SyntaxError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        errors.append(f"{path}, line {error.lineno}: not valid Python {version} ({shown(error.msg)}); correct it")
        return
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        errors.append(f"{path}: cannot be parsed ({shown(str(error))}); simplify it")
        return
    if encoding is not None:  # Python would read another text than this check and a reviewer
        errors.append(f"{path}: declares the encoding {shown(encoding)}: must be UTF-8; remove the declaration")
    hidden = refused_character(text, allowed="\n\r\t\f") or hidden_character(text)
    if hidden is not None:
        errors.append(f"{path}: contains {hidden}, which can disguise code; write it as an escape, \\uXXXX")
    if path == AGENT:
        errors += _entry_problems(tree)
    own = {path.split("/")[0].removesuffix(".py") for path in package.files if path.endswith(".py")}
    for name in sorted(_imported(tree) - AVAILABLE - sys.stdlib_module_names - own):
        notes.append(f"{path}: imports {shown(name)}, which a verification does not have; add it to the submission")


def _declared_encoding(content: bytes) -> str | None:
    """Return the encoding that a file declares, unless it is UTF-8 or there is no declaration."""
    # A lone carriage return ends a line, too. The second line counts after an empty one and after a comment.
    lines = re.split(r"\r\n|\r|\n", content.decode(), maxsplit=2)[:2]
    for line in lines[: 1 + (not lines[0].split("#")[0].strip(" \t\f"))]:
        if (found := _DECLARATION.match(line)) is not None:
            try:
                return None if codecs.lookup(found[1]).name == "utf-8" else found[1]
            except LookupError:
                return found[1]
    return None


def _unclear_texts(manifest: Manifest) -> Iterator[str]:
    """Yield a problem for each name that can look like another one, and for each text with an invisible character.

    Older manifests are read without these rules.
    """
    for what, name in (("name", manifest.name), *(("authors", author) for author in manifest.authors)):
        found = disguise(name)
        if found is not None:
            yield f"{what} = {shown(name)}: contains {found}; write it with plain characters"
    settings = {f"hyperparameters.{key}": value for key, value in manifest.hyperparameters.items()}
    for what, text in ({"description": manifest.description, "contact": manifest.contact} | settings).items():
        found = hidden_character(text) if isinstance(text, str) else None
        if found is not None:
            yield f"{what} = {shown(text)}: contains {found}; remove it"


def _entry_problems(tree: ast.Module) -> list[str]:
    remedy = f"write `def {ENTRY}(env):` at the top level of {AGENT}, that returns an agent"
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found = [node for node in tree.body if isinstance(node, kinds) and node.name == ENTRY]
    if not found:
        return [f"{AGENT}: no function {ENTRY}, which a verification calls; {remedy}"]
    last = found[-1]  # the definition that counts
    if not isinstance(last, ast.FunctionDef):
        return [f"{AGENT}, line {last.lineno}: {ENTRY} is not a plain function; {remedy}"]
    arguments = last.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    if positional < 1 or required > 1 or any(default is None for default in arguments.kw_defaults):
        return [f"{AGENT}, line {last.lineno}: {ENTRY} must take the environment as its only argument; {remedy}"]
    return []


def _imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names
