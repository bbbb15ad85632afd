"""The standings are sorted, filtered and of one version of the rules. Exports have the same values."""

from __future__ import annotations

import csv
import json
from collections import Counter
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from agents.analysis.statistics import Interval
from leaderboard.accounts.accounts import make_account
from leaderboard.board import export, queue
from leaderboard.board import standings as board_standings
from leaderboard.board.details import details, ledgers
from leaderboard.board.listing import list_submissions
from leaderboard.board.results import decide
from leaderboard.board.standings import boards, standings
from leaderboard.board.submissions import submit
from leaderboard.database.engine import writing
from leaderboard.database.tables import Account, Result
from leaderboard.errors import NotFoundError, SubmissionError
from leaderboard.verification.result import Finding

from ..conftest import ledger_of, package_of, verification_of
from ..page_reader import publish

ENV = "Digits-ALMA-v0"


@pytest.fixture
def filled(engine):
    """A board with four submissions. Order by CER: c, a, d, b. Order by Comp: a, b, c, d."""
    return engine, {
        "a": publish(engine, name="a", comp=10, seeds=(1, 2, 3), method="sm", wait=5),
        "b": publish(engine, name="b", comp=100, seeds=(0, 1, 7), method="ens", wait=5),
        "c": publish(engine, name="c", comp=1000, seeds=(4, 5, 6), method="sm"),
        "d": publish(engine, name="d", comp=10_000, seeds=(0, 1, 2, 3), method="sm", authors=["Ada", "Bob"]),
    }


def names(found) -> str:
    return "".join(line.name for line in found.lines)


def test_the_smallest_cer_is_first_and_has_an_interval_over_seeds(filled):
    engine, ids = filled
    found = standings(engine, ENV)
    assert (names(found), found.total) == ("cadb", 4)
    first = found.lines[0]
    cers = [ledger_of(seed).score().cer for seed in (4, 5, 6)]
    assert first.cer == Interval.of(cers)
    assert (first.place, first.submission_id, first.seeds, first.authors) == (1, ids["c"], 3, ("Ada",))
    assert found.lines[2].authors == ("Ada", "Bob")
    assert first.verified_at.tzinfo == UTC
    assert first.comp.mean == 20 * (1000 + 5 + 7)


def test_standings_are_sorted_in_both_directions_and_paged(filled):
    engine, _ = filled
    assert names(standings(engine, ENV, sort="comp")) == "abcd"
    assert names(standings(engine, ENV, sort="comp", descending=True)) == "dcba"
    page = standings(engine, ENV, sort="comp", limit=2, offset=1)
    assert (names(page), page.total, [line.place for line in page.lines]) == ("bc", 4, [2, 3])
    assert standings(engine, ENV, offset=9).lines == ()


def test_equal_means_are_sorted_by_submission(engine):
    for name in "xyz":
        publish(engine, name=name)
    assert names(standings(engine, ENV)) == "xyz"
    assert names(standings(engine, ENV, descending=True)) == "zyx"


def test_standings_are_filtered_by_method_budget_and_waiting_time(filled):
    engine, _ = filled
    assert names(standings(engine, ENV, method="sm")) == "cad"
    assert names(standings(engine, ENV, waiting_time=5)) == "ab"
    assert names(standings(engine, ENV, budget_class=3)) == "a"
    assert standings(engine, ENV, method="sm", budget_class=6).total == 1
    assert standings(engine, ENV, method="'; DROP TABLE results; --").total == 0
    assert standings(engine, "MNIST-ALMA-v0").total == 0
    (board,) = boards(engine)
    assert (board.env_id, board.rules_version, board.submissions) == (ENV, "0.1", 4)
    assert (board.methods, board.budget_classes, board.waiting_times) == (("ens", "sm"), (3, 4, 5, 6), (5,))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"sort": "id"}, "sort='id': must be one of cer, mem"), ({"limit": 0}, "limit=0"), ({"offset": -1}, "offset=-1")],
)
def test_invalid_orders_and_pages_are_refused(engine, options, message):
    with pytest.raises(ValueError, match=message):
        standings(engine, ENV, **options)


