"""Parsed pages, forms and published submissions for tests of the pages."""

from __future__ import annotations

from html.parser import HTMLParser

from leaderboard.board import queue
from leaderboard.board.submissions import submit
from leaderboard.verification.result import Verification, VerifiedRun

from .conftest import ledger_of, package_of

BOARD = "/boards/Digits-ALMA-v0/0.1"


def publish(engine, *findings, comp=1000, seeds=(0, 1, 2), wait=None, links="", **manifest) -> int:
    """Submit and verify a submission."""
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


class Read(HTMLParser):
    """A parsed page: its elements in order, with their attributes, and its text."""

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
        """Numbers of the submissions of the standings, in order."""
        return [int(a["data-row"]) for a in self.all("tr") if "data-row" in a]


def get(client, path, status=200, **headers) -> Read:
    return Read(client.get(path, headers=headers), status)


def form(client, path, target, status=303, files=None, **values):
    """Fill in the form of a page and send it to its target."""
    page = get(client, path)
    assert page.all("form", action=target), page.text
    hidden = {a["name"]: a["value"] for a in page.all("input", type="hidden")}
    response = client.post(target, data=hidden | values, files=files)
    assert response.status_code == status, response.text
    return response


def log_in(client, who) -> None:
    response = form(client, "/login", "/login", token=who.token)
    assert response.headers["location"] == "/account"
