"""The pages for people, as a browser without JavaScript gets them."""

from __future__ import annotations

import re
from contextlib import closing
from html import unescape
from html.parser import HTMLParser

import pytest

from leaderboard import queue
from leaderboard.engine import reading
from leaderboard.submissions import package_of as stored_package
from leaderboard.submissions import submit
from leaderboard.verification import Finding, Verification, VerifiedRun
from leaderboard.web.pages.remembered import Remembered, Versions

from .conftest import ledger_of, package_of, verification_of
from .web_client import client_of, person

BOARD = "/boards/Digits-ALMA-v0/0.1"
EVIL = '<img src=x onerror=alert(1)>";--'


BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest.fixture
def kind() -> str:
    """Most of what a page is made of is tested with both databases elsewhere."""
    return "sqlite"


@pytest.fixture
def client(engine):
    with closing(client_of(engine)) as opened:
        yield opened


def publish(engine, *findings, comp=1000, seeds=(0, 1, 2), wait=None, links="", **manifest) -> int:
    """A submission that was run again."""
    package = package_of(seeds=list(seeds), **manifest)
    files = dict(package.files)
    hyper = f"[hyperparameters]\nwait = {wait}\nwidth = {comp}\n" if wait else ""
    files["submission.toml"] += f"{hyper}{links}".encode()
    sent = submit(engine, type(package)(files)).id
    env_id = manifest.get("env", "Digits-ALMA-v0")
    runs = tuple(VerifiedRun(seed, ledger_of(seed, env_id, comp)) for seed in seeds)
    isolation = {"isolation": "none, a test"}
    queue.finish(engine, queue.claim(engine, "w"), Verification(runs, findings, isolation))
    return sent


@pytest.fixture
def filled(engine):
    """By CER c, a, b; by Comp a, b, c."""
    return {
        "a": publish(engine, name="a", comp=10, seeds=(1, 2, 3), method="sm", wait=5),
        "b": publish(engine, name="b", comp=100, seeds=(0, 1, 7), method="ens", wait=5),
        "c": publish(engine, name="c", comp=1000, seeds=(4, 5, 6), method="sm", wait=9),
    }


class Read(HTMLParser):
    """A page: its elements in order, with their attributes, and its text."""

    def __init__(self, response, status=200) -> None:
        super().__init__()
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(response.text)

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data) -> None:
        self.text += data

    def all(self, tag, **attributes):
        return [a for name, a in self.elements if name == tag and attributes.items() <= a.items()]

    @property
    def links(self) -> list[str]:
        return [a["href"] for a in self.all("a")]

    @property
    def rows(self) -> list[int]:
        """Submissions of the standings, in order."""
        return [int(a["data-row"]) for a in self.all("tr") if "data-row" in a]


def get(client, path, status=200, **headers) -> Read:
    return Read(client.get(path, headers=headers), status)


def form(client, path, target, status=303, files=None, **values):
    """Fill in the form of a page that goes to a target, and send it."""
    page = get(client, path)
    assert page.all("form", action=target), page.text
    hidden = {a["name"]: a["value"] for a in page.all("input", type="hidden")}
    response = client.post(target, data=hidden | values, files=files)
    assert response.status_code == status, response.text
    return response


def log_in(client, who) -> None:
    response = form(client, "/login", "/login", token=who.token)
    assert response.headers["location"] == "/account"


# Boards.


def test_an_empty_board_says_how_to_begin(client):
    assert "/submit" in get(client, "/").links
    page = get(client, BOARD)
    assert "No result yet" in page.text


@BOTH
def test_the_first_page_has_every_board_with_its_best(client, filled):
    page = get(client, "/")
    assert BOARD in page.links
    assert "/boards/MNIST-ALMA-v0/0.1" in page.links
    assert re.search(r"best CER, by\s+c\b", page.text)
    assert "3 submissions, 2 methods, 20 mega-batches" in page.text


@BOTH
def test_standings_are_sorted_and_filtered_by_links_and_by_a_form(client, filled):
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
    assert "Nothing matches these filters" in nothing.text
    assert BOARD in nothing.links
    assert "There is no page 7" in get(client, f"{BOARD}?page=7").text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sort=name", "sort='name': must be one of cer, final_error, comp"),
        ("descending=2", "descending='2': must be 0 or 1"),
        ("page=0", "page='0': must be a whole number from 1"),
        ("page=99999999999999", "must be a whole number from 1 to 2147483647"),
        ("waiting_time=-1", "waiting_time='-1'"),
        ("budget_class=%C2%B2", "budget_class='²'"),
    ],
)
def test_addresses_that_ask_for_what_there_is_not_are_told_so(client, query, said):
    text = get(client, f"{BOARD}?{query}", 400).text
    assert said.replace("cer, final_error, comp", "cer, mem, comp") in text


