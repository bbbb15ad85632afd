"""The checkpoint file of a run: written in one step, and read with an error that names the file and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint

from agents.training.stage import LearnerError
from alma_env import Ledger, Row, files


def write(state: dict[str, Any], file: Path) -> None:
    """Write ``{"env", "agent", "record"}``, the state between two ticks; after an error the file is the one before.

    Raises:
        LearnerError: the state holds objects that `read` would refuse, such as arrays of NumPy.
        OSError: the file cannot be written, for example because the disk is full.
    """
    with files.replacing(file) as partial:
        try:
            with open(partial, "wb") as opened:
                torch.save(state, opened)
        except RuntimeError as error:  # closing the archive after a failed write fails, too, and hides the first error
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        if refused := get_unsafe_globals_in_checkpoint(partial):
            raise LearnerError(
                f"the state of learner or policy holds {', '.join(sorted(refused))}, and no checkpoint with it could "
                "be read; let state_dict return tensors, plain numbers and texts, and lists, tuples and dicts of them: "
                "for an array torch.from_numpy(array), for a number of NumPy its item()"
            )


def read(file: Path) -> dict[str, Any] | None:
    """Return the state that `write` wrote; None if there is no file.

    Raises:
        ValueError: the file is not a checkpoint, or it is cut or damaged.
    """
    if not file.exists():
        return None
    with open(file, "rb") as opened:
        try:
            if (damaged := ZipFile(opened).testzip()) is not None:  # PyTorch writes checksums, and does not read them
                raise BadZipFile(damaged)
            opened.seek(0)
            state: dict[str, Any] = torch.load(opened, map_location="cpu", weights_only=True)
            _ = state["agent"], rows_of(state)
        except Exception as error:  # of pickle, of zip archives, of PyTorch, of the operating system
            raise ValueError(
                f"{file}: not a checkpoint, or a damaged one ({type(error).__name__}); delete this file and run again: "
                "the run starts from tick 0, and must repeat the rows in its ledger"
            ) from error
    return state


def rows_of(state: dict[str, Any]) -> list[Row]:
    """Return the rows of the ledger in a checkpoint."""
    return Ledger.from_json(state["env"]["ledger"]).rows
