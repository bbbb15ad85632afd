"""What a verification brings (joined with the database's side later)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A remark of the audit."""

    severity: str
    code: str
    text: str
