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

__all__ = ["SEVERITIES", "Finding", "OnProgress", "Severity", "Verification", "VerifiedRun", "Verifier"]
