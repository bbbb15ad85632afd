"""What a contestant reports is checked before it is used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leaderboard.rules import PHASES
from leaderboard.verification.reported import PHASES_OF_A_RUN, NamesAndTexts, RunFailedError, flops

from ..conftest import ledger_of


def test_phases_with_equal_printable_names_are_added_up():
    assert flops({"a\0": 1, "a\1": 2, "b": 3}, 6) == {"a\ufffd": 3, "b": 3}


@pytest.mark.parametrize(
    ("found", "total", "message"),
    [
        ([], None, r"flops=\[\]: must be a table by phase"),
        (dict.fromkeys(map(str, range(PHASES + 1)), 1), None, "17 phases in one tick; at most 16 .* use fewer names"),
        ({"a": 1, "b": 2}, 4, "the phases add up to 3, and the contestant's total is 4"),
        ({"a": 1.5}, None, "flops=1.5: must be a whole number"),
    ],
)
def test_malformed_flops_end_the_run(found, total, message):
    with pytest.raises(RunFailedError, match=message):
        flops(found, total)


def test_the_names_and_texts_of_a_run_have_limits():
    row, names = ledger_of(0)[1], NamesAndTexts()
    for tick in range(PHASES_OF_A_RUN):
        names.add(replace(row, flops={f"phase {tick}": 1}))
    with pytest.raises(RunFailedError, match=r"65 names of phases in the run; at most 64 .* at every tick"):
        names.add(replace(row, flops={"another": 1}))
    names, texts = NamesAndTexts(), replace(row, flops={}, declared=("x" * 200,) * 5, registered=("y" * 200,) * 5)
    for _ in range(500):
        names.add(texts)
    with pytest.raises(RunFailedError, match=r"1,002,000 characters in the run; at most 1,000,000"):
        names.add(texts)
