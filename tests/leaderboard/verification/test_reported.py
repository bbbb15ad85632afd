"""What a contestant reports is checked before it is used."""

from __future__ import annotations

import pytest

from leaderboard.verification.reported import PHASES, RunFailedError, flops


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
