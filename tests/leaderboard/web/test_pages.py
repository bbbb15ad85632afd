"""The pages: boards, submissions, comparisons, and the cache of pages."""

from __future__ import annotations

import re
from contextlib import closing
from html import unescape

import pytest

from leaderboard.board import queue
from leaderboard.board.details import details
from leaderboard.board.results import decide
from leaderboard.board.submissions import package_of as stored_package
from leaderboard.board.submissions import submit
from leaderboard.database.engine import reading
from leaderboard.verification.result import Finding

from ..conftest import package_of, verification_of
from ..page_reader import BOARD, Read, form, get, log_in, publish
from ..web_client import client_of, person

EVIL = '<img src=x onerror=alert(1)>";--'

BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


# Boards.


def test_an_empty_board_links_to_the_submit_page(client):
    assert "/submit" in get(client, "/").links
    page = get(client, BOARD)
    assert "No result yet" in page.text


@BOTH
def test_the_first_page_has_every_board_with_its_best_submission(client, filled):
    page = get(client, "/")
    assert BOARD in page.links
    assert "/boards/MNIST-ALMA-v0/0.1" in page.links
    assert re.search(r"best CER, by\s+c\b", page.text)
    assert "3 submissions, 2 methods, 20 mega-batches" in page.text


@BOTH
def test_links_and_a_form_sort_and_filter_the_standings(client, filled):
    a, b, c = filled["a"], filled["b"], filled["c"]
    page = get(client, BOARD)
    assert page.rows == [c, a, b]
    assert [h["aria-sort"] for h in page.all("th") if "aria-sort" in h] == ["ascending"]
    assert f"{BOARD}?sort=comp" in page.links
    by_comp = get(client, f"{BOARD}?sort=comp")
    assert by_comp.rows == [a, b, c]
    assert f"{BOARD}?sort=comp&descending=1" in by_comp.links
    assert get(client, f"{BOARD}?sort=comp&descending=1").rows == [c, b, a]
    assert get(client, f"{BOARD}?method=ens&waiting_time=&budget_class=&sort=cer&descending=").rows == [b]
    assert get(client, f"{BOARD}?waiting_time=5").rows == [a, b]
    assert get(client, f"{BOARD}?budget_class=5&method=sm").rows == [c]
    nothing = get(client, f"{BOARD}?method=none")
    assert "No submission matches these filters" in nothing.text
    assert BOARD in nothing.links
    assert "Page 7 does not exist" in get(client, f"{BOARD}?page=7").text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sort=name", "sort='name': must be one of cer, final_error, comp"),
        ("descending=2", "descending='2': must be 0 or 1"),
        ("page=0", "page='0': must be a whole number from 1"),
        ("page=99999999999999", "must be a whole number from 1 to 2147483647"),
        ("waiting_time=-1", "waiting_time='-1'"),
        ("budget_class=%C2%B2", "budget_class='²'"),
    ],
)
def test_invalid_queries_are_refused(client, query, message):
    text = get(client, f"{BOARD}?{query}", 400).text
    assert message.replace("cer, final_error, comp", "cer, mem, comp") in text


def test_missing_pages_are_reported(client, filled):
    assert "Board not found" in get(client, "/boards/Nothing-v0/0.1", 404).text
    assert "Board not found" in get(client, "/boards/Digits-ALMA-v0/9.9", 404).text
    assert "submission 99: it does not exist" in get(client, "/submissions/99", 404).text
    assert "must be a whole number" in get(client, "/submissions/x", 404).text
    assert "No page has this address" in get(client, "/nothing", 404).text
    response = client.get("/boards/Digits-ALMA-v0?sort=mem")
    assert (response.status_code, response.headers["location"]) == (307, f"{BOARD}?sort=mem")


def test_the_pareto_charts_have_tables_with_the_same_numbers(client, filled):
    page = get(client, BOARD)
    assert len(page.all("svg", role="img")) == 2
    dots = {int(dot["data-submission"]) for dot in page.all("circle")}
    assert dots == set(filled.values())
    assert page.text.count("The front as a table") == 2
    assert "Pareto front: 2 submissions that no other submission dominates in CER and Comp." in page.text
    only = get(client, f"{BOARD}?method=ens")
    assert {int(dot["data-submission"]) for dot in only.all("circle")} == {filled["b"]}


