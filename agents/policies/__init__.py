"""When to wait, train, replay and grow."""

from agents.policies.progress import Decision, Policy, Progress, StatefulPolicy
from agents.policies.records import NO_DESCRIPTION, Recorded, canonical, describe, policy_record
from agents.policies.waiting import (
    SCHEDULES,
    BudgetPaced,
    Doubling,
    FixedWait,
    Geometric,
    RandomWait,
    Schedule,
    ValidationTriggered,
    fixed_wait,
)

__all__ = [
    "NO_DESCRIPTION",
    "SCHEDULES",
    "BudgetPaced",
    "Decision",
    "Doubling",
    "FixedWait",
    "Geometric",
    "Policy",
    "Progress",
    "RandomWait",
    "Recorded",
    "Schedule",
    "StatefulPolicy",
    "ValidationTriggered",
    "canonical",
    "describe",
    "fixed_wait",
    "policy_record",
]
