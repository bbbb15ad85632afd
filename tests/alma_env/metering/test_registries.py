"""A deep copy that starts with new registries is an ordinary deep copy."""

from __future__ import annotations

import copy
from collections import OrderedDict

from torch import nn

from alma_env.metering.registries import is_empty_registry, new_registries


def copied(*modules):
    parts = [part for module in modules for part in module.modules()]
    return copy.deepcopy(modules, new_registries(parts))


def test_hooks_are_copied_and_a_copy_without_hooks_gets_its_own():
    original = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    original[1].register_forward_hook(print)
    ((first, second),) = copied(original)
    assert list(second._forward_hooks.values()) == [print]
    first.register_forward_hook(print)
    assert not original[0]._forward_hooks
    assert type(first._forward_hooks) is OrderedDict


def test_what_two_modules_share_is_shared_by_their_copies_only():
    first, second = nn.Identity(), nn.Identity()
    first.shared = second.shared = {}
    one, other = copied(first, second)
    assert one.shared is other.shared
    assert one.shared is not first.shared


def test_a_dictionary_that_can_hold_more_than_its_items_is_no_registry():
    with_attribute = OrderedDict()
    with_attribute.weights = [1.0]
    kind = type("Own", (dict,), {})
    assert not any(map(is_empty_registry, (with_attribute, kind(), {"a": 1}, [], None)))
    assert all(map(is_empty_registry, ({}, OrderedDict())))