def test_every_download_of_a_board_works(client, filled):
    for address in [link for link in get(client, BOARD).links if "/export" in link]:
        assert client.get(address).status_code == 200


def test_long_standings_have_pages(client, engine, monkeypatch):
    from leaderboard.web.pages import boards
    from leaderboard.web.view import urls

    for module in (urls, boards):
        monkeypatch.setattr(module, "PAGE_LINES", 2)
    ids = [publish(engine, name=f"n {seed}", seeds=(seed, seed + 1, seed + 2)) for seed in range(3)]
    first = get(client, BOARD)
    assert len(first.rows) == 2
    assert "Page 1 of 2" in first.text
    assert f"{BOARD}?page=2" in first.links
    second = get(client, f"{BOARD}?page=2")
    assert sorted(first.rows + second.rows) == ids
    assert BOARD in second.links


# Texts of submissions.


def test_texts_of_submissions_are_escaped_on_every_page(client, engine):
    links = '[links]\ncode = "https://example.org/?a=1&b=2"\n'
    finding = Finding("suspicious", "<i>", EVIL)
    sent = publish(engine, finding, name=EVIL, authors=[EVIL], description=EVIL, links=links)
    other = publish(engine, name="fine", comp=7)
    mia = person(engine, "Mia", "maintainer")
    log_in(client, mia)
    for path in (f"/submissions/{sent}", "/submissions", "/", f"/compare?a={sent}&b={other}", "/review"):
        response = client.get(path)
        page = Read(response)
        assert EVIL in unescape(response.text)
        assert not page.all("i")
        assert not any("onerror" in attributes for _, attributes in page.elements)
        assert not [a for a in page.all("script") if "src" not in a]
    (link,) = [a for a in get(client, f"/submissions/{sent}").all("a") if a["href"].startswith("https://example")]
    assert link["rel"] == "nofollow noopener noreferrer"


def test_no_page_has_inline_styles_or_scripts(client, filled):
    pages = ["/", BOARD, "/submissions", f"/submissions/{filled['a']}", "/compare", "/submit", "/rules", "/login"]
    for path in [*pages, "/register", f"/compare?a={filled['a']}&b={filled['b']}"]:
        page = get(client, path)
        assert not page.all("style")
        assert all(a.get("src", "").startswith("/static/board.js?v=") for a in page.all("script"))
        assert not any(key == "style" or key.startswith("on") for _, a in page.elements for key in a)
        for asset in [a["href"] for a in page.all("link")]:
            assert client.get(asset).status_code == 200


# Submissions.


@BOTH
def test_the_page_of_a_submission_is_complete(client, engine, filled):
    page = get(client, f"/submissions/{filled['a']}")
    for text in (
        "place 2 of 3 by CER",
        "waiting time 5",
        "training",
        "validation",
        "The audit has no findings",
        "by Ada",
    ):
        assert text in page.text
    assert "none, a test" in page.text
    for address in [link for link in page.links if link.startswith("/api/") and "openapi" not in link]:
        assert client.get(address).status_code == 200, address
    assert f"/api/v1/submissions/{filled['a']}/ledgers/3" in page.links
    with reading(engine) as session:
        assert stored_package(session, filled["a"]).digest in page.text


@BOTH
def test_the_page_shows_a_queued_running_and_verified_submission(client, engine):
    sent = submit(engine, package_of(name="mine")).id
    later = submit(engine, package_of(name="later")).id
    assert "This submission is next in the queue" in get(client, f"/submissions/{sent}").text
    assert "1 submission is ahead in the queue" in get(client, f"/submissions/{later}").text
    lease = queue.claim(engine, "w")
    queue.renew(engine, lease, progress="run 2 of 3, seed 1, tick 7 of 20")
    page = get(client, f"/submissions/{sent}")
    assert "Attempt 1: run 2 of 3, seed 1, tick 7 of 20." in page.text
    assert page.all("main")[0]["data-live"] == "3"
    assert "run 2 of 3" in get(client, "/submissions").text
    assert get(client, BOARD).rows == []
    queue.finish(engine, lease, verification_of())
    page = get(client, f"/submissions/{sent}")
    assert "place 1 of 1 by CER" in page.text
    assert "data-live" not in page.all("main")[0]
    assert get(client, BOARD).rows == [sent]
    assert f"/submissions/{sent}" not in get(client, "/submissions?state=queued").links
    assert f"/submissions/{later}" in get(client, "/submissions?state=queued").links
    get(client, "/submissions?state=lost", 400)