def test_results_under_other_rules_are_on_another_board(filled):
    engine, ids = filled
    with writing(engine) as session:
        session.execute(update(Result).where(Result.submission_id == ids["c"]).values(rules_version="0.2"))
    assert names(standings(engine, ENV)) == "adb"
    assert names(standings(engine, ENV, "0.2")) == "c"
    assert [(board.rules_version, board.submissions) for board in boards(engine)] == [("0.1", 3), ("0.2", 1)]


def test_suspicious_results_wait_for_a_maintainer_and_fatal_ones_are_rejected(engine):
    suspicious = publish(engine, Finding("suspicious", "cpu-time", "too little for its FLOPs"), name="s")
    fatal = publish(engine, Finding("fatal", "cheats", "it read the test set"), name="f")
    assert standings(engine, ENV).total == 0
    make_account(engine, "Mia", "maintainer")
    for name in ("local", "nobody"):
        with pytest.raises(NotFoundError, match="not an active maintainer"):
            decide(engine, suspicious, name, accept=True, reason="fine")
    with pytest.raises(SubmissionError, match="reason=.*write one"):
        decide(engine, suspicious, "Mia", accept=True, reason=" ")
    queued = submit(engine, package_of(name="q")).id
    for id, why in ((queued, "it has no result; wait"), (99, "it does not exist; see the list")):
        with pytest.raises(NotFoundError, match=f"submission {id}: {why}"):
            decide(engine, id, "Mia", accept=True, reason="fine")
    decide(engine, suspicious, "Mia", accept=True, reason="a fast machine")
    assert names(standings(engine, ENV)) == "s"
    shown = details(engine, suspicious)
    assert (shown.state, shown.published) == ("verified", True)
    assert shown.findings[0].code == "cpu-time"
    assert (shown.events[-1].kind, shown.events[-1].text) == ("accepted", "a fast machine")
    decide(engine, suspicious, "Mia", accept=False, reason="not that fast")
    assert standings(engine, ENV).total == 0
    assert details(engine, fatal).state == "rejected"


@pytest.mark.parametrize("runs", [1, 3, 4])
def test_a_result_with_a_fatal_finding_or_without_all_its_runs_cannot_be_accepted(engine, runs):
    sent = submit(engine, package_of(seeds=[0, 1, 2, 3])).id
    crash = Finding("fatal", "crash", "it crashed")
    queue.finish(engine, queue.claim(engine, "w"), verification_of(range(runs), crash))
    with writing(engine) as session:
        session.add(Account(name="Mia", role="maintainer", created_at=datetime.now(UTC)))
    with pytest.raises(SubmissionError, match=f"{runs} verified runs of 4 and the fatal finding crash; .*reject it"):
        decide(engine, sent, "Mia", accept=True, reason="kind")
    assert standings(engine, ENV).total == 0
    decide(engine, sent, "Mia", accept=False, reason="it crashed")


def test_details_of_a_verified_submission_are_complete(filled):
    engine, ids = filled
    found = details(engine, ids["d"])
    assert (found.id, found.account, found.state, found.attempts) == (ids["d"], "local", "verified", 1)
    assert found.manifest.authors == ("Ada", "Bob")
    assert [(run.seed, run.cer) for run in found.runs] == [(seed, ledger_of(seed).score().cer) for seed in range(4)]
    assert found.environment["isolation"] == "none, a test"
    assert [entry.kind for entry in found.events] == ["submitted", "claimed", "verified"]
    assert ledgers(engine, ids["d"]) == {seed: ledger_of(seed, comp=10_000) for seed in range(4)}
    for read in (details, ledgers):
        with pytest.raises(NotFoundError, match="submission 99"):
            read(engine, 99)


def test_a_queued_submission_has_details(engine):
    sent = submit(engine, package_of()).id
    found = details(engine, sent)
    assert (found.state, found.runs, found.findings, found.published, found.worker) == ("queued", (), (), False, None)
    assert ledgers(engine, sent) == {}


