"""Execute all runs of a submission again, in isolation, and audit them."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import alma_env
from alma_env import Ledger, Row
from leaderboard.sandbox.page_cache import reset_file_caches
from leaderboard.sandbox.sandbox import ISOLATED, Limits
from leaderboard.submission.claims import claimed_ledgers
from leaderboard.submission.manifest import Manifest
from leaderboard.submission.package import Package
from leaderboard.verification import audit
from leaderboard.verification.one_run import SandboxedRun, run_sandboxed
from leaderboard.verification.result import Finding, OnProgress, Verification, VerifiedRun

PROGRESS_SECONDS = 2.0


def verify(
    package: Package,
    manifest: Manifest,
    progress: OnProgress = lambda text: None,
    *,
    limits: Limits | None = None,
    allow_limited: bool = False,
) -> Verification:
    """Run a submission on every seed of its manifest.

    The first run that fails ends the verification, because a score needs all seeds.

    Args:
        package: the submission's files.
        manifest: the contents of its ``submission.toml``.
        progress: called every few seconds with the progress as a short text.
        limits: of each sandbox.
        allow_limited: whether to run with limits only if isolation is not available; the result then has a finding.

    Raises:
        SandboxError: isolation is not available, and ``allow_limited`` is False.
        DataUnavailableError: the environment's data is not on this machine.
    """
    env = alma_env.make(manifest.env)
    runs: list[VerifiedRun] = []
    comparable: dict[int, Ledger] = {}  # to the claims, by seed
    findings: list[Finding] = []
    levels: set[str] = set()
    used: list[str] = []
    with tempfile.TemporaryDirectory(prefix="alma-submission-") as parent:
        folder = Path(parent) / "submission"
        package.write(folder)
        for path in (Path(parent), folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # readable for the sandbox's user
        for number, seed in enumerate(manifest.seeds, 1):
            on_row = _progress_reporter(progress, f"run {number} of {len(manifest.seeds)}, seed {seed}", env.ticks)
            reset_file_caches()  # so that a run leaves nothing to the next run
            run = run_sandboxed(env, folder, seed, limits, allow_limited=allow_limited, on_row=on_row)
            levels.add(run.level)
            used.append(f"seed {seed}: {_used(run)}")
            findings += [dataclasses.replace(finding, seed=seed) for finding in audit.run_findings(run)]
            if run.failure is not None:
                break
            comparable[seed] = audit.authors_ledger(run)
            runs.append(VerifiedRun(seed, run.ledger, audit.cpu_seconds(run)))
    claimed, _ = claimed_ledgers(package.files, manifest)
    findings += audit.claim_findings(claimed, comparable)
    if levels - {ISOLATED}:
        text = "this machine has no bubblewrap, so the code could reach files and network; verify it again elsewhere"
        findings.append(Finding("suspicious", "not-isolated", text))
    if sorted(manifest.seeds) != list(range(len(manifest.seeds))):
        text = (
            f"the authors chose the seeds {', '.join(map(str, manifest.seeds))}, perhaps for their results; the "
            f"seeds 0 to {len(manifest.seeds) - 1} would leave no choice"
        )
        findings.append(Finding("info", "seeds", text))
    environment = {
        "alma-env": alma_env.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "isolation": ", ".join(sorted(levels)),
        "used": "; ".join(used),
    }
    return Verification(tuple(runs), tuple(findings), environment)


def _used(run: SandboxedRun) -> str:
    """Return CPU time and memory of the submitted code as text, for comparison with its FLOPs."""
    cpu = audit.cpu_seconds(run)
    used = [] if cpu is None else [f"{cpu:.1f} CPU seconds after tick 0"]
    if run.memory_peak is not None:
        used.append(f"{run.memory_peak / 2**20:.0f} MiB")
    return ", ".join(used) or "not counted on this machine"


def _progress_reporter(progress: OnProgress, prefix: str, ticks: int) -> Callable[[Row], None]:
    """Return a function of a row that reports the progress of a run every few seconds."""
    last = -PROGRESS_SECONDS

    def report(row: Row) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS or row.tick == ticks:
            last = now
            progress(f"{prefix}, tick {row.tick} of {ticks}")

    return report
