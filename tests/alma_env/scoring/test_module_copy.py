"""A copied module equals that of `copy.deepcopy`: shared parts stay shared, and own rules of copying are obeyed."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from alma_env.scoring.fingerprint import fingerprint
from alma_env.scoring.module_copy import copy_module


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.again = self.first
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("whole", torch.arange(6.0))
        self.register_buffer("view", self.whole[2:4], persistent=False)
        self.hidden = [self.first, {"itself": self}]
        self.registry = self.shared_registry = {}
        self.names = {("a", 1): [1, 2]}
        self.first.register_forward_hook(print)


def test_a_copy_has_the_shared_parts_of_the_module():
    module = Odd()
    new = copy_module(module)
    assert fingerprint_of_state(new) == fingerprint_of_state(copy.deepcopy(module))
    assert new.first is new.again is new.hidden[0] is not module.first
    assert new.first.weight is new.second.weight is not module.first.weight
    assert new.hidden[1]["itself"] is new
    assert new.registry is new.shared_registry is not module.registry
    assert new.names == module.names
    assert new.names[("a", 1)] is not module.names[("a", 1)]
    new.whole.zero_()
    assert new.view.sum() == 0
    assert module.view.sum() == 5
    assert list(new.first._forward_hooks.values()) == [print]
    assert new._non_persistent_buffers_set == {"view"}


def fingerprint_of_state(module: nn.Module) -> list[tuple[str, torch.Size, bool]]:
    return [(name, tensor.shape, tensor.requires_grad) for name, tensor in module.named_parameters()]


def test_a_copy_of_usual_networks_has_the_same_fingerprint():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))
    network[0].weight.requires_grad_(False)
    network.eval()
    new = copy_module(network)
    assert fingerprint(new) == fingerprint(network)
    assert [module.training for module in new.modules()] == [False] * 6
    assert not new[0].weight.requires_grad
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(new.parameters(), network.parameters(), strict=True))


class OwnCopy(nn.Linear):
    def __deepcopy__(self, memo: dict[int, object]) -> OwnCopy:
        return OwnCopy(1, 7)


class OwnState(nn.Linear):
    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"saved": True}


class Mixin:
    def __deepcopy__(self, memo: dict[int, object]) -> str:
        return "mixed in"


class Mixed(nn.Linear, Mixin):
    """The rule stands in a class after `nn.Module`."""


def test_own_rules_of_copying_are_obeyed():
    new = copy_module(nn.ModuleList([OwnCopy(1, 1), OwnState(1, 1)]))
    assert new[0].out_features == 7
    assert new[1].saved
    assert copy_module(Mixed(1, 1)) == "mixed in"


def test_what_cannot_be_copied_raises_the_error_of_deepcopy():
    module = nn.Linear(1, 1)
    module.file = io.StringIO
    module.lock = pickle.Pickler(io.BytesIO())
    with pytest.raises(TypeError, match="cannot pickle"):
        copy_module(nn.Sequential(module))
    computed = nn.Linear(1, 1)
    computed.cache = computed(torch.ones(1, 1))
    with pytest.raises(RuntimeError, match="deepcopy protocol"):
        copy_module(computed)