def test_lines_for_a_terminal_have_no_control_characters(engine):
    sent = publish(engine, Finding("suspicious", "odd", "\x1b[31mred\x1b[0m \u202e", seed=1), name="s")
    lines = details(engine, sent).lines()
    assert lines[0] == f"submission {sent}: flagged"
    assert "suspicious: odd (seed 1): \\x1b[31mred\\x1b[0m \\u202e" in lines
    assert any(line.startswith("cer ") and line.endswith("over 3 seeds") for line in lines)
    assert [one.columns()[:5] for one in list_submissions(engine, limit=5).lines] == [
        (str(sent), "flagged", ENV, "s", "sm")
    ]


# Exports.


def test_the_three_formats_have_equal_values(filled, tmp_path):
    import pyarrow.parquet

    engine, _ = filled
    records = export.submissions(engine, ENV)
    assert [record["name"] for record in records] == ["c", "a", "d", "b"]
    assert records[2]["authors"] == "Ada; Bob"
    for format in export.FORMATS:
        export.write(records, tmp_path / f"board.{format}")
    assert json.loads((tmp_path / "board.json").read_text()) == records
    assert pyarrow.parquet.read_table(tmp_path / "board.parquet").to_pylist() == records
    with open(tmp_path / "board.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["cer_mean"]) for row in rows] == [record["cer_mean"] for record in records]
    assert [row["waiting_time"] for row in rows] == ["", "5", "", "5"]


def test_a_result_published_during_an_export_does_not_move_the_others(filled, monkeypatch):
    engine, _ = filled

    def publish_between(parts, name):
        for number, part in enumerate(parts):
            yield part
            if number == 0:
                publish(engine, name=name, seeds=(4, 5, 6))

    monkeypatch.setattr(board_standings, "LONGEST_PAGE", 2)
    whole = board_standings.parts_of
    monkeypatch.setattr(board_standings, "parts_of", lambda ids: publish_between(whole(ids), "new"))
    records = export.submissions(engine, ENV)
    assert [(record["place"], record["name"]) for record in records] == list(enumerate("cadb", start=1))
    monkeypatch.setattr(export, "parts_of", lambda ids: publish_between(whole(ids), "newer"))
    exported = Counter(record["submission_id"] for record in export.runs(engine, ENV))
    known = list_submissions(engine, limit=9).lines
    assert exported == {line.id: 4 if line.name == "d" else 3 for line in known if line.name != "newer"}


def test_exported_runs_are_exact_for_any_size(engine, tmp_path):
    import pyarrow.parquet

    publish(engine, name="small")
    publish(engine, name="huge", comp=10**20 + 1)
    records = export.runs(engine, ENV)
    assert [(record["name"], record["seed"]) for record in records] == [
        (name, seed) for name in ("small", "huge") for seed in (0, 1, 2)
    ]
    assert records[3]["comp"] == 20 * (10**20 + 8)
    for format in export.FORMATS:
        export.write(records, tmp_path / f"runs.{format}")
    assert json.loads((tmp_path / "runs.json").read_text()) == records
    assert pyarrow.parquet.read_table(tmp_path / "runs.parquet").column("comp").to_pylist()[3] == float(20 * 10**20)


def test_a_spreadsheet_evaluates_no_text_of_a_submission(engine, tmp_path):
    publish(engine, name="=HYPERLINK(1)", authors=["@SUM(1)"])
    export.write(export.submissions(engine, ENV), tmp_path / "board.csv")
    with open(tmp_path / "board.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["authors"]) == ("'=HYPERLINK(1)", "'@SUM(1)")


def test_an_empty_export_and_an_unknown_format_are_refused(engine, tmp_path):
    with pytest.raises(NotFoundError, match="no published result"):
        export.write(export.submissions(engine, ENV), tmp_path / "board.csv")
    publish(engine, name="a")
    with pytest.raises(ValueError, match="must be one of csv, json, parquet"):
        export.write(export.submissions(engine, ENV), tmp_path / "board.xlsx")