def test_only_maintainers_see_the_errors_of_workers(client, engine):
    sent = submit(engine, package_of()).id
    queue.fail(engine, queue.claim(engine, "secret-host"), "Traceback: /home/secret", retry=False)
    page = get(client, f"/submissions/{sent}")
    assert "The verification failed" in page.text
    assert "after 1 of 3 attempts: the worker failed; a maintainer can queue it again" in page.text
    assert "secret" not in page.text
    log_in(client, person(engine, "Mia", "maintainer"))
    assert "Traceback: /home/secret" in get(client, "/review").text
    response = form(client, "/review", "/review/retry", id=str(sent))
    assert response.headers["location"] == f"/submissions/{sent}"
    assert "This submission is next in the queue" in get(client, f"/submissions/{sent}").text


def test_the_page_and_the_terminal_say_why_a_submission_failed_or_was_rejected(client, engine, mia):
    failed = submit(engine, package_of(name="old")).id
    queue.fail(engine, queue.claim(engine, "w"), "sent under old rules; send it again", retry=False, public=True)
    page = get(client, f"/submissions/{failed}").text
    assert "It ended after 1 of 3 attempts: sent under old rules; send it again." in page
    assert "You need not send it again" not in page
    rejected = publish(engine, Finding("suspicious", "odd", "an odd thing"))
    decide(engine, rejected, mia.name, accept=False, reason="no answer of the authors")
    assert "A maintainer rejected the result: no answer of the authors" in get(client, f"/submissions/{rejected}").text
    assert details(engine, rejected).lines()[-1].endswith(" UTC rejected: no answer of the authors")
    fatal = publish(engine, Finding("fatal", "failed", "it stopped"), name="fatal")
    assert "The findings of the audit give the reason" in get(client, f"/submissions/{fatal}").text


# Comparing.


def test_a_comparison_pairs_the_seeds(client, engine):
    a = publish(engine, name="first", comp=100, seeds=(0, 1, 2), wait=5)
    b = publish(engine, name="second", comp=900, seeds=(1, 2, 3), wait=7)
    response = client.get(f"/compare?id={a}&id={b}")
    assert (response.status_code, response.headers["location"]) == (303, f"/compare?a={a}&b={b}")
    page = get(client, response.headers["location"])
    assert "paired over 2 common seeds" in page.text
    assert "−1.60e4" in page.text  # 20 ticks of 800 FLOPs
    assert page.text.count("differs") == 3  # seeds, wait, width
    assert len(page.all("svg", role="img")) == 1


def test_submissions_of_different_boards_have_no_common_chart(client, engine, filled, monkeypatch):
    monkeypatch.setattr("leaderboard.submission.static_check.UNVERIFIED", frozenset())  # as when text is verified
    other = publish(engine, name="other", env="Text-ALMA-v0")
    page = get(client, f"/compare?a={filled['a']}&b={other}")
    assert "Different boards" in page.text
    assert not page.all("svg", role="img")
    text = get(client, f"/submissions/{other}")
    assert "Perplexity at every tick" in text.text


def test_invalid_comparisons_are_refused(client, filled):
    for path, status, text in (
        ("/compare", 200, "First submission"),
        (f"/compare?id={filled['a']}", 400, "give the number of another one"),
        ("/compare?id=1&id=2&id=3", 400, "3 submissions: only two can be compared"),
        ("/compare?a=1&b=99", 404, "submission 99: it does not exist"),
        ("/compare?a=1&b=x", 400, "b='x': must be a whole number"),
    ):
        assert text in get(client, path, status).text


# The cache of pages.


def test_public_pages_are_the_same_after_login(client, engine, filled):
    before = client.get(BOARD).text
    log_in(client, person(engine, "Ada"))
    assert client.get(BOARD).text == before
    for path in ("/account", "/submit"):
        response = client.get(path)
        assert response.headers["cache-control"] == "no-store"
        assert "etag" not in response.headers


def test_all_urls_have_the_prefix_of_root_path(engine, filled):
    with closing(client_of(engine)) as client:
        client.app.root_path = "/alma"
        page = Read(client.get(f"/alma{BOARD}"))
        assert all(link.startswith(("/alma/", "https://", "#")) for link in page.links)
        assert page.all("form", method="get")[0]["action"] == f"/alma{BOARD}"
