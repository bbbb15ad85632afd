"""Policies as words of a command line: ``doubling``, ``random:probability=0.1,seed=3``, ``learned.zip``."""

from __future__ import annotations

import dataclasses
from typing import Any

from agents.policies import SCHEDULES, Policy
from agents.waiting.learned import LearnedPolicy
from agents.words import literal


def policy_from(spec: str, *, grows: bool = False) -> Policy:
    """The policy that a word stands for.

    Args:
        spec: name of a schedule, with ``:field=value,field=value`` behind it where it should differ from the default;
            or the path of a learned policy, which ends in .zip, likewise.
        grows: whether the learner can grow.

    Raises:
        ValueError: there is no such policy, or a field is unknown or breaks its rule.

    >>> policy_from("doubling:first=5,replay=true")
    Doubling(replay=True, growth='never', factor=2.0, first=5)
    """
    name, _, rest = spec.partition(":")
    if name.endswith(".zip"):
        fields = _fields(spec, rest, ("replay", "growth"))
        return LearnedPolicy(name, grows=grows, **fields)
    if name not in SCHEDULES:
        raise ValueError(
            f"--policy {spec}: there is no such policy; choose one of {', '.join(SCHEDULES)}, or a file PATH.zip"
        )
    schedule = SCHEDULES[name]
    fields = _fields(spec, rest, [field.name for field in dataclasses.fields(schedule)])
    if grows:
        fields = {"growth": "every"} | fields
    return schedule(**fields)


def _fields(spec: str, text: str, known: Any) -> dict[str, Any]:
    values = {}
    for pair in text.split(",") if text else []:
        key, equals, value = pair.partition("=")
        if key not in known or not equals:
            raise ValueError(f"--policy {spec}: {pair!r} is no field; write NAME:field=value with {', '.join(known)}")
        values[key] = literal(value)
    return values
