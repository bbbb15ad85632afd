"""What a predictor's code can read outside of its parameters is part of its fingerprint."""

from __future__ import annotations

import logging
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import alma_env
from alma_env import UnmeteredTrainingError
from alma_env.scoring.evaluation import unwrap
from alma_env.scoring.fingerprint import fingerprint

FIRST, LAST = [0.0] * 64, [0.5] * 64
DEEP = False
to_list = torch.Tensor.tolist


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(x.flatten(1).float() / 16)


class ReadsLists(Linear):
    """A predictor that reads two lists of 64 numbers."""

    def forward(self, x):
        return super().forward(x) * 0 + x.flatten(1).float()[:, :1] * FIRST[0] + LAST[0]


def test_numbers_in_several_short_global_lists_may_not_change_without_a_charge(monkeypatch):
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    model = ReadsLists()
    env.reset(seed=0, options={"predictor": model})
    monkeypatch.setattr(f"{__name__}.FIRST", [1.0] * 64)
    monkeypatch.setattr(f"{__name__}.LAST", [1.0] * 64)
    with pytest.raises(UnmeteredTrainingError, match="128 numbers outside of the parameters of ReadsLists changed"):
        env.step(model)


class ReadsFlag(Linear):
    def forward(self, x):
        return super().forward(x) + super().forward(x) if DEEP else super().forward(x)


def test_a_global_truth_value_is_content_and_a_predictor_with_another_one_is_of_another_kind(monkeypatch):
    before = fingerprint(ReadsFlag())
    assert before.kind == fingerprint(ReadsFlag()).kind
    monkeypatch.setattr(f"{__name__}.DEEP", True)
    after = fingerprint(ReadsFlag())
    assert after.kind != before.kind
    assert after.buffers == before.buffers == 0


class HasLogger(Linear):
    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self.log = log


@pytest.mark.parametrize("place", [lambda log: log, lambda log: log.manager, lambda log: log._cache])
def test_numbers_in_a_logger_are_content(place):
    log = logging.getLogger(f"{__name__}.{id(place)}")
    model = HasLogger(log)
    before = fingerprint(model)
    holder = place(log)
    if isinstance(holder, dict):
        holder["w"] = [0.5] * 100
    else:
        holder.w = [0.5] * 100
    try:
        after = fingerprint(model)
    finally:
        if isinstance(holder, dict):
            del holder["w"]
        else:
            del holder.w
    assert after.buffers - before.buffers >= 100
    assert not after.same_as(before)


class Reference(weakref.ref):
    """A weak reference that holds numbers."""


def test_a_reference_is_described_only_if_it_is_to_a_parameter():
    model, other = Linear(), nn.Linear(2, 2)
    model.reference = weakref.ref(model.linear.weight)
    assert fingerprint(model).same_as(fingerprint(model))
    assert fingerprint(model).buffers == 0
    model.reference = weakref.ref(other.weight)
    assert fingerprint(model).structure is None
    model.reference = Reference(model.linear.weight)
    assert fingerprint(model).structure is None


def test_a_function_that_was_defined_in_a_module_of_pytorch_is_no_function_of_pytorch():
    names = {"__name__": "torch.nn.functional"}
    exec("def read(x): return x @ HIDDEN_WEIGHTS", vars(F), names)
    model = Linear()
    model.read = names["read"]
    F.HIDDEN_WEIGHTS = torch.ones(64, 10)
    try:
        assert fingerprint(model).buffers == 640
    finally:
        del F.HIDDEN_WEIGHTS


class ReadsByNumpy(Linear):
    def forward(self, x):
        return super().forward(x) * float(np.exp(0.0))


class ReadsByAlias(Linear):
    def forward(self, x):
        return super().forward(x) * to_list(x.float().mean() * 0 + 1)


@pytest.mark.parametrize(("model", "reads"), [(Linear, False), (ReadsByNumpy, True), (ReadsByAlias, True)])
def test_code_that_may_read_values_without_an_operation_is_recognised(model, reads):
    assert fingerprint(model()).reads_values is reads


class Doubling(nn.Module):
    """A user's module, whose submodule has the name that `torch.compile` gives to the module that it wraps."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._orig_mod = inner

    def forward(self, x):
        return self._orig_mod(x) * 2


def test_only_wrappers_of_torch_compile_are_removed():
    own = Doubling(Linear())
    assert unwrap(own) is own
    inner = Linear()
    compiled = torch.compile(inner, backend="eager")
    both = nn.Sequential(Doubling(compiled), compiled, nn.ReLU())
    both.itself = compiled
    plain = unwrap(both)
    assert type(plain[0]) is Doubling
    assert plain[0]._orig_mod is plain[1] is plain.itself
    assert type(plain[1]) is Linear
    assert plain[1].linear.weight is inner.linear.weight
    assert both[1] is compiled
