"""Names of schedules in comparisons: the shortest text of ``--policy``, whatever text a run recorded."""

from __future__ import annotations

import re
from typing import Any

from agents.policies.specs import spec_of
from agents.policies.validation import literal
from agents.policies.waiting import RULE, SCHEDULES, Doubling, Geometric

RECOMMENDED = spec_of(RULE)
DOUBLING = (spec_of(Doubling()), spec_of(Geometric(factor=2)))  # two texts of one schedule
_RECORDED = re.compile(
    r"(?:wait (?P<wait>\d+)|(?P<name>\w+)\((?P<fields>.*?)\))"
    r"(?P<replay>, replay)?(?: (?P<window>last:\d+))?(?:, growth (?P<growth>.+))?"
)
_PLAIN_WAIT = re.compile(r"fixed:wait=(\d+)(,growth=[^,]+)?")


def plain_wait(name: str) -> int | None:
    """Return the waiting time of a schedule that waits a fixed time, without replay, restart and stop; else None.

    >>> plain_wait("fixed:wait=10"), plain_wait("fixed:wait=10,stop=0.5")
    (10, None)
    """
    return int(found[1]) if (found := _PLAIN_WAIT.fullmatch(name)) else None


def schedule_name(recorded: str) -> str:
    """Return the name of a schedule; the recorded text itself if it is that of another policy.

    Args:
        recorded: the text of `agents.catalogue.agent_config.AgentConfig.when`, and the growth after ``, growth`` if it
            is not the usual one of the learner.

    >>> schedule_name("geometric(factor=5.0, first=1, restart=0.1, stop=0.2), replay")
    'geometric:factor=5,replay=all,restart=0.1,stop=0.2'
    >>> schedule_name("wait 10, replay last:50, growth never")
    'fixed:wait=10,replay=last:50,growth=never'
    >>> schedule_name("MyPolicy(least=3)")
    'MyPolicy(least=3)'
    """
    found = _RECORDED.fullmatch(recorded)
    if not found or (name := found["name"] or "fixed") not in SCHEDULES:
        return recorded
    text = found["fields"] or (f"wait={found['wait']}" if found["wait"] else "")
    pairs = (pair.partition("=") for pair in text.split(", ") if pair)
    fields: dict[str, Any] = {key: literal(value) for key, _, value in pairs}
    fields |= {"replay": found["window"] or bool(found["replay"]), "growth": found["growth"] or "never"}
    try:
        schedule = SCHEDULES[name](**fields)
    except (TypeError, ValueError):  # a policy of the user with the name of a schedule
        return recorded
    return spec_of(schedule, usual_growth="" if found["growth"] else "never")
