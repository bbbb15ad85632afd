"""Cheaters who keep learned numbers outside of parameters, where Comp and Mem do not count them."""

from __future__ import annotations

import copy
import functools
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env import PredictorError, UnmeteredTrainingError

from .gallery import attack, each

FREE = "the change is refused without a charge, and the numbers count as buffers"

FEATURES, CLASSES = 40, 3
NUMBERS = FEATURES * CLASSES
STORE: dict[str, object] = {}
TABLE = [0.0] * NUMBERS
SPACE = types.SimpleNamespace(values=TABLE)


def arrays(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, FEATURES)).astype(np.float32)
    return x, (x @ np.random.default_rng(7).normal(size=(FEATURES, CLASSES))).argmax(1)


@pytest.fixture
def env():
    STORE.clear()
    TABLE[:] = [0.0] * NUMBERS
    SPACE.values = TABLE
    return alma_env.make("Arrays-ALMA-v0", train=arrays(0), test=arrays(1), ticks=5)


def solution(observation):
    """Least squares in NumPy: a list of (features * classes) numbers."""
    part = observation["train"]
    return np.linalg.lstsq(part["x"], np.eye(CLASSES)[part["y"]], rcond=None)[0].ravel().tolist()


class Hiding(nn.Module):
    """Answers with numbers that `read` returns."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(CLASSES))
        self.prepare()

    def prepare(self):
        pass

    def read(self):
        raise NotImplementedError

    def hide(self, numbers):
        raise NotImplementedError

    def forward(self, x):
        weights = torch.as_tensor(self.read(), dtype=torch.float32).view(FEATURES, CLASSES)
        return x @ weights + self.bias


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


# --- classes whose methods lie --------------------------------------------------------------------


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return self.layer(x)


def trained(observation):
    other = nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        other.weight.copy_(torch.tensor(solution(observation)).view(FEATURES, CLASSES).T)
        other.bias.zero_()
    return other


class NoParameters(Linear):
    def parameters(self, recurse=True):
        return iter(())


class NoNames(Linear):
    def named_parameters(self, *arguments, **others):
        return iter(())


class NoModules(Linear):
    def named_modules(self, *arguments, **others):
        return iter(())

    def modules(self):
        return iter(())


@pytest.mark.parametrize(
    "kind", each("answers for its content:", [NoParameters, NoNames, NoModules], "the parameters are counted")
)
def test_parameters_are_counted_whatever_the_class_says(env, kind):
    model = kind()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].parameters == NUMBERS + CLASSES
    model.layer = trained(observation)
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


class Copying(Linear):
    def __deepcopy__(self, memo):
        other = Linear()
        other.layer = copy.deepcopy(getattr(sys, "layer_of_this_test", self.layer), memo)
        return other


class Evaluating(Linear):
    def train(self, mode=True):
        if not mode and hasattr(sys, "layer_of_this_test"):
            self.layer = sys.layer_of_this_test
        return super().train(mode)

    def eval(self):
        return self.train(False)


@attack("gives the environment a copy with other weights", "the copy is refused")
def test_the_copy_that_answers_is_what_is_checked(env, monkeypatch):
    model = Copying()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    monkeypatch.setattr(sys, "layer_of_this_test", trained(observation), raising=False)
    with torch.no_grad():
        model.layer.bias += 0  # the module itself does not change
    model.note = "another structure"
    with pytest.raises(UnmeteredTrainingError):
        env.step(model)


@attack("gives the environment a member of an ensemble with other weights", "the copy is refused")
def test_a_member_of_an_ensemble_must_equal_its_copy(env, monkeypatch):
    first = Linear()
    observation, _ = env.reset(seed=0, options={"predictor": alma_env.Ensemble([first])})
    monkeypatch.setattr(sys, "layer_of_this_test", trained(observation), raising=False)
    with env.meter:
        member = Copying()
        member(torch.from_numpy(observation["train"]["x"]))
    with pytest.raises(PredictorError, match="its copy has other content"):
        env.step(alma_env.Ensemble([first, member]))


@attack("loads weights when its method eval is called", "the method is not called")
def test_eval_of_the_class_is_not_called(env, monkeypatch):
    model = Evaluating()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    monkeypatch.setattr(sys, "layer_of_this_test", trained(observation), raising=False)
    model.note = "another structure"
    env.step(model)
    assert env.ledger[1].error == env.ledger[0].error


class Undescribed(Linear):
    def __init__(self):
        super().__init__()
        self.lock = Unpicklable()


class Unpicklable:
    def __reduce_ex__(self, protocol):
        raise TypeError("no")

    def __deepcopy__(self, memo):
        return Unpicklable()


@attack("holds an object that cannot be described", "the predictor is refused without a charge")
def test_what_cannot_be_described_is_not_free(env):
    model = Undescribed()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    with pytest.raises(UnmeteredTrainingError, match="cannot be described"):
        env.step(model)
    with env.meter:
        model(torch.from_numpy(observation["train"]["x"]))
    env.step(model)


# --- honest changes -------------------------------------------------------------------------------


def count_steps(model):
    model.steps = getattr(model, "steps", 0) + 1


def add_a_lambda(model):
    model.activation = lambda x: x


def rename(model):
    model.name = "tick 7"


def change_the_temperature(model):
    model.register_buffer("temperature", torch.tensor(2.0))


@pytest.mark.parametrize("change", [count_steps, add_a_lambda, rename])
def test_small_changes_need_no_charge(env, change):
    model = Linear()
    env.reset(seed=0, options={"predictor": model})
    for _ in range(3):
        change(model)
        env.step(model)


@pytest.mark.parametrize("change", [count_steps, add_a_lambda, rename, change_the_temperature])
def test_small_changes_are_accepted_after_training(env, change):
    model = Linear()
    observation, _ = env.reset(seed=0, options={"predictor": model})
    for _ in range(3):
        with env.meter:
            x, y = (torch.from_numpy(observation["train"][name]) for name in ("x", "y"))
            nn.functional.cross_entropy(model(x), y).backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        change(model)
        observation, *_ = env.step(model)


def test_a_known_member_can_be_added_without_a_charge(env):
    first = Linear()
    env.reset(seed=0, options={"predictor": alma_env.Ensemble([first])})
    env.step(alma_env.Ensemble([first, first]))
    assert env.ledger[1].comp == 0


EPISODE: list[object] = []


class WithAMethodThatTrains(Linear):
    def fit(self, x, y):
        for env in EPISODE[:1]:
            with env.meter:
                nn.functional.cross_entropy(self(x), y).backward()
                torch.optim.SGD(self.parameters(), lr=0.1).step()


def test_a_method_that_trains_may_read_anything(env):
    model = WithAMethodThatTrains()
    EPISODE[:] = [env, arrays(0)]
    observation, _ = env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].buffers == 0
    model.fit(*(torch.from_numpy(observation["train"][name]) for name in ("x", "y")))
    env.step(model)


def test_a_module_may_keep_many_constants_and_a_counter(env):
    model = Linear()
    model.names = [f"class {n}" for n in range(100)]
    model.sizes = list(range(200))
    env.reset(seed=0, options={"predictor": model})
    assert env.ledger[0].buffers == 200
    count_steps(model)
    env.step(model)
