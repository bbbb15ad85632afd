"""Policies as text on a command line: ``doubling``, ``random:probability=0.1,seed=3``, ``learned.zip``."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from agents.policies.exploring import Exploring
from agents.policies.learned.policy import LearnedPolicy
from agents.policies.learned.priced_features import PRICES
from agents.policies.learned.schedule import LearnedSchedule
from agents.policies.progress import Policy
from agents.policies.validation import literal
from agents.policies.waiting import SCHEDULES, BudgetPaced, FixedWait, Geometric, RandomWait, Schedule
from alma_env.errors import did_you_mean

_COMMA = r",(?!\d+(?:,|$))"  # between fields; not between the numbers of growth=at:5,10
EXPLORING = "exploring"
LEARNED = "learned"
_SHARED = ("replay", "growth", "restart", "stop")  # fields of all schedules, in the order of `spec_of`
_MAIN = {FixedWait: "wait", Geometric: "factor", BudgetPaced: "budget", RandomWait: "probability"}


def policy_from(spec: str, *, grows: bool = False, option: str = "--policy ") -> Policy:
    """Return the policy that a text specifies; ``grows`` is whether the learner can grow.

    ``option`` is how the messages of errors call the text.

    The text is the name of a schedule; or ``learned``, the learned schedule of the package; or the path of a learned
    schedule, which ends in .npz, or of a learned policy, which ends in .zip. Fields that differ from their defaults
    follow as ``:field=value,field=value``.

    Raises:
        ValueError: the policy does not exist, or a field is unknown or out of range.

    >>> policy_from("doubling:first=5,replay=true")
    Doubling(replay=True, growth='never', stop=1.0, restart=0.0, factor=2.0, first=5)
    """
    name, rest = _parts(spec)
    if not fields_of(spec):
        names = (*SCHEDULES, LEARNED, EXPLORING)
        if re.search(r"\.py\b", spec):
            raise ValueError(
                f"{option}{spec}: a policy of your own belongs to an agent; write a function that returns an agent "
                "with this policy, and give `alma run --agent FILE.py:FUNCTION` (`alma new policy` writes one)"
            )
        raise ValueError(
            f"{option}{spec}: unknown policy; choose one of {', '.join(names)}, or give the path of a .zip or .npz "
            f"file{did_you_mean(name, names)}"
        )
    fields = _read_fields(spec, rest, option)
    if name.endswith(".zip"):
        return LearnedPolicy(name, grows=grows, **fields)
    if name == LEARNED or name.endswith(".npz"):
        return LearnedSchedule(None if name == LEARNED else name, grows=grows, **fields)
    if name == EXPLORING:
        return Exploring(**fields, grows=grows)
    return SCHEDULES[name](**({"growth": "every"} if grows else {}) | fields)


def fields_of(spec: str) -> tuple[str, ...]:
    """Return the names of the fields that the policy of a text takes; none if there is no such policy.

    >>> fields_of("exploring:seed=3")
    ('seed',)
    """
    name, _ = _parts(spec)
    if name.endswith(".zip"):
        return ("replay", "growth", *PRICES)
    if name == LEARNED or name.endswith(".npz"):
        return tuple(PRICES)
    if name == EXPLORING:
        return ("seed",)
    return tuple(field.name for field in dataclasses.fields(SCHEDULES[name])) if name in SCHEDULES else ()


def spec_of(schedule: Schedule, *, usual_growth: str = "never") -> str:
    """Return the shortest text that specifies a schedule of `SCHEDULES`, with its main field.

    The text leaves out the growth ``usual_growth``: that of `policy_from` is ``every`` for a learner that can grow.

    >>> spec_of(Geometric(stop=0.8, replay="last:50"))
    'geometric:factor=1.6,replay=last:50,stop=0.8'
    >>> spec_of(policy_from("doubling:factor=2.0"))
    'doubling'
    """
    name = next(name for name, kind in SCHEDULES.items() if type(schedule) is kind)
    defaults = {field.name: field.default for field in dataclasses.fields(schedule)} | {"growth": usual_growth}
    own = [field for field in defaults if field not in _SHARED]
    shown = [
        f"{field}={_as_text(value)}"
        for field in (*own, *_SHARED)
        if (value := getattr(schedule, field)) != defaults[field] or _MAIN.get(type(schedule)) == field
    ]
    return ":".join([name, *[",".join(shown)] * bool(shown)])


def _as_text(value: object) -> str:
    if value is True:
        return "all"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _parts(spec: str) -> tuple[str, str]:
    """Return the name and the fields; the path of a file may contain a colon."""
    file = re.match(r"(.*\.(?:zip|npz))(?::(.*))?$", spec)
    if file:
        return file[1], file[2] or ""
    name, _, rest = spec.partition(":")
    return name, rest


def _read_fields(spec: str, text: str, option: str) -> dict[str, Any]:
    known = fields_of(spec)
    values: dict[str, Any] = {}
    for pair in re.split(_COMMA, text) if text else []:
        key, equals, value = pair.partition("=")
        if key not in known:
            raise ValueError(
                f"{option}{spec}: {pair!r} is not a field; write NAME:field=value, with one value for each of the "
                f"fields {', '.join(known)}{did_you_mean(key, known)}"
            )
        if not (equals and value):
            raise ValueError(f"{option}{spec}: the field {key} has no value; write {key}=VALUE")
        if key in values:
            raise ValueError(f"{option}{spec}: the field {key} is given twice; give it once")
        values[key] = literal(value)
    return values
