"""Checks of files that are read: damage, and a change during a run."""

from __future__ import annotations

import hashlib
import tokenize
import zipfile
import zlib
from pathlib import Path

# What NumPy and zipfile raise for a file that is truncated, overwritten in part, or of another kind. RuntimeError is
# of an archive that says it is encrypted, or compressed in another way, and TokenError of a header of an array.
DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def damage(error: Exception) -> str:
    """Return what an exception of `DAMAGED` says of a file; NumPy takes each file of another kind for a pickle."""
    return "no archive of NumPy" if "pickle" in str(error) else f"{type(error).__name__}: {error}"


def digest_of(path: Path) -> str:
    """Return the digest of a file's bytes, which identifies a policy in the record of a run."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def require_unchanged(path: str, digest: str) -> None:
    """Raise ValueError if the file of a policy no longer has this digest; OSError if it cannot be read."""
    if (found := digest_of(Path(path))) != digest:
        raise ValueError(
            f"policy={path!r}: the file has changed since the start of the run (digest {found}, then {digest}); "
            "restore it, or begin a new run"
        )