def test_what_is_not_there_is_told_so(client, filled):
    assert "There is no such board" in get(client, "/boards/Nothing-v0/0.1", 404).text
    assert "There is no such board" in get(client, "/boards/Digits-ALMA-v0/9.9", 404).text
    assert "submission 99: there is none of this number" in get(client, "/submissions/99", 404).text
    assert "must be a whole number" in get(client, "/submissions/x", 404).text
    assert "leads nowhere" in get(client, "/nothing", 404).text
    response = client.get("/boards/Digits-ALMA-v0?sort=mem")
    assert (response.status_code, response.headers["location"]) == (307, f"{BOARD}?sort=mem")


def test_the_pareto_pictures_have_tables_with_the_same_numbers(client, filled):
    page = get(client, BOARD)
    assert len(page.all("svg", role="img")) == 2
    dots = {int(dot["data-submission"]) for dot in page.all("circle")}
    assert dots == set(filled.values())
    assert page.text.count("The front as a table") == 2
    assert "The line is the Pareto front: 2 submissions, none of which is beaten in both." in page.text
    only = get(client, f"{BOARD}?method=ens")
    assert {int(dot["data-submission"]) for dot in only.all("circle")} == {filled["b"]}


def test_a_board_can_be_downloaded(client, filled):
    for address in [link for link in get(client, BOARD).links if "/export" in link]:
        assert client.get(address).status_code == 200


def test_standings_of_more_than_a_page_have_pages(client, engine, monkeypatch):
    from leaderboard.web.pages import asked, boards

    for module in (asked, boards):
        monkeypatch.setattr(module, "PAGE_LINES", 2)
    ids = [publish(engine, name=f"n {seed}", seeds=(seed, seed + 1, seed + 2)) for seed in range(3)]
    first = get(client, BOARD)
    assert len(first.rows) == 2
    assert "Page 1 of 2" in first.text
    assert f"{BOARD}?page=2" in first.links
    second = get(client, f"{BOARD}?page=2")
    assert sorted(first.rows + second.rows) == ids
    assert BOARD in second.links


# What strangers write.


def test_texts_of_strangers_are_texts_on_every_page(client, engine):
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


def test_no_page_has_a_style_or_a_script_of_its_own(client, filled):
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
def test_the_page_of_a_submission_has_all_of_it(client, engine, filled):
    page = get(client, f"/submissions/{filled['a']}")
    for said in ("place 2 of 3 by CER", "waiting time 5", "training", "validation", "Nothing was noticed", "by Ada"):
        assert said in page.text
    assert "none, a test" in page.text
    for address in [link for link in page.links if link.startswith("/api/") and "openapi" not in link]:
        assert client.get(address).status_code == 200, address
    assert f"/api/v1/submissions/{filled['a']}/ledgers/3" in page.links
    with reading(engine) as session:
        assert stored_package(session, filled["a"]).digest in page.text


@BOTH
def test_a_submission_is_seen_queued_running_and_verified(client, engine):
    sent = submit(engine, package_of(name="mine")).id
    later = submit(engine, package_of(name="later")).id
    assert "It is the next one" in get(client, f"/submissions/{sent}").text
    assert "1 submission before it" in get(client, f"/submissions/{later}").text
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


def test_errors_of_workers_are_for_maintainers_alone(client, engine):
    sent = submit(engine, package_of()).id
    queue.fail(engine, queue.claim(engine, "secret-host"), "Traceback: /home/secret", retry=False)
    page = get(client, f"/submissions/{sent}")
    assert "It could not be run" in page.text
    assert "secret" not in page.text
    log_in(client, person(engine, "Mia", "maintainer"))
    assert "Traceback: /home/secret" in get(client, "/review").text
    response = form(client, "/review", "/review/retry", id=str(sent))
    assert response.headers["location"] == f"/submissions/{sent}"
    assert "It is the next one" in get(client, f"/submissions/{sent}").text


# Comparing.


def test_two_are_compared_seed_by_seed(client, engine):
    a = publish(engine, name="first", comp=100, seeds=(0, 1, 2), wait=5)
    b = publish(engine, name="second", comp=900, seeds=(1, 2, 3), wait=7)
    response = client.get(f"/compare?id={a}&id={b}")
    assert (response.status_code, response.headers["location"]) == (303, f"/compare?a={a}&b={b}")
    page = get(client, response.headers["location"])
    assert "paired over the 2 seeds that both have" in page.text
    assert "−1.60e4" in page.text  # 20 ticks of 800 FLOPs
    assert page.text.count("differs") == 1 + 3  # in the caption; seeds, wait, width
    assert len(page.all("svg", role="img")) == 1


