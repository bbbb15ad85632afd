"""The pages in a real browser: submission by form, keyboard, charts, review, and accessibility."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from leaderboard.board import queue
from leaderboard.board.details import details
from leaderboard.board.submissions import submit
from leaderboard.board.worker import work
from leaderboard.database.engine import connect
from leaderboard.verification.result import Finding, Verification, VerifiedRun

from .. import fake_verify
from ..conftest import ledger_of, package_of
from ..web_client import person, serving

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
BOARD = "/boards/Digits-ALMA-v0/0.1"
AUDIT = Path(__file__).with_name("accessibility.js").read_text(encoding="utf-8")
PHONE, DESK = {"width": 360, "height": 780}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    """The machine's Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"{CHROMIUM} is not installed; on Debian: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), timeout=120_000)
        yield opened
        opened.close()


class Site:
    """A board with a dozen submissions, at an address."""

    def __init__(self, engine: Engine, address: str) -> None:
        self.engine, self.address = engine, address
        self.ids = [self._publish(number) for number in range(12)]
        # The first of the board, with the longest words that a manifest can have.
        words = {"name": "W" * 80, "authors": ["V" * 80], "method": "m" * 40, "seeds": [6, 13, 20]}
        self.long_name = self._publish(15, **words)
        self.flagged = self._publish(12, Finding("suspicious", "cpu-time", "too little for its FLOPs", 1))
        self.waiting = submit(self.engine, package_of(name="that waits")).id
        self.ada, self.mia = person(self.engine, "Ada"), person(self.engine, "Mia", "maintainer")

    def _publish(self, number: int, *findings: Finding, **changes: object) -> int:
        method = ("sm", "ens", "gmoe")[number % 3]
        values = {"name": f"entry {number}", "seeds": [number, number + 1, number + 2], "method": method} | changes
        seeds = values["seeds"]
        sent = submit(self.engine, package_of(**values)).id
        runs = tuple(VerifiedRun(seed, ledger_of(seed, comp=10 ** (3 + number))) for seed in seeds)
        queue.finish(self.engine, queue.claim(self.engine, "w"), Verification(runs, findings))
        return sent


@pytest.fixture(scope="module")
def site(sqlite_board, tmp_path_factory) -> Iterator[Site]:
    file = tmp_path_factory.mktemp("browser") / "board.db"
    shutil.copy(sqlite_board, file)
    engine = connect(f"sqlite:///{file}")
    with serving(engine) as port:
        yield Site(engine, f"http://127.0.0.1:{port}")
    engine.dispose()


@pytest.fixture
def visit(browser, site):
    """Open a page in a new browser context. Errors in the browser fail the test."""
    contexts, errors = [], []

    def open_page(path: str, **options):
        options = {"viewport": DESK, "base_url": site.address} | options
        contexts.append(browser.new_context(**options))
        contexts[-1].set_default_timeout(60_000)
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if "Security Policy" in line.text else None)
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors


