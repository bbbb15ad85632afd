"""The folders of runs, and which runs are finished, from a few bytes of each folder.

A run folder below OUT/ENV also has ``spec.json``, the specification of the run. It identifies the run without creating
its agent.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, digest_of
from agents.runs import run_folder
from agents.training import distributed
from alma_env.files import replace_file

_ROW_BYTES = 1 << 16  # more than any row of a ledger
_LONGEST = 180  # bytes of a label in the name of a folder; file systems take 255 with the seed and the digest


def folder_of(out: Path, config: RunConfig) -> Path:
    """Return the folder of a run: its label, its seed, and the first part of the digest of its configuration.

    If two configurations have the same folder, the second run is refused, because ``config.json`` differs.
    """
    name = re.sub(r"[^\w.=-]", "", config.label.replace(", ", "-").replace("(", "-"))
    name = name.encode()[:_LONGEST].decode(errors="ignore")
    return out / config.env / f"{name}-seed{config.seed}-{digest_of(config.to_dict())[:8]}"


def write_spec(folder: Path, spec: RunSpec) -> None:
    """Write the specification into a run folder; a run with several ranks has other last bits and is not recorded."""
    if distributed.ranks() > 1:
        return
    folder.mkdir(parents=True, exist_ok=True)
    record = json.dumps({**spec.as_dict(), "digest": spec.digest()}, indent=2, sort_keys=True) + "\n"
    replace_file(folder / "spec.json", record, concurrent=True)


def note_spec(folder: Path, spec: RunSpec) -> None:
    """Write the specification of a finished run, for the next plan, if the folder can be written."""
    with suppress(OSError):
        write_spec(folder, spec)


def require_record(folder: Path, spec: RunSpec) -> None:
    """Raise ValueError if a run with ``record`` was started without it."""
    if spec.record:
        try:
            run_folder.require_recorded(folder)
        except ValueError as error:
            raise ValueError(f"{spec}: {error}") from error


def rows_in(folder: Path) -> int:
    """Return the number of rows in the ledger of a run, from its last line."""
    try:
        return int(_last_tick(folder / "ledger.jsonl")) + 1
    except (FileNotFoundError, IndexError, ValueError, TypeError, KeyError):
        return 0  # the process that continues the run reads all rows, and reports errors


def _last_tick(file: Path) -> Any:
    """Return the tick in the last complete line of a ledger or of stages."""
    with open(file, "rb") as opened:
        opened.seek(max(opened.seek(0, os.SEEK_END) - _ROW_BYTES, 0))
        lines = opened.read().split(b"\n")[:-1]  # a killed process can leave an incomplete last line
    return json.loads(lines[-1])["tick"]


def is_finished(folder: Path) -> bool:
    """Return whether the run in a folder reached the end of its stream, and no file is damaged at its end."""
    rows, stages = rows_in(folder), folder / "stages.jsonl"
    try:
        if stages.exists() and stages.stat().st_size:
            _last_tick(stages)
        return rows > 0 and bool(rows == json.loads((folder / "config.json").read_bytes())["protocol"]["ticks"] + 1)
    except (FileNotFoundError, IndexError, ValueError, TypeError, KeyError):
        return False


def finished_folders(out: Path, envs: Iterable[str]) -> dict[str, Path]:
    """Return the folders of the finished runs of some environments, by the digest of the specification."""
    return {digest: folder for digest, folder in _digests(out, envs) if is_finished(folder)}


def folders_with(out: Path, specs: Iterable[RunSpec]) -> list[Path]:
    """Return the folders with these specifications, finished or not, of any machine.

    Specifications that name files are left out, because a folder can hold a run of other files with the same names.
    """
    digests = {spec.digest(): spec.env for spec in specs if not spec.names_files}
    return [folder for digest, folder in _digests(out, digests.values()) if digest in digests]


def _digests(out: Path, envs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for env in sorted(set(envs)):
        for file in sorted((out / env).glob("*/spec.json")):
            try:
                yield str(json.loads(file.read_bytes())["digest"]), file.parent
            except (ValueError, TypeError, KeyError):
                continue  # the run is found by its configuration, and the file is written again