def test_submissions_of_different_boards_are_told_apart(client, engine, filled):
    other = publish(engine, name="other", env="Text-ALMA-v0")
    page = get(client, f"/compare?a={filled['a']}&b={other}")
    assert "Not of the same board" in page.text
    assert not page.all("svg", role="img")
    text = get(client, f"/submissions/{other}")
    assert "Perplexity at every tick" in text.text


def test_what_cannot_be_compared_is_told_so(client, filled):
    for path, status, said in (
        ("/compare", 200, "First submission"),
        (f"/compare?id={filled['a']}", 400, "give the number of another one"),
        ("/compare?id=1&id=2&id=3", 400, "3 submissions: two are compared at a time"),
        ("/compare?a=1&b=99", 404, "submission 99: there is none"),
        ("/compare?a=1&b=x", 400, "b='x': must be a whole number"),
    ):
        assert said in get(client, path, status).text


# Accounts.


def test_an_account_is_made_sends_a_submission_and_logs_out(client, engine):
    made = Read(form(client, "/register", "/register", 201, name="Ada"), 201)
    token = re.search(r"alma_[\w-]+", made.text)[0]
    archive = {"archive": ("a.zip", package_of(name="by form").to_zip(), "application/zip")}
    sent = form(client, "/submit", "/submit", files=archive).headers["location"]
    assert "by form" in get(client, sent).text
    account = get(client, "/account")
    assert sent in account.links
    assert "this session" in account.text
    assert form(client, "/account", "/logout").headers["location"] == "/"
    assert client.get("/account").headers["location"] == "/login?next=%2Faccount"
    form(client, "/login?next=/submit", "/login", token=token)
    assert "Send it as Ada" in get(client, "/submit").text
    assert client.get("/login").headers["location"] == "/account"


def test_what_is_wrong_with_a_submission_is_told_and_nothing_is_stored(client, engine):
    log_in(client, person(engine, "Ada"))
    bad = package_of(name="", seeds=[1]).to_zip()
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("a.zip", bad)}), 422)
    assert "name" in page.text
    assert "seeds" in page.text
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("a.zip", b"no zip")}), 422)
    assert "pack the folder anew" in page.text
    page = Read(form(client, "/submit", "/submit", 422, files={"archive": ("", b"")}), 422)
    assert "no file was sent" in page.text
    assert "Nothing was sent yet" in get(client, "/submissions").text


def test_forms_of_other_sites_and_without_their_token_are_refused(client, engine):
    ada = person(engine, "Ada")
    assert client.post("/login", data={"token": ada.token}).status_code == 403
    log_in(client, ada)
    page = get(client, "/account")
    csrf = page.all("input", name="csrf")[0]["value"]
    evil = {"Origin": "https://evil.example"}
    for path in ("/logout", "/account/tokens", "/account/tokens/revoke", "/submit", "/review/decision", "/login"):
        assert client.post(path, data={"csrf": csrf}, headers=evil).status_code == 403, path
        assert client.post(path, data={"csrf": "x"}).status_code == 403, path
    assert "Log out" in get(client, "/account").text


def test_a_token_that_is_none_does_not_log_in_and_no_other_site_is_gone_to(client, engine):
    page = Read(form(client, "/login", "/login", 401, token="alma_wrong"), 401)
    assert "this token opens nothing here" in page.text
    ada = person(engine, "Ada")
    response = form(client, "/login?next=//evil.example/", "/login", token=ada.token)
    assert response.headers["location"] == "/account"


def test_tokens_are_made_shown_once_and_revoked(client, engine):
    log_in(client, person(engine, "Ada"))
    made = Read(form(client, "/account", "/account/tokens", 201, name="laptop", scope="submit", days="30"), 201)
    secret = re.search(r"alma_[\w-]{20,}", made.text)[0]
    bearer = {"Authorization": f"Bearer {secret}"}
    assert client.get("/api/v1/me", headers=bearer).json()["scopes"] == ["submit"]
    page = get(client, "/account")
    assert secret not in page.text
    newest = next(a["value"] for a in page.all("input", name="token"))
    form(client, "/account", "/account/tokens/revoke", token=newest)
    assert client.get("/api/v1/me", headers=bearer).status_code == 401
    for wrong, said in (
        ({"name": "", "scope": "submit"}, "not 1 to 80 characters"),
        ({"name": "x"}, "give one or more of submit, manage"),
        ({"name": "x", "scope": "review"}, "give one or more of"),
        ({"name": "x", "scope": "submit", "days": "soon"}, "days='soon'"),
    ):
        assert said in Read(form(client, "/account", "/account/tokens", 422, **wrong), 422).text


def test_where_registration_is_closed_no_account_is_made(engine):
    with closing(client_of(engine, registration="closed")) as client:
        page = get(client, "/register")
        assert "made by maintainers" in page.text
        assert not page.all("form", action="/register")
        csrf = get(client, "/login").all("input", name="csrf")[0]["value"]
        assert client.post("/register", data={"csrf": csrf, "name": "Eve"}).status_code == 403


