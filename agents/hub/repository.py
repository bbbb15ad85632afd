"""Repositories of the Hugging Face Hub, and folders with the same files: put files there, and fetch a file."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from alma_env.errors import MissingPackageError, how_to_install
from alma_env.files import replacing

Kind = Literal["model", "dataset"]
CARD = "README.md"
_IN_EVERY_CARD = "of alma-env, a benchmark for anytime learning at macroscale (arXiv 2106.09563)"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def push(place: str, kind: Kind, write: Callable[[Path], None], *, private: bool = False, replace: bool = False) -> str:
    """Write files and put them into a repository or folder; return where they can be seen.

    Args:
        place: a repository ``USER/NAME``, or a folder that begins with ``.``, ``/`` or ``~``.
        kind: the kind of repository; without effect on a folder.
        write: writes the files into the folder that it is called with.
        private: create the repository as private; without effect on a folder and on a repository that exists.
        replace: replace files of the same names. A README.md of the user in a folder is never replaced.

    Raises:
        ValueError: the place is neither, it has files that the push would replace, or the Hub refuses (no login, no
            permission, no network).
        MissingPackageError: `huggingface_hub` is not installed.
    """
    folder = folder_of(place)
    if folder is not None:
        _require_no_other_card(place, folder)
    hub = None if folder is not None else _hub(place)  # before anything is written
    with TemporaryDirectory() as built:
        write(Path(built))
        files = sorted(Path(built).iterdir())
        if folder is not None:
            if not replace:
                _require_none(place, [file.name for file in files if (folder / file.name).exists()])
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                with replacing(folder / file.name) as partial:
                    shutil.copyfile(file, partial)
            return str(folder)
        assert hub is not None
        with _errors_in_one_line(place):
            api = hub.HfApi()
            api.create_repo(place, repo_type=kind, private=private, exist_ok=True)
            there = [] if replace else api.list_repo_files(place, repo_type=kind)
        _require_none(place, [file.name for file in files if file.name in there])
        with _errors_in_one_line(place):
            done = api.upload_folder(
                repo_id=place, repo_type=kind, folder_path=built, commit_message="Written by alma-env"
            )
    return str(done.commit_url)


def pull(
    place: str,
    kind: Kind,
    name: str,
    file: Path,
    *,
    revision: str | None = None,
    check: Callable[[Path], object] = lambda copy: None,
) -> None:
    """Copy one file of a repository or folder; an existing file is replaced.

    Args:
        place: as in `push`.
        kind: the kind of repository.
        name: name of the file in the repository.
        file: where to write the copy.
        revision: branch, tag or commit of the repository; None for the newest.
        check: called with the file that was found; if it raises an error, an existing file is kept.

    Raises:
        ValueError: the file is not there, a folder has no revisions, or as `push`.
        MissingPackageError: `huggingface_hub` is not installed.
    """
    folder = folder_of(place)
    if folder is None:
        hub = _hub(place)
        with _errors_in_one_line(place):
            found = Path(hub.hf_hub_download(place, name, repo_type=kind, revision=revision))
    else:
        found = folder / name
        if revision is not None:
            raise ValueError(f"--revision {revision}: the folder {place} has no revisions; leave it out")
        if not found.is_file():
            raise ValueError(f"{found}: no such file; give a folder that `push` wrote")
    check(found)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as partial:
        shutil.copyfile(found, partial)


def folder_of(place: str) -> Path | None:
    """The folder that a place names; None if it names a repository."""
    if place.startswith((".", "/", "~")):
        return Path(place).expanduser()
    if not _REPOSITORY.fullmatch(place):
        raise ValueError(f"{place}: neither a repository USER/NAME nor a folder; begin a folder with ./")
    return None


def _require_no_other_card(place: str, folder: Path) -> None:
    """Raise ValueError if the card would replace a README.md that no earlier push wrote."""
    file = folder / CARD
    if file.exists() and _IN_EVERY_CARD not in " ".join(file.read_text("utf-8", errors="replace").split()):
        raise ValueError(
            f"{file}: not a card of alma-env, and a push replaces the {CARD} of its folder; give a folder of its own, "
            f"such as --to {place.rstrip('/')}/published"
        )


def _require_none(place: str, names: Sequence[str]) -> None:
    """Raise ValueError if the push would replace files of these names."""
    if names:
        raise ValueError(
            f"{place}: it has {', '.join(names)}, and a push replaces no file; give another place, or --replace to "
            "replace what is there"
        )


def _hub(place: str) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError(
            f"{place}: the package huggingface-hub is missing; {how_to_install('hub')}"
        ) from error
    return huggingface_hub


@contextmanager
def _errors_in_one_line(place: str) -> Iterator[None]:
    """Turn an error of the client into one line with the remedy.

    The client has no common type for its errors: those of the network come from its HTTP library.
    """
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(
            f"{place}: {reason}; check the name and the network, and log in with `hf auth login`"
        ) from error
