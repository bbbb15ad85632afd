"""The ledger is plain data and its score is the sum of its rows."""

from __future__ import annotations

import dataclasses
import json

import pytest

from alma_env import Ledger, Row


def row(tick: int, **changes) -> Row:
    values = {
        "tick": tick,
        "error": 0.1 + 0.2 / (tick + 1),
        "parameters": 10 * tick,
        "buffers": 3,
        "inference_flops": 52.0,
        "flops": {"training": 600 * tick, "validation": 7 * tick} if tick else {},
        "paper_flops": 500 * tick,
        "declared": (),
        "digest": "ab",
        "refused": False,
        "seconds": 0.25,
    }
    return Row(**{**values, **changes})


@pytest.fixture
def ledger() -> Ledger:
    return Ledger([row(0), row(1), row(2, declared=("JAX",))])


def test_the_score_is_the_sum_of_the_rows(ledger):
    score = ledger.score()
    assert score.cer == pytest.approx(0.3 + 0.2 + (0.1 + 0.2 / 3))
    assert score.cer - score.cer_from_1 == pytest.approx(ledger[0].error)
    assert score.mean_error == score.cer / 3
    assert score.mean_error_from_1 == pytest.approx((0.2 + (0.1 + 0.2 / 3)) / 2)
    assert Ledger([row(0)]).score().mean_error_from_1 is None
    assert score.final_error == ledger[2].error
    assert (score.mem, score.comp, score.paper_flops) == (30, 3 * 607, 1500)
    assert score.comp_by_phase == {"training": 1800, "validation": 21}
    assert score.ticks == 2
    assert score.declared
    assert score.seconds == 0.75
    assert not score.truncated
    assert Ledger([*ledger.rows, row(3, refused=True)]).score().truncated


def test_regret_is_the_error_in_excess_of_the_oracles(ledger):
    oracle = Ledger([row(0), row(1, error=0.05), row(2, error=0.25)])
    assert ledger.score().regret is None
    assert ledger.score(oracle=oracle).regret == pytest.approx(0 + (0.2 - 0.05) + (0.1 + 0.2 / 3 - 0.25))
    with pytest.raises(ValueError, match="oracle with 1 ticks, ledger with 2"):
        ledger.score(oracle=Ledger([row(0), row(1)]))


def test_json_keeps_every_bit(ledger):
    again = Ledger.from_json(ledger.to_json())
    assert again == ledger
    assert again.to_json() == ledger.to_json()
    assert [json.loads(line)["tick"] for line in ledger.to_json().splitlines()] == [0, 1, 2]


def test_records_are_flat_columns_for_pandas_and_arrow(ledger):
    frame = ledger.to_pandas()
    assert frame["flops_validation"].tolist() == [0, 7, 14]
    assert frame["comp"].sum() == ledger.score().comp
    pyarrow = pytest.importorskip("pyarrow")
    assert pyarrow.Table.from_pylist(ledger.records()).num_rows == 3


def test_rows_come_in_the_order_of_ticks(ledger):
    with pytest.raises(ValueError, match="row of tick 5: .* the next tick is 3"):
        ledger.append(row(5))


def test_an_empty_ledger_has_no_score():
    with pytest.raises(ValueError, match="0 rows: .*reset"):
        Ledger().score()


def test_an_invalid_line_is_refused_with_its_number(ledger):
    lines = ledger.to_json().splitlines()
    with pytest.raises(ValueError, match="line 2: not a ledger row"):
        Ledger.from_json(lines[0] + "\n{broken\n")
    for number in ("NaN", "Infinity"):
        with pytest.raises(ValueError, match=f"line 2: not a ledger row .{number} is no finite number"):
            Ledger.from_json(lines[0] + "\n" + lines[1].replace(f'"error": {ledger[1].error}', f'"error": {number}'))
    for number in ("1e999", '"x"', "true", "null"):
        with pytest.raises(ValueError, match="line 2: error=.*: must be a finite number"):
            Ledger.from_json(lines[0] + "\n" + lines[1].replace(f'"error": {ledger[1].error}', f'"error": {number}'))
    values = dataclasses.asdict(row(0))
    del values["digest"]
    with pytest.raises(ValueError, match=r"columns \['digest'\]"):
        Ledger.from_json(json.dumps(values))
