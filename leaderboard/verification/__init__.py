"""Verification: every run of a submission is executed again, in isolation, and audited."""

from leaderboard.verification.result import (
    SEVERITIES,
    Finding,
    OnProgress,
    Severity,
    Verification,
    VerifiedRun,
    Verifier,
)

Verify = Verifier  # the name in earlier documentation

__all__ = ["SEVERITIES", "Finding", "OnProgress", "Severity", "Verification", "VerifiedRun", "Verifier", "Verify"]