def test_a_name_that_is_taken_is_told_so(client, engine):
    person(engine, "Ada")
    page = Read(form(client, "/register", "/register", 409, name="ada"), 409)
    assert "the name is taken" in page.text
    assert page.all("input", name="name")[0]["value"] == "ada"


# Maintainers.


def test_a_maintainer_accepts_a_flagged_result_and_takes_it_down_again(client, engine):
    sent = publish(engine, Finding("suspicious", "cpu-time", "too fast", 1), name="fast")
    assert get(client, BOARD).rows == []
    assert "A maintainer will look at it" in get(client, f"/submissions/{sent}").text
    log_in(client, person(engine, "Mia", "maintainer"))
    review = get(client, "/review")
    assert "too fast" in review.text
    assert "seed 1" in review.text
    page = Read(form(client, "/review", "/review/decision", 422, id=str(sent), decision="accept", reason=" "), 422)
    assert "write one" in page.text
    form(client, "/review", "/review/decision", id=str(sent), decision="accept", reason="a fast machine")
    assert get(client, BOARD).rows == [sent]
    assert "a fast machine" in get(client, f"/submissions/{sent}").text
    form(client, f"/review?id={sent}", "/review/decision", id=str(sent), decision="reject", reason="not that fast")
    assert get(client, BOARD).rows == []
    page = get(client, f"/submissions/{sent}")
    assert "Not on the board" in page.text
    assert "not that fast" in page.text
    assert "submission 99" in get(client, "/review?id=99", 404).text


def test_only_maintainers_review(client, engine):
    assert client.get("/review").headers["location"] == "/login?next=%2Freview"
    log_in(client, person(engine, "Ada"))
    assert "no maintainer" in get(client, "/review", 403).text
    csrf = get(client, "/account").all("input", name="csrf")[0]["value"]
    for target in ("/review/decision", "/review/retry"):
        assert client.post(target, data={"csrf": csrf, "id": "1", "decision": "accept"}).status_code == 403


# What is remembered.


def test_a_page_that_a_browser_has_already_is_not_sent_again(client, engine, filled):
    first = client.get(BOARD)
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    again = client.get(BOARD, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    publish(engine, name="new", comp=3)
    fresh = client.get(BOARD, headers={"If-None-Match": tag})
    assert fresh.status_code == 200
    assert "new" in fresh.text


def test_a_page_is_packed_for_who_can_unpack_it(client, filled):
    packed = client.get(BOARD, headers={"Accept-Encoding": "gzip"})
    plain = client.get(BOARD, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.text == plain.text
    assert int(packed.headers["content-length"]) < len(plain.content) / 3


def test_what_everyone_gets_is_the_same_for_who_is_logged_in(client, engine, filled):
    before = client.get(BOARD).text
    log_in(client, person(engine, "Ada"))
    assert client.get(BOARD).text == before
    for path in ("/account", "/submit"):
        response = client.get(path)
        assert response.headers["cache-control"] == "no-store"
        assert "etag" not in response.headers


def test_under_a_prefix_all_addresses_have_it(engine, filled):
    with closing(client_of(engine)) as client:
        client.app.root_path = "/alma"
        page = Read(client.get(f"/alma{BOARD}"))
        assert all(link.startswith(("/alma/", "https://", "#")) for link in page.links)
        assert page.all("form", method="get")[0]["action"] == f"/alma{BOARD}"


@BOTH
def test_the_version_of_the_board_changes_with_what_it_shows_and_with_nothing_else(engine):
    versions = Versions(engine)
    before = versions.board(), versions.latest()
    sent = submit(engine, package_of()).id
    assert versions.board() == before[0]
    assert versions.latest() > before[1]
    person(engine, "Ada")
    lease = queue.claim(engine, "w")
    assert versions.board() == before[0]
    queue.finish(engine, lease, verification_of())
    assert versions.board() > before[0]
    assert Versions(engine).board() >= versions.board() > 0
    assert sent


def test_what_is_remembered_ends_with_its_version_with_time_and_for_room():
    moment, made = [0.0], []

    def make():
        made.append(1)
        return len(made)

    kept = Remembered(2, seconds=10, clock=lambda: moment[0])
    assert [kept.get("a", 1, make), kept.get("a", 1, make)] == [1, 1]
    assert kept.get("a", 2, make) == 2
    moment[0] = 10.0
    assert kept.get("a", 2, make) == 3
    kept.get("b", 2, make)
    kept.get("a", 2, make)
    kept.get("c", 2, make)  # b was used longest ago
    assert kept.get("a", 2, make) == 3
    assert kept.get("b", 2, make) == 6
    with pytest.raises(ZeroDivisionError):
        kept.get("d", 1, lambda: 1 // 0)
    assert kept.get("d", 1, make) == 7
