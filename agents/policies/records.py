"""How the configuration of a run records its policy."""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from agents.policies.progress import Policy, require_policy
from alma_env import lazy_names

NO_DESCRIPTION = (
    "a lambda, a nested function and an object without a stable description, such as one with an array or a network, "
    "or with a field that its text leaves out, cannot be distinguished from other policies, so the run folder could be "
    "continued with the wrong policy; make the policy a frozen dataclass with __call__ or a function at the top level "
    "of a module, give it as_plain_data with everything that it depends on, or run without a folder"
)


@runtime_checkable
class Recorded(Protocol):
    """A policy that provides its own record."""

    def as_plain_data(self) -> Any:
        """Return the record as plain JSON values, the same in every process; None if there is none.

        The record holds the policy's ``name`` and everything that its decisions depend on.
        """
        ...


def policy_record(policy: Policy) -> Any:
    """Return the record of a policy for ``config["policy"]`` of an ``AnytimeAgent``: plain JSON values, or None.

    The record is the policy's own where it provides one, otherwise the result of `describe`. Tables and figures name a
    run by it, and a run folder is continued only with the policy of its record.

    Raises:
        TypeError: the policy is no function, or a class in the place of its object.

    >>> from agents.policies import Doubling, FixedWait
    >>> policy_record(FixedWait(5))
    {'replay': False, 'growth': 'never', 'wait': 5}
    >>> policy_record(Doubling())
    {'name': 'doubling', 'replay': False, 'growth': 'never', 'factor': 2.0, 'first': 1}
    """
    require_policy(policy)
    return policy.as_plain_data() if isinstance(policy, Recorded) else describe(policy)


def describe(policy: Policy) -> str | None:
    """Return a description of a policy that is the same in every process; None if the policy has none.

    >>> from agents.policies import Decision, fixed_wait
    >>> describe(fixed_wait(5))
    "agents.policies.waiting.FixedWait(replay=False, growth='never', stop=1.0, restart=0.0, wait=5)"
    >>> describe(lambda now: Decision(train=True)) is None
    True
    """
    if isinstance(policy, types.FunctionType):
        module = sys.modules.get(policy.__module__)
        found = getattr(module, policy.__qualname__, None) is policy  # False for lambdas, closures and methods
        return f"{policy.__module__}.{policy.__qualname__}" if found else None
    # A subclass that is not itself a dataclass may have more state than the inherited fields.
    if "__dataclass_fields__" in vars(type(policy)):
        text = repr(policy)
        has_text = type(policy).__repr__ is not object.__repr__ and not re.search(r" at 0x[0-9a-fA-F]+", text)
        own_text = not hasattr(type(policy).__repr__, "__wrapped__")  # not the one that `dataclass` makes
        stateful = hasattr(policy, "state_dict")  # a checkpoint has what the text of such a policy leaves out
        if has_text and (own_text or not _is_abridged(policy, may_hide_fields=stateful)):
            return f"{type(policy).__module__}.{text}"
    return None


def _is_abridged(value: object, *, may_hide_fields: bool = False) -> bool:
    """Return whether the text of a value leaves something out, as that of a long array, a network or a hidden field."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        if not may_hide_fields and any(field.compare and not field.repr for field in fields):
            return True
        value = [getattr(value, field.name) for field in fields if field.repr]
    elif isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return any(map(_is_abridged, value))
    return isinstance(value, np.ndarray | Tensor | nn.Module)


def canonical(record: Any) -> Any:
    """Return a record in which the old names of moved modules are replaced by their new names.

    Compare two records by their canonical forms: a run folder that was started before a module moved then still
    matches the policy of today. A record is the result of `policy_record`, or a JSON value that contains such a result.

    >>> canonical("agents.bidder.wait")
    'agents.arena.bidder.wait'
    >>> canonical({"name": "mine", "inner": "agents.bidder.wait", "wait": 3})
    {'name': 'mine', 'inner': 'agents.arena.bidder.wait', 'wait': 3}
    """
    if isinstance(record, str):
        return lazy_names.new_name(record)
    if isinstance(record, dict):
        return {name: canonical(value) for name, value in record.items()}
    if isinstance(record, list):
        return [canonical(value) for value in record]
    return record
