"""Verification: all runs of a submission again, in isolation, and what the audit noticed."""

from __future__ import annotations

import dataclasses
import math
import platform
import tempfile
import time
from pathlib import Path

import torch

import alma_env
from alma_env import Row
from leaderboard import audit
from leaderboard.claims import claimed_ledgers
from leaderboard.manifest import Manifest
from leaderboard.package import Package
from leaderboard.play import Played, play
from leaderboard.sandbox import ISOLATED, Limits
from leaderboard.verification import Finding, Progress, Verification, VerifiedRun

PROGRESS_SECONDS = 2.0


def verify(
    package: Package,
    manifest: Manifest,
    progress: Progress = lambda text: None,
    *,
    limits: Limits | None = None,
    allow_limited: bool = False,
) -> Verification:
    """Run a submission again on every seed of its manifest.

    The first run that fails ends it: there is no score of fewer seeds.

    Args:
        package: the submission's files.
        manifest: what they say of themselves.
        progress: told in a few words how far it is, every few seconds.
        limits: of the sandbox.
        allow_limited: whether limits alone will do where isolation is not to be had; a finding says so then.

    Raises:
        SandboxError: no sandbox can be made here.
        DataUnavailableError: the environment's data is not on this machine.
    """
    env = alma_env.make(manifest.env)
    runs: list[VerifiedRun] = []
    findings: list[Finding] = []
    levels: set[str] = set()
    used: list[str] = []
    with tempfile.TemporaryDirectory(prefix="alma-submission-") as place:
        folder = Path(place) / "submission"
        package.write(folder)
        for path in (Path(place), folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # the sandbox's user is another
        for number, seed in enumerate(manifest.seeds, 1):
            told = _Teller(progress, f"run {number} of {len(manifest.seeds)}, seed {seed}", env.ticks)
            played = play(env, folder, seed, limits, allow_limited=allow_limited, on_row=told)
            levels.add(played.level)
            used.append(f"seed {seed}: {_used(played)}")
            findings += [dataclasses.replace(finding, seed=seed) for finding in audit.audit(played)]
            if played.failure is not None:
                break
            runs.append(VerifiedRun(seed, played.ledger))
    claimed, _ = claimed_ledgers(package.files, manifest)
    findings += audit.claims(claimed, {run.seed: run.ledger for run in runs})
    if levels - {ISOLATED}:
        findings.append(
            Finding(
                "suspicious", "not-isolated", "this machine has no bubblewrap: limits alone were between code and data"
            )
        )
    if sorted(manifest.seeds) != list(range(len(manifest.seeds))):
        findings.append(
            Finding(
                "info",
                "seeds",
                f"the seeds are {', '.join(map(str, manifest.seeds))}, chosen by the authors; the first "
                f"{len(manifest.seeds)} from 0 on cannot have been chosen for their results",
            )
        )
    return Verification(tuple(runs), tuple(findings), _environment(levels) | {"used": "; ".join(used)[:500]})


def _used(played: Played) -> str:
    """CPU time and memory of the submitted code, for a reader to hold against its FLOPs."""
    known = [seen.cpu_seconds for seen in played.observed if seen.cpu_seconds is not None]
    words = [f"{math.fsum(known):.1f} CPU seconds after tick 0"] if known else []
    if played.memory_peak is not None:
        words.append(f"{played.memory_peak / 2**20:.0f} MiB")
    return ", ".join(words) or "not accounted on this machine"


class _Teller:
    """Tells the progress of a run every few seconds."""

    def __init__(self, progress: Progress, prefix: str, ticks: int) -> None:
        self._progress, self._prefix, self._ticks = progress, prefix, ticks
        self._told = -PROGRESS_SECONDS

    def __call__(self, row: Row) -> None:
        now = time.monotonic()
        if now - self._told >= PROGRESS_SECONDS or row.tick == self._ticks:
            self._told = now
            self._progress(f"{self._prefix}, tick {row.tick} of {self._ticks}")


def _environment(levels: set[str]) -> dict[str, str]:
    return {
        "alma-env": alma_env.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "isolation": ", ".join(sorted(levels)),
    }
