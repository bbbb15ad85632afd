"""Learned numbers that are kept outside of parameters, where Comp and Mem do not count them."""

from __future__ import annotations

import functools
import sys
import types

import numpy as np
import pytest
import torch

from alma_env import UnmeteredTrainingError

from ..gallery import each
from .linear import CLASSES, FEATURES, NUMBERS, Hiding, solution

FREE = "the change is refused without a charge, and the numbers count as buffers"
STORE: dict[str, object] = {}
TABLE = [0.0] * NUMBERS
SPACE = types.SimpleNamespace(values=TABLE)


@pytest.fixture(autouse=True)
def nothing_is_hidden():
    STORE.clear()
    TABLE[:] = [0.0] * NUMBERS
    SPACE.values = TABLE


class InAList(Hiding):
    def prepare(self):
        self.values = [0.0] * NUMBERS

    def read(self):
        return self.values

    def hide(self, numbers):
        self.values = numbers


class InBytes(InAList):
    def prepare(self):
        self.values = np.zeros(NUMBERS).tobytes()

    def read(self):
        return np.frombuffer(self.values).copy()

    def hide(self, numbers):
        self.values = np.array(numbers).tobytes()


class InText(InAList):
    def prepare(self):
        self.values = "0 " * NUMBERS

    def read(self):
        return [float(word) for word in self.values.split()]

    def hide(self, numbers):
        self.values = " ".join(map(str, numbers))


class InOneInteger(InAList):
    def prepare(self):
        self.values = 0

    def read(self):
        content = self.values.to_bytes(NUMBERS * 8, "little")
        return np.frombuffer(content).copy()

    def hide(self, numbers):
        self.values = int.from_bytes(np.array(numbers).tobytes(), "little")


class InManyAttributes(Hiding):
    def prepare(self):
        self.hide([0.0] * NUMBERS)

    def read(self):
        return [getattr(self, f"value_{n}") for n in range(NUMBERS)]

    def hide(self, numbers):
        for n, number in enumerate(numbers):
            setattr(self, f"value_{n}", number)


class InIntegerArray(InAList):
    def prepare(self):
        self.values = np.zeros(NUMBERS, np.int64)

    def read(self):
        return self.values / 1e6

    def hide(self, numbers):
        self.values = (np.array(numbers) * 1e6).astype(np.int64)


class InABuffer(Hiding):
    def prepare(self):
        self.register_buffer("values", torch.zeros(NUMBERS))

    def read(self):
        return self.values

    def hide(self, numbers):
        self.values = torch.tensor(numbers)


class InAnIntegerBuffer(InABuffer):
    def prepare(self):
        self.register_buffer("values", torch.zeros(NUMBERS, dtype=torch.int64))

    def read(self):
        return self.values / 1e6

    def hide(self, numbers):
        self.values = (torch.tensor(numbers) * 1e6).long()


class InAPlainTensor(InABuffer):
    def prepare(self):
        self.values = torch.zeros(NUMBERS)


class InAGlobalList(Hiding):
    def read(self):
        return TABLE

    def hide(self, numbers):
        TABLE[:] = numbers


class InAGlobalDictionary(Hiding):
    def read(self):
        return STORE.get("values", [0.0] * NUMBERS)

    def hide(self, numbers):
        STORE["values"] = numbers


class InAGlobalTensor(InAGlobalDictionary):
    def hide(self, numbers):
        STORE["values"] = torch.tensor(numbers)


class InAGlobalArray(InAGlobalDictionary):
    def hide(self, numbers):
        STORE["values"] = np.array(numbers)


def read_store():
    return STORE.get("values", [0.0] * NUMBERS)


class BehindAFunction(InAGlobalDictionary):
    def read(self):
        return read_store()


class InAFunctionsAttribute(Hiding):
    def read(self):
        return getattr(read_store, "values", [0.0] * NUMBERS)

    def hide(self, numbers):
        read_store.values = numbers


class InANamespace(Hiding):
    def read(self):
        return SPACE.values

    def hide(self, numbers):
        SPACE.values = numbers


class InAModuleOfPython(Hiding):
    def read(self):
        return getattr(sys, "values_of_this_test", None) or sys.values_of_this_test

    def prepare(self):
        sys.values_of_this_test = [0.0] * NUMBERS

    def hide(self, numbers):
        sys.values_of_this_test = numbers


class InTheClass(Hiding):
    values = (0.0,) * NUMBERS

    def read(self):
        return self.values

    def hide(self, numbers):
        type(self).values = tuple(numbers)


class InAClosure(Hiding):
    def prepare(self):
        self.hide([0.0] * NUMBERS)

    def read(self):
        return self.source()

    def hide(self, numbers):
        self.source = lambda: numbers


class InADefault(InAClosure):
    def hide(self, numbers):
        self.source = eval("lambda values=numbers: values", {"numbers": numbers})


class InLiterals(InAClosure):
    def hide(self, numbers):
        self.source = eval(f"lambda: ({', '.join(map(repr, numbers))})", {})


class InAPartial(InAClosure):
    def hide(self, numbers):
        self.source = functools.partial(list, numbers)


class Box:
    __slots__ = ("values",)


class InSlots(InAList):
    def prepare(self):
        self.box = Box()
        self.box.values = [0.0] * NUMBERS

    def read(self):
        return self.box.values

    def hide(self, numbers):
        self.box.values = numbers


class InAHook(Hiding):
    def prepare(self):
        self.hide([0.0] * NUMBERS)

    def hide(self, numbers):
        self._forward_hooks.clear()
        self.register_forward_hook(
            lambda module, inputs, out, numbers=numbers: out + inputs[0] @ torch.tensor(numbers).view(FEATURES, CLASSES)
        )

    def forward(self, x):
        return self.bias.expand(len(x), CLASSES)


HIDERS = [
    InAList,
    InBytes,
    InText,
    InOneInteger,
    InManyAttributes,
    InIntegerArray,
    InABuffer,
    InAnIntegerBuffer,
    InAPlainTensor,
    InAGlobalList,
    InAGlobalDictionary,
    InAGlobalTensor,
    InAGlobalArray,
    BehindAFunction,
    InAFunctionsAttribute,
    InANamespace,
    InAModuleOfPython,
    InTheClass,
    InAClosure,
    InADefault,
    InLiterals,
    InAPartial,
    InSlots,
    InAHook,
]


@pytest.mark.parametrize("kind", each("keeps learned numbers", HIDERS, FREE))
def test_learned_numbers_outside_of_parameters_are_not_free(env, kind):
    model = kind()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    model.hide(solution(observation))
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)
    env.meter.declare(10_000, reason="least squares")
    env.step(model)
    assert env.ledger[1].error < env.ledger[0].error
    assert env.ledger[1].buffers >= NUMBERS
