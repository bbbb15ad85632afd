"""The project's own agents as submissions, and their verified results, which every board has from the start.

The results in ``baselines.jsonl.xz`` came out of the verification that every submission goes through, on the machine
and with the versions that each names. They stand for exactly the files that were run: where the package of a baseline
is another by now, it is queued and verified like anyone's.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from alma_env import Ledger
from leaderboard import queue
from leaderboard.check import AGENT, MANIFEST
from leaderboard.database import Result, Submission
from leaderboard.details import details, ledgers
from leaderboard.engine import reading
from leaderboard.manifest import Manifest
from leaderboard.package import Package
from leaderboard.rules import RULES_VERSION
from leaderboard.submissions import submit
from leaderboard.verification import Finding, Verification, VerifiedRun

ACCOUNT = "alma-env"
RESULTS = "baselines.jsonl.xz"
NAMES = {
    "sm": "Single model",
    "ens": "Ensemble",
    "umix": "Uniform mixture",
    "gens": "Growing ensemble",
    "gmoe": "Growing mixture of experts",
}
_WORDS = {"width": "h = {}", "epochs": "{} epochs", "replay": "replay"}


@dataclass(frozen=True)
class Baseline:
    """One of the paper's agents with its settings.

    Attributes:
        env: id of the environment.
        method: id of the method.
        seeds: of the runs.
        wait: waiting time in mega-batches; None for doubling waits.
        settings: other keywords of `agents.make`; the recipe's where not given.
        note: a sentence about the settings.
    """

    env: str
    method: str
    seeds: tuple[int, ...]
    wait: int | None
    settings: Mapping[str, bool | int] = field(default_factory=dict)
    note: str = ""

    def manifest(self) -> Manifest:
        """What the submission says of itself."""
        policy: dict[str, Any] = {"policy": "doubling"} if self.wait is None else {"wait": self.wait}
        waits = "doubling waits" if self.wait is None else f"w = {self.wait}"
        words = [NAMES[self.method], waits, *(_WORDS[key].format(value) for key, value in self.settings.items())]
        method = NAMES[self.method].lower()
        return Manifest(
            name=", ".join(words),
            authors=("alma-env",),
            env=self.env,
            seeds=self.seeds,
            method=self.method,
            description=f"Baseline: the {method} of Caccia et al., arXiv 2106.09563. {self.note}".strip(),
            hyperparameters=policy | dict(self.settings),
            links={"paper": "https://arxiv.org/abs/2106.09563"},
        )

    def package(self) -> Package:
        """The submission's files."""
        when = "policy=agents.Doubling()" if self.wait is None else f"wait={self.wait}"
        words = [when, *(f"{key}={value}" for key, value in self.settings.items()), "seed=env.run_seed"]
        agent = (
            f'"""{self.manifest().name}: a baseline of alma-env."""\n\nimport agents\n\n\ndef make_agent(env):\n'
            f'    """The agent of one run."""\n    return agents.make("{self.method}", env, {", ".join(words)})\n'
        )
        return Package({AGENT: agent.encode(), MANIFEST: self.manifest().to_toml().encode()})


def baselines() -> list[Baseline]:
    """All of them: the five methods for MLPs, waiting times, replay and doubling on the digits and on MNIST."""
    digits = "Digits-ALMA-v0"
    found = [Baseline(digits, method, (0, 1, 2, 3, 4), wait) for method in NAMES for wait in (1, 5)]
    found += [
        Baseline(digits, "sm", (0, 1, 2, 3, 4), 5, {"replay": True}),
        Baseline(digits, "sm", (0, 1, 2, 3, 4), 20),
        Baseline(digits, "sm", (0, 1, 2, 3, 4), None),
    ]
    mnist, note = "MNIST-ALMA-v0", "A short setting: 10 epochs per stage where the paper has 100."
    short = {"width": 64, "epochs": 10}
    found += [
        Baseline(mnist, method, (0, 1, 2), wait, short, note)
        for method, wait in [(method, 50) for method in NAMES] + [(method, 10) for method in ("sm", "ens", "umix")]
    ]
    found.append(Baseline(mnist, "sm", (0, 1, 2), None, short, note))
    return found


def install(engine: Engine, chosen: Iterable[Baseline] | None = None, results: bytes | None = None) -> tuple[int, int]:
    """Put the baselines on a board. Those that are there already stay as they are.

    Args:
        engine: of the board's database.
        chosen: which; all where not given.
        results: what `record` wrote, or nothing at all; what is shipped where not given.

    Returns:
        how many got their shipped result now, and how many were queued for want of one.
    """
    records = _records(shipped() if results is None else results)
    known = {(record["digest"], record["rules_version"]): record for record in records}
    packages = [baseline.package() for baseline in (baselines() if chosen is None else chosen)]
    with reading(engine) as session:  # a server that is started again has nothing to write
        there = set(
            session.scalars(
                select(Submission.digest).where(
                    Submission.digest.in_([package.digest for package in packages]),
                    Submission.rules_version == RULES_VERSION,
                    Submission.state != "queued",
                )
            )
        )
    adopted = queued = 0
    for package in packages:
        if package.digest in there:
            continue
        made = submit(engine, package, ACCOUNT)
        record = known.get((package.digest, RULES_VERSION))
        if record is None:
            queued += made.new
        else:
            moment = datetime.fromisoformat(record["verified_at"])
            adopted += queue.adopt(engine, made.id, _verification(record), record["worker"], moment)
    return adopted, queued


def shipped() -> bytes:
    """The content of ``baselines.jsonl.xz``."""
    file = resources.files("leaderboard") / RESULTS
    return file.read_bytes() if file.is_file() else b""


def _records(results: bytes) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, lzma.decompress(results).splitlines() if results else ())


def record(engine: Engine, file: Path) -> int:
    """Write the results that a board has of the baselines, to be shipped; how many there are.

    Only what the audit found nothing against is written.
    """
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
            "ledgers": {seed: ledger.to_json() for seed, ledger in ledgers(engine, number).items()},
        }
        lines.append(json.dumps(values, allow_nan=False))
    file.write_bytes(lzma.compress("\n".join(lines).encode()))
    return len(lines)


def _verification(record: Mapping[str, Any]) -> Verification:
    runs = [VerifiedRun(int(seed), Ledger.from_json(ledger)) for seed, ledger in record["ledgers"].items()]
    findings = [Finding(**finding) for finding in record["findings"]]
    return Verification(tuple(runs), tuple(findings), record["environment"])
