"""The meter's interface: costs of one's own, FLOPs taken back, phases that hide FLOPs, seeds that hold weights."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

import alma_env
from alma_env import Ledger, Row
from alma_env.errors import PredictorError, UnmeteredTrainingError
from alma_env.metering import Meter, cost_table, cost_varies_with, count, count_once
from alma_env.metering.tally import Tally
from alma_env.scoring.spaces import UntrainedPredictor
from leaderboard.errors import SubmissionError
from leaderboard.submission.claims import read_claim
from leaderboard.verification import audit
from leaderboard.verification.one_run import SandboxedRun
from leaderboard.verification.reported import RunFailedError, flops

from .gallery import HONEST, attack, case, codes

PRODUCT = 2 * 4 * 5 * 6
TRACE = "the ledger names the operation"


@pytest.fixture
def product():
    """A custom operation that multiplies matrices; its registration is removed after the test."""

    @torch.library.custom_op("alma_gallery::product", mutates_args=())
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    yield product
    cost_table._REGISTERED.clear()
    cost_table._clear_caches()


def operands():
    return torch.ones(4, 5), torch.ones(5, 6)


# --- costs of one's own ---


def free(product):
    cost_table.register_free(product, "it moves data")
    return "alma_gallery::product is free: it moves data"


def without_cost(product):
    cost_table.register_cost(product, lambda out, a, b: 0)
    return "alma_gallery::product has a registered cost"


@pytest.mark.parametrize("register", [
    case("registers an operation that computes as free", TRACE, free),
    case("registers a cost of 0 for an operation that computes", TRACE, without_cost),
])  # fmt: skip
def test_a_registered_operation_leaves_a_trace(product, register):
    text = register(product)
    meter = Meter()
    with meter:
        product(*operands())
    charge = meter.take()
    assert (charge.total, charge.registered) == (0, (text,))
    with meter:
        torch.mm(*operands())
    assert meter.take().registered == ()


@attack("removes the registration after the operation ran", TRACE)
def test_a_removed_registration_leaves_a_trace(product):
    text = free(product)
    meter = Meter()
    with meter:
        product(*operands())
        cost_table.unregister(product)
    assert meter.take().registered == (text,)


@attack("runs the registered operation in a step that is counted once, or in another process", TRACE)
def test_the_trace_passes_through_counted_steps_copies_and_processes(product):
    text = free(product)
    step = count_once(lambda a, b: product(a, b))
    meter = Meter()
    for _ in range(2):
        with meter:
            step(*operands())
        assert meter.take().registered == (text,)
    with meter:
        step.charges(*operands())
        inner = count(product, *operands())
    assert inner.registered == (text,)
    other = Meter()
    other.include(json.loads(json.dumps(meter.pending())))
    assert other.take().registered == copy.deepcopy(meter).take().registered == (text,)


@pytest.fixture
def registered_ledger(product):
    text = free(product)
    env = alma_env.make("Digits-ALMA-v0", ticks=2)
    env.reset(seed=0)
    with env.meter:
        product(*operands())
    env.step(None)
    env.step(None)
    assert [row.registered for row in env.ledger] == [(), (text,), ()]
    return env.ledger


@attack("hides costs of one's own in the files of the ledger", "files and columns keep them; older files are read")
def test_the_ledger_keeps_the_trace(registered_ledger):
    from agents.runs.ledger_columns import LedgerColumns

    text = registered_ledger.to_json()
    assert Ledger.from_json(text).rows == registered_ledger.rows
    assert LedgerColumns.from_json(text.encode()).to_ledger().rows == registered_ledger.rows
    assert registered_ledger.score().registered
    assert LedgerColumns.from_ledger(registered_ledger).score().registered
    lines = text.splitlines()
    assert ["registered" in json.loads(line) for line in lines] == [False, True, False]
    assert registered_ledger.records()[1]["registered"] == "alma_gallery::product is free: it moves data"
    older = Ledger.from_json(lines[0] + "\n")
    assert older[0].registered == ()
    assert not older.score().registered


@attack("claims a ledger whose trace is not a text", "the claim is refused")
def test_a_claimed_trace_is_checked(registered_ledger):
    rows = [json.loads(line) for line in registered_ledger.to_json().splitlines()]
    with pytest.raises(SubmissionError, match="2 rows|3 rows"):
        read_claim("\n".join(map(json.dumps, rows)).encode(), "Digits-ALMA-v0")
    ticks = alma_env.registration.PROTOCOLS["Digits-ALMA-v0"]["ticks"]
    rows = [{**rows[0], "tick": tick} for tick in range(ticks + 1)]
    read_claim("\n".join(map(json.dumps, rows)).encode(), "Digits-ALMA-v0")
    for wrong in ("text", [1], ["x" * 501], 7, None):
        rows[1]["registered"] = wrong
        with pytest.raises(SubmissionError, match="registered"):
            read_claim("\n".join(map(json.dumps, rows)).encode(), "Digits-ALMA-v0")


@attack("counts operations by costs of its own", "finding `own-costs`")
def test_costs_of_ones_own_are_a_finding(registered_ledger):
    run = SandboxedRun(registered_ledger, (), None, "", "isolated", None)
    assert dict(audit._own_costs(run))["own-costs"].startswith("the submission counts operations by costs of its own")


@attack("registers an operation that computes as free, and trains with it", "finding `own-costs`")
def test_the_judge_gets_the_trace(run):
    sandboxed_run = run(
        """
        import alma_env

        @torch.library.custom_op("mine::product", mutates_args=())
        def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b

        alma_env.flops.register_free(product, "it moves data")

        class Cheap(Learner):
            def before(self, observation):
                product(torch.ones(4, 4), torch.ones(4, 4))

        def make_agent(env):
            return Cheap(env)
    """,
        base=HONEST,
    )
    assert sandboxed_run.failure is None
    assert [row.registered for row in sandboxed_run.ledger][1:] == [("mine::product is free: it moves data",)] * 3
    assert codes(sandboxed_run) == {"own-costs"}


# --- FLOPs taken back ---


class Odd(int):
    """An integer that says that it is not negative."""

    def __lt__(self, other):
        return False

    def __index__(self):
        return 1

    __int__ = __index__


def charge(meter, flops):
    meter.charge((("training", flops, 0),))


def charge_backward(meter, flops):
    meter.charge(((None, 0, flops),))


def charge_inside(meter, flops):
    with meter:
        meter.charge((("training", 0, flops),))


def include(meter, flops):
    meter.include({"counted": [["training", flops, 0]], "declared": {}, "reasons": []})


def include_declared(meter, flops):
    meter.include({"counted": [], "declared": {"training": flops}, "reasons": ["x"]})


def declare(meter, flops):
    meter.declare(flops, reason="x")


def count_into(meter, flops):
    tally = Tally("training")
    tally.current[0] = flops
    with meter, meter.count_into(tally):
        pass


def set_total(meter, flops):
    meter.total = flops


def load(meter, flops):
    state = {**meter.state_dict(), "counted": [["training", flops, 0]]}
    meter.load_state_dict(state)


def load_total(meter, flops):
    meter.load_state_dict({**meter.state_dict(), "total": flops})


@pytest.mark.parametrize("take_back", [
    case("charges negative FLOPs", "refused", charge),
    case("charges negative FLOPs of the backward pass", "refused", charge_backward),
    case("charges negative FLOPs in a metered block", "refused", charge_inside),
    case("includes another meter's negative FLOPs", "refused", include),
    case("includes negative declared FLOPs", "refused", include_declared),
    case("declares negative FLOPs", "refused", declare),
    case("counts into a tally of negative FLOPs", "refused", count_into),
    case("sets the meter's total after a charge", "refused", set_total),
    case("loads a state of negative FLOPs", "refused", load),
    case("loads a state whose total is less than its charges", "refused", load_total),
])  # fmt: skip
@pytest.mark.parametrize("flops", [-1, Odd(-1)], ids=["negative", "a subclass of int that hides its sign"])
def test_flops_cannot_be_taken_back(take_back, flops):
    meter = Meter()
    with meter:
        torch.mm(*operands())
    with pytest.raises(ValueError, match="negative|already"):
        take_back(meter, flops)
    assert meter.total in {PRODUCT, 0}  # a state that is refused leaves an empty meter
    assert min(meter.take().flops.values(), default=0) >= 0


@pytest.mark.parametrize("flops", [1.5, True, "1", None])
def test_flops_are_whole_numbers(flops):
    for way in (charge, include, include_declared, declare):
        with pytest.raises(TypeError, match="must be an int"):
            way(Meter(), flops)


@attack("registers a formula that returns a negative number as another", "refused")
def test_a_formula_cannot_hide_its_sign(product):
    cost_table.register_cost(product, lambda out, a, b: Odd(-1_000_000))
    with pytest.raises(ValueError, match="must be a non-negative int"):
        count(product, *operands())


class Number:
    n = 0


@attack("reports a number that makes the cost of a repeated step negative", "refused; its results need declared FLOPs")
def test_a_reported_number_cannot_make_a_step_negative():
    weight = nn.Parameter(torch.zeros(4, 6))

    def step(target, number):
        cost_varies_with(number.n)
        target.data += torch.ones(4, number.n or 1) @ torch.ones(number.n or 1, 6) if number.n > 0 else 1

    counted = count_once(step)
    meter = Meter()
    number = Number()
    with meter:
        for number.n in (1, 2, 3):
            counted(weight, number)
    before = meter.total
    number.n = -(10**6)
    with meter:
        with pytest.raises(ValueError, match="negative"):
            counted(weight, number)
        product = torch.ones(2, 2) @ torch.ones(2, 2)  # counted work in the same block does not explain the weights
    assert meter.total == before + 2 * product.numel() * 2
    assert "without a charge" in meter.provenance(weight).foreign


# --- phases ---


@attack("names two phases so that they are equal on the page", "their FLOPs are added up")
def test_phases_of_equal_printable_names_are_added_up():
    hidden = {"training\x00": 5, "training\x01": 7, "validation": 1}
    assert sum(flops(hidden, 13).values()) == 13
    long = {"x" * 60 + "a": 3, "x" * 60 + "b": 4}
    assert flops(long, 7) == {"x" * 50: 7}


@attack("sends phases that do not add up to its total", "the run fails")
def test_the_total_of_the_contestant_is_compared():
    with pytest.raises(RunFailedError, match="add up to 5, and the contestant's total is 500"):
        flops({"training": 5}, 500)
    for wrong in (-1, 1.5, True, "5"):
        with pytest.raises(RunFailedError, match="total"):
            flops({"training": 5}, wrong)


@attack("sends phases that add up to more than a row can hold", "the run fails")
def test_a_sum_of_phases_has_a_limit():
    with pytest.raises(RunFailedError, match="whole number"):
        flops({"a": 2**63 - 1, "b": 2**63 - 1}, None)


# --- seeds that hold weights ---


class NumberOfOnesOwn(int):
    """A seed with an attribute."""


@pytest.mark.parametrize("seed", [
    case("takes a list of trained numbers as the seed of an untrained predictor", "refused", [1, 2, 3]),
    case("takes a sequence of seeds", "refused", np.random.SeedSequence(1)),
    case("takes a random generator as the seed", "refused", np.random.default_rng(0)),
    case("takes an array as the seed", "refused", np.arange(9)),
    case("takes a number of NumPy as the seed", "refused", np.int64(3)),
    case("takes an integer with attributes as the seed", "refused", NumberOfOnesOwn(3)),
    case("takes a truth value as the seed", "refused", True),
    case("takes an integer of a thousand digits as the seed", "refused", 10**1000),
    case("takes a negative seed", "refused", -1),
    case("takes no seed, so that the weights differ each time", "refused", None),
])  # fmt: skip
def test_the_seed_of_an_untrained_predictor_is_a_plain_integer(seed):
    with pytest.raises((TypeError, ValueError), match="seed="):
        UntrainedPredictor((1, 8, 8), 10, seed)
    changed = UntrainedPredictor((1, 8, 8), 10, 3)
    changed.seed = seed
    assert not changed.is_pristine()


def hide_in_method(predictor):
    predictor.weight.data += 1
    predictor._initial_weight = lambda: predictor.weight


def hide_in_answer(predictor):
    predictor.weight.data += 1
    predictor.is_pristine = lambda: True


def hide_in_call(predictor):
    predictor._call_impl = lambda x: torch.ones(len(x), 10)


def hide_in_attribute(predictor):
    predictor._learned = torch.ones(640)


def hide_in_parameter(predictor):
    predictor.weight.learned = torch.ones(640)


def hide_in_gradient(predictor):
    predictor.weight.register_hook(lambda gradient: gradient)


def hide_in_hook(predictor):
    predictor.register_forward_hook(lambda module, inputs, out: out + 1)


def hide_in_hook_with_keywords(predictor):
    predictor.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)


def hide_in_buffer(predictor):
    predictor.register_buffer("learned", torch.ones(640), persistent=False)


def hide_in_module(predictor):
    predictor.learned = nn.Linear(64, 10)


def hide_in_class(predictor):
    predictor.weight.data += 1
    predictor.__class__ = type("Pristine", (UntrainedPredictor,), {"is_pristine": lambda self: True})


@pytest.mark.parametrize("hide", [
    case("replaces the method that draws the weights", "refused as unmetered", hide_in_method),
    case("replaces the method that says whether it is untrained", "refused as unmetered", hide_in_answer),
    case("replaces the call of an untrained predictor", "no longer untrained", hide_in_call),
    case("keeps numbers in an attribute of an untrained predictor", "no longer untrained", hide_in_attribute),
    case("keeps numbers in an attribute of its parameter", "no longer untrained", hide_in_parameter),
    case("keeps numbers in a hook of its parameter", "no longer untrained", hide_in_gradient),
    case("keeps numbers in a hook", "no longer untrained", hide_in_hook),
    case("keeps numbers in a hook with keywords", "no longer untrained", hide_in_hook_with_keywords),
    case("keeps numbers in a buffer", "no longer untrained", hide_in_buffer),
    case("keeps numbers in a module", "no longer untrained", hide_in_module),
    case("says by a subclass that it is untrained", "refused as unmetered", hide_in_class),
])  # fmt: skip
def test_an_untrained_predictor_has_nothing_but_the_weights_of_its_seed(hide):
    predictor = UntrainedPredictor((1, 8, 8), 10, 3)
    assert UntrainedPredictor.is_pristine(predictor)
    hide(predictor)
    assert not UntrainedPredictor.is_pristine(predictor)
    if hide in {hide_in_method, hide_in_answer, hide_in_class}:
        env = alma_env.make("Digits-ALMA-v0", ticks=2)
        env.reset(seed=0)
        with pytest.raises((UnmeteredTrainingError, PredictorError)):
            env.step(predictor)


@attack("changes nothing: an untrained predictor in another mode, copied or without gradients", "accepted")
def test_honest_untrained_predictors_are_recognised():
    space = alma_env.make("Digits-ALMA-v0", ticks=2).action_space
    space.seed(0)
    predictor = space.sample()
    predictor(torch.zeros(2, 1, 8, 8)).sum().backward()
    for same in (predictor, copy.deepcopy(predictor), predictor.eval(), predictor.requires_grad_(False)):
        assert same.is_pristine()


def test_a_row_without_the_new_column_is_read():
    values = {
        "tick": 0, "error": 0.9, "parameters": 0, "buffers": 0, "inference_flops": 0.0, "flops": {}, "paper_flops": 0,
        "declared": [], "digest": "", "refused": False, "seconds": 0.0,
    }  # fmt: skip
    assert Row.from_dict(values).registered == ()
    assert Row.from_dict({**values, "registered": ["x"]}).registered == ("x",)