def log_in(page, who) -> None:
    page.goto("/login")
    page.get_by_label("Token").fill(who.token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/account")


def verify_all(site: Site) -> None:
    """Verify all queued submissions. The number in a submission's name determines its FLOPs."""
    work(site.engine, fake_verify.verify, until_empty=True, poll_seconds=0.02)


def remove_those_that_wait(site: Site) -> None:
    """Remove the submissions "that waits" from the queue, in which the new account has the first turn."""
    leases = [lease for lease in (queue.claim(site.engine, "w") for _ in range(2)) if lease]
    for lease in leases:
        if details(site.engine, lease.submission_id).manifest.name.startswith("that waits"):
            queue.fail(site.engine, lease, "removed from the queue", retry=False)
        else:
            queue.release(site.engine, lease)


@pytest.mark.parametrize("javascript", [True, False], ids=["JavaScript", "no JavaScript"])
def test_a_submission_by_form_is_queued_verified_and_ranked(visit, site, tmp_path, javascript):
    archive = tmp_path / "agent.zip"
    number = 2 + javascript
    archive.write_bytes(package_of(name=f"my agent {number}").to_zip())
    page = visit("/", java_script_enabled=javascript)
    page.get_by_role("link", name="Submit an agent").click()
    page.get_by_role("link", name="Make an account").click()
    page.get_by_label("Name").fill(f"Student-{number}")
    page.get_by_role("button", name="Make the account").click()
    page.get_by_role("heading", name=f"Welcome, Student-{number}").wait_for()
    assert page.get_by_label("Token").inner_text().startswith("alma_")
    page.get_by_role("link", name="Submit an agent").click()
    page.get_by_label("Zip of the submission").set_input_files(archive)
    page.get_by_role("button", name=f"Send as Student-{number}").click()
    page.wait_for_url("**/submissions/*")
    assert page.locator(".page-head .state").inner_text() == "queued"
    remove_those_that_wait(site)
    verify_all(site)
    if not javascript:
        page.reload()
    page.locator(".page-head .state", has_text="verified").wait_for()  # with JavaScript, the page updates itself
    page.get_by_text("by CER").wait_for()
    page.goto(f"{BOARD}?sort=comp")
    row = page.locator("tbody tr", has=page.get_by_role("link", name=f"my agent {number}", exact=True))
    assert row.locator(".place").inner_text() == "1"  # it has the smallest Comp
    submit(site.engine, package_of(name=f"that waits {number}"))


def test_the_keyboard_filters_sorts_and_compares(visit, site):
    page = visit(BOARD)
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert skip.inner_text() == "Skip to the content"
    assert skip.bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.locator(":focus").get_attribute("name") == "method":
            break
    else:
        pytest.fail("the keyboard does not reach the filters")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.type("ens")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.locator(":focus").inner_text() == "Apply":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**method=ens**")
    assert page.locator("tbody tr[data-row]").count() == 4
    page.get_by_role("link", name="Comp", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**sort=comp**")
    assert page.locator("th[aria-sort=ascending]").inner_text().strip().endswith("Comp")
    boxes = page.locator("input[name=id]")
    button = page.get_by_role("button", name="Compare two")
    assert button.is_disabled()
    for number in (0, 1):
        boxes.nth(number).focus()
        page.keyboard.press("Space")
    assert button.is_enabled()
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?a=*&b=*")
    page.get_by_role("img", name="Test error at every tick").wait_for()


def test_a_third_selection_replaces_the_first(visit, site):
    page = visit(BOARD, viewport={"width": 1280, "height": 1100})
    boxes = page.locator("input[name=id]")
    for number in range(3):
        boxes.nth(number).check()
    assert [boxes.nth(number).is_checked() for number in range(3)] == [False, True, True]
    bar = page.get_by_role("button", name="Compare two").bounding_box()
    assert 0 <= bar["y"] <= page.viewport_size["height"] - bar["height"]  # visible after the last checkbox


def test_a_dot_of_the_chart_highlights_its_line_and_links_to_its_submission(visit, site):
    page = visit(BOARD)
    dot = page.locator("#pareto-comp-title").locator("..").locator(".front circle").first
    number = dot.get_attribute("data-submission")
    dot.hover()
    assert "CER" in page.locator(".tip").inner_text()
    assert "lit" in page.locator(f'tr[data-row="{number}"]').get_attribute("class")
    dot.click()
    page.wait_for_url(f"**/submissions/{number}")
    page.locator("figure[data-curves] svg").hover()
    assert re.match(r"Tick \d+\nMean 0\.\d+\n", page.locator(".tip").inner_text())


def test_a_maintainer_reviews_by_form(visit, site):
    page = visit("/login")
    log_in(page, site.mia)
    page.get_by_role("link", name="Review flagged results").click()
    page.get_by_label("Reason").first.fill("a fast machine")
    page.get_by_role("button", name="Accept entry 12").click()
    page.wait_for_url(f"**/submissions/{site.flagged}")
    page.get_by_text("a fast machine").wait_for()


def test_every_page_is_accessible(visit, site):
    page = visit("/login")
    paths = ["/login", "/register", "/", BOARD, f"{BOARD}?method=ens&sort=comp", f"{BOARD}?method=x", "/submissions"]
    paths += [
        f"/submissions/{site.ids[0]}",
        f"/submissions/{site.flagged}",
        f"/submissions/{site.long_name}",
        "/compare",
        "/rules",
        "/submit",
        "/nothing",
    ]
    paths += [
        f"/compare?a={site.ids[0]}&b={site.ids[1]}",
        f"/compare?a={site.ids[0]}&b={site.long_name}",
        "/compare?a=1",
        f"{BOARD}?sort=x",
        "/boards/MNIST-ALMA-v0/0.1",
    ]
    found = {}

    def audit(path):
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        for screen, scheme in itertools.product((DESK, PHONE), ("light", "dark")):
            page.set_viewport_size(screen)
            page.emulate_media(color_scheme=scheme)
            found[path, screen["width"], scheme] = page.evaluate(AUDIT)

    for path in paths:
        audit(path)
    log_in(page, site.mia)
    for path in ("/account", "/review", f"/review?id={site.long_name}", "/submit"):
        audit(path)
    assert len(found) == 4 * 22
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_the_standings_can_be_read_on_a_phone_without_scrolling_sideways(visit, site):
    page = visit(BOARD, viewport={"width": 390, "height": 844})
    line = page.locator("tbody tr[data-row]").first
    cells = line.locator("td[data-label]")
    assert [cell.get_attribute("data-label") for cell in cells.all()] == [
        *("CER", "Final error", "Comp", "Paper FLOPs", "Mem", "Time", "Seeds", "Method", "Wait")
    ]
    boxes = [cell.bounding_box() for cell in [*cells.all(), line.locator("th.name"), line.locator(".place")]]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    assert page.evaluate("document.querySelector('.wide-table').scrollWidth") <= 358
    assert "CER" in page.evaluate("getComputedStyle(document.querySelector('td[data-label]'), '::before').content")
    assert page.locator(".names .leader").first.is_visible()  # the name of the leader in the chart


def test_a_long_name_leaves_the_numbers_of_the_standings_visible(visit, site):
    page = visit(BOARD)
    assert page.locator("th.name", has_text="W" * 80).count() == 1
    boxes = [cell.bounding_box() for cell in page.locator("tbody tr[data-row] td[data-label]").all()]
    assert all(box["x"] + box["width"] <= DESK["width"] for box in boxes)


def test_the_accessibility_audit_finds_problems(visit, site):
    page = visit("/rules", viewport=PHONE)
    page.evaluate(
        """document.querySelector("main").innerHTML = `<h1>A</h1><h3>B</h3><p>pale</p><input name="n"><button></button>
            <table><tr><th>x</th></tr></table><svg></svg><div id="wide">wide</div>`;
        document.querySelector("main p").style.color = "#999";
        document.querySelector("#wide").style.width = "500px";"""
    )
    found = "\n".join(page.evaluate(AUDIT))
    for problem in ("heading h3 after h1", "contrast 2.85", "no label: n", "no name: <button>", "without a caption"):
        assert problem in found
    assert "th without scope: x" in found
    assert "no text for an image" in found
    assert re.search(r"the page is 5\d\d wide", found)


def test_the_head_of_the_standings_stays_visible(visit, site):
    page = visit(BOARD, viewport={"width": 1280, "height": 500})
    page.locator("tbody tr[data-row]").last.scroll_into_view_if_needed()
    assert page.locator("table.standings thead th").nth(2).bounding_box()["y"] >= 0


def test_a_page_that_updates_itself_keeps_the_focus_and_shows_the_result(visit, site):
    number = submit(site.engine, package_of(name="watched 9")).id
    page = visit(f"/submissions/{number}")
    link = page.locator("main a").first
    link.focus()
    at = link.get_attribute("href")
    verify_all(site)
    page.locator("#result").wait_for()
    assert page.locator(":focus").get_attribute("href") == at
    assert page.evaluate("document.querySelector('main').dataset.live") == ""


def test_a_list_that_has_not_changed_keeps_the_focus_and_the_selection(visit, site):
    submit(site.engine, package_of(name="that waits 9"))
    page = visit("/submissions")
    assert page.evaluate("document.querySelector('main').dataset.live")
    link = page.locator("[data-part=list] a").nth(1)
    link.focus()
    page.evaluate("document.querySelector('[data-part=list]').dataset.mark = 'the same list'")
    with page.expect_response("**/submissions"), page.expect_response("**/submissions"):
        pass
    assert page.locator(":focus").get_attribute("href") == link.get_attribute("href")
    assert page.locator("[data-mark]").count() == 1
    remove_those_that_wait(site)
