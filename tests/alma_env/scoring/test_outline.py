"""Members of one outline are searched once, and have the fingerprints that they have alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from alma_env import Ensemble
from alma_env.scoring import fingerprint as fingerprints
from alma_env.scoring.fingerprint import fingerprint
from alma_env.scoring.outline import outline

OUTSIDE = torch.arange(3.0)


class Own(nn.Linear):
    """A module of a user."""

    table = (1.0, 2.0)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.BatchNorm1d(3), nn.Linear(3, 2))


def changed(change) -> nn.Module:
    one = network()
    change(one)
    return one


def _tie(one: nn.Sequential) -> None:
    one.append(nn.Linear(2, 2))
    one.append(nn.Linear(2, 2))
    one[6].weight = one[5].weight


MEMBERS = {
    "another width": lambda: changed(lambda one: one.insert(4, nn.Linear(3, 3))),
    "without bias": lambda: changed(lambda one: one.__setitem__(4, nn.Linear(3, 2, bias=False))),
    "an integer": lambda: changed(lambda one: setattr(one[1], "scale", 1)),
    "a truth value that equals it": lambda: changed(lambda one: setattr(one[1], "scale", True)),
    "a text": lambda: changed(lambda one: setattr(one[1], "scale", "1")),
    "a float": lambda: changed(lambda one: setattr(one[1], "scale", 0.0)),
    "a float that equals it": lambda: changed(lambda one: setattr(one[1], "scale", -0.0)),
    "a list": lambda: changed(lambda one: setattr(one[1], "scale", list(range(100)))),
    "an array": lambda: changed(lambda one: setattr(one[1], "scale", OUTSIDE.numpy())),
    "a tensor": lambda: changed(lambda one: setattr(one[1], "scale", OUTSIDE)),
    "a buffer": lambda: changed(lambda one: one[1].register_buffer("scale", OUTSIDE)),
    "tied weights": lambda: changed(_tie),
    "one module in two places": lambda: changed(lambda one: one.append(one[2])),
    "a hook": lambda: changed(lambda one: one[2].register_forward_hook(lambda module, x, y: y + OUTSIDE)),
    "a class of the user": lambda: changed(lambda one: one.__setitem__(4, Own(3, 2))),
    "a hidden list in a registry": lambda: changed(lambda one: vars(one[1])["_forward_hooks"].__dict__.update(a=[1])),
    "no parameter": nn.Flatten,
}


def test_each_member_has_the_fingerprint_that_it_has_alone():
    members = [*(network() for _ in range(3)), *(build() for build in MEMBERS.values()), network()]
    members += copy.deepcopy(members)
    marks = fingerprint(Ensemble(members)).parts[1:]
    assert marks == tuple(fingerprint(one) for one in members)
    parts = len(MEMBERS) + 4
    assert marks[:parts] == marks[parts:]
    assert len({mark.structure for mark in marks}) == len(MEMBERS) + 1


def test_the_outline_has_all_that_the_structure_has():
    members = [network(), *(build() for build in MEMBERS.values())]
    outlines = [found[0] for one in members if (found := outline(one)) is not None]
    # The network, five attributes, a buffer, a width, no bias, and Flatten.
    assert len(outlines) == len(set(outlines)) == 10


def test_only_the_first_member_of_an_outline_is_searched(monkeypatch):
    searched = []
    search = fingerprints.hidden_numbers
    monkeypatch.setattr(fingerprints, "hidden_numbers", lambda module: searched.append(module) or search(module))
    members = [network() for _ in range(5)]
    before = fingerprint(Ensemble(members))
    assert [one for one in searched if one in members] == members[:1]
    with torch.no_grad():
        members[3][4].weight.view(-1)[0] += 1
    after = fingerprint(Ensemble(members))
    assert [mine == other for mine, other in zip(before.parts, after.parts, strict=True)] == [True] * 4 + [False, True]
    assert before.structure == after.structure


def test_a_hook_of_all_modules_with_a_tensor_is_searched_for_each_member():
    handle = nn.modules.module.register_module_forward_hook(lambda module, x, y: y + OUTSIDE.sum())
    try:
        members = [network(), network()]
        marks = fingerprint(Ensemble(members)).parts[1:]
        assert marks == tuple(fingerprint(one) for one in members)
        assert len(marks[1].tensors) == len(list(members[1].state_dict())) + 1
    finally:
        handle.remove()


class EqualToAll(type):
    """A metaclass that calls each class equal to each other class."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(nn.Linear)


@pytest.mark.parametrize("wrong", [nn.UninitializedParameter(), object()], ids=["lazy", "no tensor"])
def test_modules_with_other_things_are_not_simple(wrong):
    one = network()
    vars(one[1])["_parameters"]["weight"] = wrong
    assert outline(one) is None


def test_classes_that_are_equal_are_still_two_classes():
    equal = EqualToAll("Equal", (nn.Linear,), {"weights": tuple(range(100))})
    members = [nn.Linear(2, 2), equal(2, 2)]
    marks = fingerprint(Ensemble(members)).parts[1:]
    assert marks == tuple(fingerprint(one) for one in members)
    assert marks[0].numbers != marks[1].numbers
