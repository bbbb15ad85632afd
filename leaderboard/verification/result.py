"""What a verification gives, and what it is: the seam between the queue and whatever runs a submission."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from alma_env import Ledger
from leaderboard.manifest import Manifest
from leaderboard.package import Package

Severity = Literal["info", "suspicious", "fatal"]
SEVERITIES: tuple[Severity, ...] = ("info", "suspicious", "fatal")


@dataclass(frozen=True)
class Finding:
    """What an audit noticed.

    Attributes:
        severity: ``info`` is said and no more; ``suspicious`` keeps the result off the board until a maintainer has
            looked at it; ``fatal`` rejects the submission.
        code: a short id of the kind of finding, such as ``claim-differs``.
        text: value, rule and remedy, for authors and maintainers.
        seed: of the run that it is about, None for all of them.
    """

    severity: Severity
    code: str
    text: str
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity={self.severity!r}: must be one of {', '.join(SEVERITIES)}")


@dataclass(frozen=True)
class VerifiedRun:
    """One run of the submission, done again.

    Attributes:
        seed: of the stream.
        ledger: its rows, ticks 0 to B.
    """

    seed: int
    ledger: Ledger


@dataclass(frozen=True)
class Verification:
    """The result of running a submission again.

    Attributes:
        runs: one per seed of the manifest; fewer only beside a fatal finding.
        findings: what the audit noticed.
        environment: versions, machine and kind of isolation, as plain values: what the numbers depend on.
    """

    runs: tuple[VerifiedRun, ...]
    findings: tuple[Finding, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> Severity:
        """The gravest severity among the findings; ``info`` where there is none."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index, default="info")


# Told in a few words how far a verification is. It raises LeaseLostError where going on is of no use.
Progress = Callable[[str], None]

# Runs a submission again. What it raises is an accident of the machine and is tried again, but for a SubmissionError,
# which says that the submission itself cannot be run. What is wrong with an agent that does run is a fatal Finding.
Verify = Callable[[Package, Manifest, Progress], Verification]
