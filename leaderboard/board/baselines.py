"""The project's own agents as submissions, with shipped results, so that every board starts with baselines.

The results in ``baselines.jsonl.xz`` come from the same verification as those of every submission; each names its
machine and versions. Their CPU seconds are rounded to 0.1 s, as the verification printed them. A result belongs to
exactly the files that were verified. A baseline whose files have changed is queued and verified like any other
submission.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from alma_env import Ledger
from leaderboard.accounts.names import BASELINES_ACCOUNT
from leaderboard.board import queue
from leaderboard.board.details import details, ledgers
from leaderboard.board.submissions import submit
from leaderboard.database.engine import reading
from leaderboard.database.tables import Result, Submission
from leaderboard.rules import RULES_VERSION
from leaderboard.submission.manifest import Manifest
from leaderboard.submission.package import Package
from leaderboard.submission.static_check import AGENT, MANIFEST
from leaderboard.verification.result import Finding, Verification, VerifiedRun

RESULTS = "baselines.jsonl.xz"
NAMES = {
    "sm": "Single model",
    "ens": "Ensemble",
    "umix": "Uniform mixture",
    "gens": "Growing ensemble",
    "gmoe": "Growing mixture of experts",
}
_LABELS = {"width": "h = {}", "epochs": "{} epochs", "replay": "replay"}


@dataclass(frozen=True)
class Baseline:
    """One of the paper's agents with its hyper-parameters.

    Attributes:
        wait: waiting time in mega-batches; None for doubling waits.
        settings: other keywords of `agents.make`; the recipe gives the missing ones.
        note: a sentence about the settings.
    """

    env: str
    method: str
    seeds: tuple[int, ...]
    wait: int | None
    settings: Mapping[str, bool | int] = field(default_factory=dict)
    note: str = ""

    def manifest(self) -> Manifest:
        """Return the manifest of the submission."""
        policy: dict[str, Any] = {"policy": "doubling"} if self.wait is None else {"wait": self.wait}
        waits = "doubling waits" if self.wait is None else f"w = {self.wait}"
        labels = [NAMES[self.method], waits, *(_LABELS[key].format(value) for key, value in self.settings.items())]
        method = NAMES[self.method].lower()
        return Manifest(
            name=", ".join(labels),
            authors=("alma-env",),
            env=self.env,
            seeds=self.seeds,
            method=self.method,
            description=f"Baseline: the {method} of Caccia et al., arXiv 2106.09563. {self.note}".strip(),
            hyperparameters=policy | dict(self.settings),
            links={"paper": "https://arxiv.org/abs/2106.09563"},
        )

    def package(self) -> Package:
        """Return the files of the submission."""
        when = "policy=agents.Doubling()" if self.wait is None else f"wait={self.wait}"
        keywords = [when, *(f"{key}={value}" for key, value in self.settings.items()), "seed=env.run_seed"]
        agent = (
            f'"""{self.manifest().name}: a baseline of alma-env."""\n\nimport agents\n\n\ndef make_agent(env):\n'
            f'    """The agent of one run."""\n    return agents.make("{self.method}", env, {", ".join(keywords)})\n'
        )
        return Package({AGENT: agent.encode(), MANIFEST: self.manifest().to_toml().encode()})


def baselines() -> list[Baseline]:
    """Return all baselines: five methods for MLPs, with waiting times, replay and doubling, on Digits and MNIST."""
    digits, five = "Digits-ALMA-v0", (0, 1, 2, 3, 4)
    found = [Baseline(digits, method, five, wait) for method in NAMES for wait in (1, 5)]
    found.append(Baseline(digits, "sm", five, 5, {"replay": True}))
    found += [Baseline(digits, "sm", five, wait) for wait in (20, None)]
    mnist, note = "MNIST-ALMA-v0", "A short setting: 10 epochs per stage where the paper has 100."
    short = {"width": 64, "epochs": 10}
    chosen: list[tuple[str, int | None]] = [(method, 50) for method in NAMES]
    chosen += [("sm", 10), ("ens", 10), ("umix", 10), ("sm", None)]
    return found + [Baseline(mnist, method, (0, 1, 2), wait, short, note) for method, wait in chosen]


def install(engine: Engine, chosen: Iterable[Baseline] | None = None, results: bytes | None = None) -> tuple[int, int]:
    """Put baselines (by default all) on a board. Baselines that are already on it, or in its queue, do not change.

    Args:
        engine: engine of the board's database.
        chosen: baselines to install; None for all.
        results: results that `record` wrote, empty for none; None for the shipped results.

    Returns:
        The number of baselines whose result was written, and the number of baselines that were queued without one.

    Raises:
        SubmissionError: the account of the baselines is disabled, or another account has a name that looks like it.
    """
    results = shipped() if results is None else results
    records = map(json.loads, lzma.decompress(results).splitlines() if results else ())
    known = {(record["digest"], record["rules_version"]): record for record in records}
    packages = [baseline.package() for baseline in (baselines() if chosen is None else chosen)]
    same_files = Submission.digest.in_([package.digest for package in packages])
    with reading(engine) as session:  # skip installed baselines, so that a restarted server writes nothing
        known_here = select(Submission.digest).where(same_files, Submission.rules_version == RULES_VERSION)
        installed = set(session.scalars(known_here))
    adopted = queued = 0
    for package in packages:
        if package.digest in installed:
            continue
        made = submit(engine, package, BASELINES_ACCOUNT)
        if not made.new:  # another process was faster
            continue
        record = known.get((package.digest, RULES_VERSION))
        if record is None:
            queued += 1
        else:
            moment = datetime.fromisoformat(record["verified_at"])
            adopted += queue.adopt(engine, made.id, _verification(record), record["worker"], moment)
    return adopted, queued


def shipped() -> bytes:
    """Return the content of ``baselines.jsonl.xz``."""
    file = resources.files("leaderboard.board") / RESULTS
    return file.read_bytes() if file.is_file() else b""


def record(engine: Engine, file: Path) -> int:
    """Write a board's published results of the baselines into a file, and return their number."""
    digests = [baseline.package().digest for baseline in baselines()]
    with reading(engine) as session:
        ids = session.scalars(
            select(Submission.id)
            .join(Result)
            .where(Submission.digest.in_(digests), Submission.rules_version == RULES_VERSION, Result.published)
            .order_by(Submission.id)
        ).all()
    lines = []
    for number in ids:
        found = details(engine, number)
        assert found.verified_at is not None
        values = {
            "digest": found.digest,
            "rules_version": found.rules_version,
            "worker": found.worker,
            "verified_at": found.verified_at.isoformat(),
            "environment": found.environment,
            "findings": [asdict(finding) for finding in found.findings],
            "cpu_seconds": {run.seed: run.cpu_seconds for run in found.runs},
            "ledgers": {seed: ledger.to_json() for seed, ledger in ledgers(engine, number).items()},
        }
        lines.append(json.dumps(values, allow_nan=False))
    file.write_bytes(lzma.compress("\n".join(lines).encode()))
    return len(lines)


def _verification(record: Mapping[str, Any]) -> Verification:
    cpu_seconds = record.get("cpu_seconds", {})  # records of before lack it
    runs = [
        VerifiedRun(int(seed), Ledger.from_json(ledger), cpu_seconds.get(seed))
        for seed, ledger in record["ledgers"].items()
    ]
    findings = [Finding(**finding) for finding in record["findings"]]
    return Verification(tuple(runs), tuple(findings), record["environment"])
