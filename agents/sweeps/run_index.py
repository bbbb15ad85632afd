"""Where a run lies, and which runs are finished, told from a few bytes of each folder.

Beside its other files a folder below OUT/ENV has ``spec.json``: what the run was asked to be, by which it is found
again without making its agent.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agents import parallel, report, run_folder
from agents.experiments.spec import RunSpec, digest_of

_LINE = 1 << 16  # bytes; a ledger's row has far fewer


def run_name(config: dict[str, Any]) -> str:
    """Folder name of a run: readable, and its configuration's digest, short: of two that share it one is refused."""
    name = re.sub(r"[^\w.=-]", "", report.label(config).replace(", ", "-").replace("(", "-"))
    return f"{name}-seed{config['seed']}-{digest_of(config)[:8]}"


def folder_of(out: Path, config: dict[str, Any]) -> Path:
    """The folder of a run with this configuration, which is ``agents.runs.describe``'s."""
    return out / str(config["env"]) / run_name(config)


def remember(folder: Path, spec: RunSpec) -> None:
    """Write down which run is in a folder. A run of several ranks has other last bits, and is not found so."""
    if parallel.ranks() > 1:
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"spec.json.{os.getpid()}.partial"
    temporary.write_text(json.dumps({**spec.as_dict(), "digest": spec.digest()}, indent=2, sort_keys=True) + "\n")
    os.replace(temporary, folder / "spec.json")


def require_record(folder: Path, spec: RunSpec) -> None:
    """Raises ValueError where a run is to be recorded whose trainings so far were not."""
    if not spec.record or not (folder / "stages.jsonl").exists():
        return
    if any(training.held_out_error is None for training in run_folder.read_stages(folder)):
        raise ValueError(
            f"{spec}: {folder} was begun without record, and what its trainings brought on the validation parts is not "
            "known; make it again with --fresh, or choose another --out"
        )


def rows_in(folder: Path) -> int:
    """How many ticks of a run have been answered, tick 0 included; by the last line of its ledger alone."""
    try:
        with open(folder / "ledger.jsonl", "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LINE, 0))
            lines = file.read().split(b"\n")[:-1]  # what follows the last line break was cut short by a kill
        return int(json.loads(lines[-1])["tick"]) + 1
    except (FileNotFoundError, IndexError, ValueError, TypeError, KeyError):
        return 0  # whoever goes on with the run reads all of it, and says what is wrong


def is_finished(folder: Path) -> bool:
    """Whether the run in a folder came to the end of its stream."""
    answered = rows_in(folder)
    if answered == 0:
        return False
    try:
        ticks = json.loads((folder / "config.json").read_bytes())["protocol"]["ticks"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return False
    return bool(answered == ticks + 1)


def finished_below(out: Path, envs: Iterable[str]) -> dict[str, Path]:
    """Folders of finished runs of these environments, by the digest of what was asked for."""
    return {digest: folder for digest, folder in _asked_for_below(out, envs) if is_finished(folder)}


def asked_for(out: Path, specs: Iterable[RunSpec]) -> list[Path]:
    """The folders of these runs, finished or not, on whatever machine they were made.

    Runs that name files are left out: what is in a folder of the same words may be of other files.
    """
    digests = {spec.digest(): spec.env for spec in specs if not spec.names_files}
    return [folder for digest, folder in _asked_for_below(out, digests.values()) if digest in digests]


def _asked_for_below(out: Path, envs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for env in sorted(set(envs)):
        for file in sorted((out / env).glob("*/spec.json")):
            try:
                yield str(json.loads(file.read_bytes())["digest"]), file.parent
            except (ValueError, TypeError, KeyError):
                continue  # it is found by its configuration, and written anew
