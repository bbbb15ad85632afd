"""Requests to the API, and the verification of what they sent."""

from __future__ import annotations

import pytest

from leaderboard.board import queue

from ...conftest import package_of, verification_of

ENV = "Digits-ALMA-v0"
ZIP = {"Content-Type": "application/zip"}
LARGEST = 2**31 - 1
both_databases = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


def send(client, who, package=None, **changes):
    content = (package or package_of(**changes)).to_zip()
    return client.post("/api/v1/submissions", content=content, headers=who.headers | ZIP)


def verify(engine, *findings, seeds=(0, 1, 2), comp=1000) -> None:
    queue.finish(engine, queue.claim(engine, "w"), verification_of(seeds, *findings, comp=comp))


def published(client, engine, who, seeds=(0, 1, 2), comp=1000, **changes) -> int:
    sent = send(client, who, seeds=list(seeds), **changes).json()["id"]
    verify(engine, seeds=seeds, comp=comp)
    return sent


def get(client, path, who=None):
    return client.get(f"/api/v1{path}", headers=who.headers if who else {})


def post(client, path, who=None, **body):
    return client.post(f"/api/v1{path}", json=body, headers=who.headers if who else {})
