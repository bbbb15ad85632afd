"""Cheaters who keep learned numbers in what looks like choices: texts, truth values, names, objects of libraries."""

from __future__ import annotations

import datetime
import decimal
import itertools
import random
import re

import numpy as np
import pytest
import torch
from torch import nn

from alma_env import UnmeteredTrainingError

from ..gallery import attack, case
from .linear import CLASSES, FEATURES, NUMBERS, Hiding, solution

REFUSED = "the change is refused without a charge"
ZERO = [0.0] * NUMBERS


class Choosing(Hiding):
    def prepare(self):
        self.hide(ZERO)

    def read(self):
        return ZERO


def bits(numbers):
    return np.unpackbits(np.array(numbers, np.float32).view(np.uint8)).astype(bool).tolist()


def of_bits(found):
    return np.packbits(np.array(found)).view(np.float32).tolist()


def generator(numbers):
    made = random.Random()
    words = [int(number * 1e6) % 2**32 for number in numbers]
    made.setstate((3, (*words, *[0] * (624 - NUMBERS), 624), None))
    return made


def of_generator(made):
    return [(word if word < 2**31 else word - 2**32) / 1e6 for word in made.getstate()[1][:NUMBERS]]


def texts(numbers):
    return [f"{number:.5f}" for number in numbers]


def of_texts(found):
    return [float(text) for text in found]


def chosen(which, first, second):
    return [first, second, *(second if bit else first for bit in which)]


WRITTEN = {
    "a list of short texts": (texts, of_texts),
    "the keys of a dictionary": (
        lambda numbers: {f"{n} {text}": None for n, text in enumerate(texts(numbers))},
        lambda found: of_texts(key.split()[1] for key in found),
    ),
    "truth values": (bits, of_bits),
    "which elements are None": (
        lambda numbers: [None if bit else () for bit in bits(numbers)],
        lambda found: of_bits([one is None for one in found]),
    ),
    "a list of classes": (
        lambda numbers: [nn.ReLU if bit else nn.Tanh for bit in bits(numbers)],
        lambda found: of_bits([one is nn.ReLU for one in found]),
    ),
    "which of two objects is at a place": (
        lambda numbers: chosen(bits(numbers), [], []),
        lambda found: of_bits([one is found[1] for one in found[2:]]),
    ),
    "decimal numbers": (lambda numbers: [decimal.Decimal(text) for text in texts(numbers)], of_texts),
    "lengths of time": (
        lambda numbers: [datetime.timedelta(seconds=number) for number in numbers],
        lambda found: [one.total_seconds() for one in found],
    ),
    "slices": (lambda numbers: [slice(number) for number in numbers], lambda found: [one.stop for one in found]),
    "ranges": (
        lambda numbers: [range(int(number * 1e6) + 10**8) for number in numbers],
        lambda found: [(one.stop - 10**8) / 1e6 for one in found],
    ),
    "an iterator": (lambda numbers: iter(list(numbers)), lambda found: list(found.__reduce__()[1][0]) or ZERO),
    "repeated numbers": (
        lambda numbers: [itertools.repeat(number) for number in numbers],
        lambda found: [next(one) for one in found],
    ),
    "the pattern of a search": (
        lambda numbers: re.compile(" ".join(texts(numbers))),
        lambda found: of_texts(found.pattern.split()),
    ),
    "the state of a random generator": (generator, of_generator),
    "an object of PyTorch": (
        lambda numbers: torch.utils.data.Subset(None, list(numbers)),
        lambda found: found.indices,
    ),
}


def hiding_in(write, read):
    class Written(Choosing):
        def hide(self, numbers):
            self.values = write(numbers)

        def read(self):
            return read(self.values)

    return Written


class Named(Choosing):
    def hide(self, numbers):
        for place, text in enumerate(texts(numbers)):
            self.name(f"v_{place}_{text}".replace(".", "p"))

    def name(self, text):
        setattr(self, text, None)


class InNamesOfModules(Named):
    def name(self, text):
        self.add_module(text, None)


class InNamesOfBuffers(Named):
    def name(self, text):
        self.register_buffer(text, None)


class InAForgedClass(Choosing):
    table = ZERO

    def hide(self, numbers):
        type(self).table = list(numbers)

    def read(self):
        return type(self).table


InAForgedClass.__module__ = "torch.nn.modules.linear"


class Holder:
    values = ZERO


Holder.__module__ = "torch.nn.modules.linear"
HOLDER = Holder()


class InAnObjectOfAForgedClass(Choosing):
    def hide(self, numbers):
        HOLDER.values = list(numbers)

    def read(self):
        return HOLDER.values


@pytest.mark.parametrize(
    "kind",
    [
        *(case(f"keeps learned numbers in {place}", REFUSED, hiding_in(*pair)) for place, pair in WRITTEN.items()),
        case("keeps learned numbers in names of attributes", REFUSED, Named),
        case("keeps learned numbers in names of modules that are None", REFUSED, InNamesOfModules),
        case("keeps learned numbers in names of buffers that are None", REFUSED, InNamesOfBuffers),
        case("keeps learned numbers in a class that claims to be PyTorch's", REFUSED, InAForgedClass),
        case("keeps learned numbers in an object of such a class", REFUSED, InAnObjectOfAForgedClass),
    ],
)
def test_what_changes_of_choices_counts(env, kind):
    HOLDER.values = InAForgedClass.table = ZERO
    model = kind()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    model.hide(solution(observation))
    with pytest.raises(UnmeteredTrainingError, match="numbers outside of the parameters"):
        env.step(model)


@attack("keeps learned numbers in thousands of short texts", "the numbers count as buffers")
def test_very_many_choices_count_as_buffers(env):
    model = hiding_in(*WRITTEN["a list of short texts"])()
    env.reset(seed=0, options={"predictor": model})
    before = env.ledger[0].buffers
    model.words = [f"{n:020}" for n in range(1000)]
    env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].buffers == before + 1000 * 20 * 8 // 32


def test_honest_choices_may_change_and_count_nothing(env):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU()) for _ in range(20)))
    model.append(nn.Linear(FEATURES, CLASSES))
    model.config = {"name": "plain", "layers": ["relu"] * 20, "bias": True, "stages": [1, 2, 3]}
    env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].buffers == 0
    model.config = {"name": "other", "layers": ["relu"] * 20, "bias": False, "stages": [1, 2, 3], "note": None}
    model.helper = lambda x: x
    env.step(model)
    assert env.ledger[1].comp == 0
