"""Claimed ledgers are read if they have possible numbers for the seeds of the manifest."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agents
import alma_env
from alma_env.ledger import row_to_json
from leaderboard.errors import SubmissionError
from leaderboard.submission.claims import read_claim
from leaderboard.submission.package import Package
from leaderboard.submission.static_check import check

from ..conftest import ledger_of, package_of

ENV = "Digits-ALMA-v0"


def claimed(seeds=(0, 1, 2), **changes: bytes) -> Package:
    files = {f"ledgers/seed-{seed}.jsonl": ledger_of(seed).to_json().encode() for seed in seeds}
    return Package({**package_of().files, **files, **changes})


def test_claimed_ledgers_of_every_seed_are_read():
    report = check(claimed())
    assert report.ok
    assert {seed: ledger.score() for seed, ledger in report.claims.items()} == {
        seed: ledger_of(seed).score() for seed in (0, 1, 2)
    }


def test_the_ledger_of_a_real_run_is_a_valid_claim():
    env = alma_env.make(ENV)
    ledger = agents.run(env, agents.make("sm", env, width=4, epochs=1, wait=20), seed=0)
    assert read_claim(ledger.to_json().encode(), ENV) == ledger


def test_claims_must_match_the_seeds_of_the_manifest():
    assert "no ledger of seed 2" in check(claimed(seeds=(0, 1))).errors[0]
    too_many = check(claimed(seeds=(0, 1, 2, 3)))
    assert "'ledgers/seed-3.jsonl': not a ledger of the manifest's seeds" in too_many.errors[0]
    for name in ("ledgers/seed-00.jsonl", "ledgers/notes.txt", "ledgers/a/seed-0.jsonl", "ledgers"):
        files = {**package_of().files, name: b""}
        assert "not a ledger of the manifest's seeds" in check(Package(files)).errors[0]


def spoiled(**changes) -> bytes:
    """Return the ledger of seed 0 with changed values in the row of tick 1."""
    lines = ledger_of(0).to_json().splitlines()
    values = json.loads(lines[1])
    values.update(changes)
    values = {name: value for name, value in values.items() if value is not ...}
    return "\n".join([lines[0], json.dumps(values), *lines[2:]]).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"error": float("nan")},
        {"error": float("inf")},
        {"error": -0.1},
        {"error": 1.5},
        {"error": "0"},
        {"error": True},
        {"error": 10**400},
        {"seconds": 10**400},
        {"inference_flops": 10**4000},
        {"error": None},
        {"tick": 2},
        {"tick": 1.0},
        {"tick": True},
        {"parameters": -1},
        {"parameters": 1.5},
        {"parameters": 10**30},
        {"flops": []},
        {"flops": {"training": -1}},
        {"flops": {"training": 0.5}},
        {"flops": {"\u202e": 1}},
        {"flops": {f"phase {number}": 1 for number in range(17)}},
        {"declared": "abc"},
        {"declared": ["x"] * 101},
        {"declared": [1]},
        {"declared": ["x" * 501]},
        {"digest": 1},
        {"digest": "<script>"},
        {"refused": 0},
        {"seconds": -1.0},
        {"seconds": float("inf")},
        {"seconds": 1e308},
        {"inference_flops": "many"},
        {"extra": 1},
        {"seconds": ...},
    ],
)
def test_an_impossible_row_is_refused(changes):
    report = check(claimed(**{"ledgers/seed-0.jsonl": spoiled(**changes)}))
    assert len(report.errors) == 1
    assert report.errors[0].startswith("ledgers/seed-0.jsonl: line 2: ")
    assert set(report.claims) == {1, 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" " * (2 * 2**20 + 1), "2,097,153 bytes: must have at most 2,097,152"),
        (b"", "0 rows: must be 21, for ticks 0 to 20 of Digits-ALMA-v0"),
        (ledger_of(0).to_json().encode() * 2, "42 rows"),
        (b"\xff", "not UTF-8"),
        (b"[]\n" * 21, "line 1: 'not a JSON object'"),
        (b"[" * 100_000 + b"\n" * 21, "line 1: "),
        (b"9" * 5000 + b"\n" * 21, "line 1: "),
        (b"{}\n" * 21, "line 1: "),
    ],
)
def test_bytes_that_are_not_a_ledger_are_refused(content, message):
    with pytest.raises(SubmissionError, match=message):
        read_claim(content, ENV)


def test_a_perplexity_above_one_is_accepted():
    rows = ledger_of(0, "Text-ALMA-v0").rows
    high = "\n".join(json.dumps(json.loads(row_to_json(row)) | {"error": 900.0}) for row in rows)
    assert read_claim(high.encode(), "Text-ALMA-v0").score().cer == 4500.0


_json = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.none(), max_size=2)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(list(json.loads(row_to_json(ledger_of(0)[0])))), _json | st.just({"a": 1})))
def test_a_row_with_any_values_gives_a_score_or_a_submission_error(changes):
    with contextlib.suppress(SubmissionError):
        assert read_claim(spoiled(**changes), ENV).score().ticks == 20
