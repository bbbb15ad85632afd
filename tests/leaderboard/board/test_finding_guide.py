"""Reviewers find every kind of finding in the guide, and the results show where Comp rests on costs of one's own."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import leaderboard
from leaderboard.board import finding_guide, queue
from leaderboard.board.details import details
from leaderboard.board.standings import standings
from leaderboard.board.submissions import submit
from leaderboard.verification.result import Verification, VerifiedRun

from ..conftest import ledger_of, package_of
from ..page_reader import BOARD, get, log_in
from ..web_client import client_of, person


def codes_of_the_audit() -> set[str]:
    found: set[str] = set()
    for file in (Path(leaderboard.__file__).parent / "verification").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        found |= set(re.findall(r'yield \(?\s*"([a-z-]+)"', text))
        found |= set(re.findall(r'Finding\(\s*"(?:info|suspicious|fatal)",\s*"([a-z-]+)"', text))
    return found


def test_the_guide_has_every_kind_of_finding():
    codes = [one.code for one in finding_guide.FINDINGS]
    assert len(codes) == len(set(codes))
    assert codes_of_the_audit() - set(codes) == set(), "add them to leaderboard/board/finding_guide.py"


def test_the_page_of_the_docs_is_up_to_date():
    page = Path(leaderboard.__file__).parents[1] / "docs" / "reviewing.md"
    assert page.read_text(encoding="utf-8") == finding_guide.page()


def with_own_costs(seed: int, cpu_seconds: float | None) -> VerifiedRun:
    ledger = ledger_of(seed)
    ledger.rows[1] = dataclasses.replace(ledger.rows[1], registered=("my::kernel, free", "<b>my::other</b>"))
    return VerifiedRun(seed, ledger, cpu_seconds)


def publish(engine, name: str, runs: tuple[VerifiedRun, ...]) -> int:
    sent = submit(engine, package_of(name=name)).id
    queue.finish(engine, queue.claim(engine, "w"), Verification(runs))
    return sent


def test_own_costs_and_cpu_seconds_are_shown_beside_comp(engine):
    marked = publish(engine, "marked", tuple(with_own_costs(seed, 61.5) for seed in (0, 1, 2)))
    plain = publish(engine, "plain", tuple(VerifiedRun(seed, ledger_of(seed)) for seed in (0, 1, 2)))
    assert [(run.cpu_seconds, run.own_costs) for run in details(engine, marked).runs] == [(61.5, True)] * 3
    assert [(run.cpu_seconds, run.own_costs) for run in details(engine, plain).runs] == [(None, False)] * 3
    assert {line.name: line.own_costs for line in standings(engine, "Digits-ALMA-v0").lines} == {
        "marked": True,
        "plain": False,
    }
    with client_of(engine) as client:
        page = get(client, f"/submissions/{marked}")
        assert "registered the cost, or the freedom from cost, of some operations" in page.text
        assert "my::kernel, free" in page.text
        assert page.all("b") == []
        assert "1 min" in page.text
        assert "own costs" not in get(client, f"/submissions/{plain}").text
        assert get(client, BOARD).text.count("own costs") == 1
        (run, *_) = client.get(f"/api/v1/submissions/{marked}").json()["runs"]
        assert (run["own_costs"], run["cpu_seconds"]) == (True, 61.5)
        assert client.get("/api/v1/boards/Digits-ALMA-v0/0.1").json()["lines"][0]["own_costs"] in (True, False)
        assert "known-before" in get(client, "/review/findings").text
        log_in(client, person(engine, "Mia", "maintainer"))
        assert "/review/findings" in get(client, "/review").links
