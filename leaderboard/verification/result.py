"""The result of a verification, and the type of a function that verifies: the seam between queue and verification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from alma_env import Ledger

if TYPE_CHECKING:  # the sandboxes import this package, and need neither
    from leaderboard.submission.manifest import Manifest
    from leaderboard.submission.package import Package

Severity = Literal["info", "suspicious", "fatal"]
SEVERITIES: tuple[Severity, ...] = ("info", "suspicious", "fatal")
FAILED = "failed"  # code of the finding that a run did not finish, for which the machine may be at fault

# Gets the progress of a verification as a short text. Raises LeaseLostError when the result would not be used.
OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """An observation of the audit.

    Attributes:
        severity: ``info`` has no effect; ``suspicious`` keeps the result off the board until a maintainer has reviewed
            it; ``fatal`` rejects the submission.
        code: a short id of the kind of finding, such as ``claim``.
        text: value, rule and remedy, for authors and maintainers.
        seed: of the run, None for all runs.
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
    """A run of the submission, executed again.

    Attributes:
        seed: of the stream and of the agent.
        ledger: ticks 0 to B.
        cpu_seconds: CPU time of the submitted code after tick 0, as the machine counted it; None if it is not known.
    """

    seed: int
    ledger: Ledger
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    Attributes:
        runs: one per seed of the manifest; fewer only when a finding is fatal.
        findings: of the audit.
        environment: versions, machine and kind of isolation, as plain values: what the numbers depend on.
    """

    runs: tuple[VerifiedRun, ...]
    findings: tuple[Finding, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> Severity:
        """The highest severity among the findings; ``info`` if there are none."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index, default="info")


class Verifier(Protocol):
    """A function that executes a submission's runs again, such as `leaderboard.verification.verify.verify`.

    An agent that fails, or that looks like cheating, is a `Finding`. A `SubmissionError` means that the submission
    cannot be run at all. Every other exception is taken for a fault of the machine, and the verification is retried.
    """

    def __call__(self, package: Package, manifest: Manifest, progress: OnProgress, /) -> Verification:
        """Verify a submission.

        Args:
            package: the submission's files.
            manifest: the contents of its ``submission.toml``.
            progress: call it often; it raises `LeaseLostError` when the result would not be used.

        Raises:
            SubmissionError: the submission cannot be run.
        """
