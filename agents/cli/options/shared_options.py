"""Options that several subcommands of ``alma`` have in common."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alma_env.registration import NAMESPACE

_EXECUTION = ("workers", "threads", "per_gpu", "ray", "fresh", "track")  # keywords of `agents.sweep`
DRY_RUN = "list the runs and which are finished; run none"


def stream_id(text: str) -> str:
    """Return the id of a stream without its namespace, so that both of its names are one in folders and titles."""
    return text.removeprefix(NAMESPACE)


def add_set(parser: argparse._ActionsContainer, summary: str) -> None:
    """Add ``--set``, which takes values by name."""
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=summary)


def require_settings(
    values: Mapping[str, Any], options: Mapping[str, str], refused: Mapping[str, str] | None = None
) -> None:
    """Raise ValueError if ``--set`` has a key that it must not give.

    Args:
        values: the value of each key.
        options: what to write instead of keys that have their own option, ``{}`` for the value.
        refused: reason and remedy for further keys.
    """
    refused = refused or {}
    for key, value in values.items():
        if key in options:
            raise ValueError(f"--set {key}={value}: {key} has its own option; write {options[key].format(value)}")
        if key in refused:
            raise ValueError(f"--set {key}={value}: {refused[key]}")


def add_folder_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of a command that writes run folders."""
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs"), help="folder of run folders, default runs/")
    add("--fresh", action="store_true", help="delete these runs' folders first, finished or not")
    trackers = "also report to experiment trackers: tensorboard, wandb, mlflow"
    add("--track", nargs="+", default=[], metavar="TRACKER", help=trackers)


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Add the options that `execution` reads: where and how the runs of a grid are computed."""
    execution = parser.add_argument_group("execution")
    add = execution.add_argument
    add("--workers", type=int, help="processes of this machine; default: as many as fill its cores")
    add("--threads", type=int, help="PyTorch threads of each process, default 1")
    add("--per-gpu", type=int, metavar="K", help="K runs at once on each GPU")
    add(
        "--ray",
        metavar="auto|ADDRESS|local[:CORES]",
        help="give the runs to a Ray cluster: the cluster of RAY_ADDRESS or of this machine (auto), the cluster at "
        "ADDRESS, or a cluster that is started for these runs (local)",
    )
    add_folder_options(execution)


def execution(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of execution as keywords of `agents.sweep`, also for a sweep that has nothing to run.

    Raises:
        ValueError: a number of processes is less than 1.
    """
    for name, without in (("workers", "fill the cores"), ("per_gpu", "assign no GPUs")):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} {value}: must be at least 1; leave it out to {without}")
    return {name: getattr(options, name) for name in _EXECUTION} | {"per_gpu": options.per_gpu or 0}


def add_push(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that puts files on the Hugging Face Hub."""
    place = "repository USER/NAME, which is created if it is missing, or a folder such as ./folder"
    parser.add_argument("--to", required=True, metavar="PLACE", help=place)
    parser.add_argument("--private", action="store_true", help="create the repository as private")
    replace = "replace what an earlier push put there; without it, a push replaces no file"
    parser.add_argument("--replace", action="store_true", help=replace)


def add_pull(parser: argparse.ArgumentParser, out: str) -> None:
    """Add the options of a command that fetches files from the Hugging Face Hub."""
    parser.add_argument("place", metavar="PLACE", help="repository USER/NAME, or a folder such as ./folder")
    parser.add_argument("--out", type=Path, required=True, help=out)
    parser.add_argument("--revision", help="branch, tag or commit of the repository; default: the newest")


def price_word(price: float) -> str:
    """Return a price as an option has it: short, and read back as the same number.

    >>> price_word(40.0), price_word(12.3456789)
    ('40', '12.3456789')
    """
    short = f"{price:g}"
    return short if float(short) == price else repr(float(price))


def stopped_file(out: Path) -> Path:
    """Return the file for what was learned before a failure or Ctrl-C, beside ``--out``: that may hold a better one."""
    return out.with_stem(f"{out.stem}-stopped")


def prepare_file(path: Path, suffix: str, rule: str) -> None:
    """Make the folder of the file ``--out``, before the work whose result it is to hold.

    Args:
        path: the file.
        suffix: how its name must end.
        rule: why, and the remedy, for the message.

    Raises:
        ValueError: the name ends otherwise, it is that of a folder, or no file can be created in its folder.
    """
    if path.suffix != suffix:
        raise ValueError(f"--out {path}: {rule}")
    if path.is_dir():
        raise ValueError(f"--out {path}: it is a folder, and must be a file; choose another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):  # permissions alone do not say whether a file can be created
            pass
    except OSError as error:
        raise ValueError(
            f"--out {path}: no file can be created in {path.parent} ({error.strerror}); choose a folder that can be "
            "written"
        ) from error
