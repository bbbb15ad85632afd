"""The meter's interface: operations whose cost, or freedom from cost, the cheater registers."""

from __future__ import annotations

import copy
import json

import pytest
import torch

import alma_env
from alma_env import Ledger
from alma_env.metering import Meter, count, count_once
from alma_env.metering.costs import cost_table
from leaderboard.errors import SubmissionError
from leaderboard.submission.claims import read_claim
from leaderboard.verification import audit
from leaderboard.verification.one_run import SandboxedRun

from ..gallery import attack, case, codes
from .conftest import operands

TRACE = "the ledger names the operation"


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
@pytest.mark.usefixtures("product")  # removes the registration
def test_the_judge_gets_the_trace(run_in_threads):
    sandboxed_run = run_in_threads(
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
    """
    )
    assert sandboxed_run.failure is None
    assert [row.registered for row in sandboxed_run.ledger][1:] == [("mine::product is free: it moves data",)] * 3
    assert codes(sandboxed_run) == {"own-costs"}
