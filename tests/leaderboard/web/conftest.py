"""A client of the board, and three people with tokens."""

from __future__ import annotations

from contextlib import closing

import pytest

from ..web_client import client_of, person


@pytest.fixture
def kind() -> str:
    return "sqlite"  # unless a test uses both; the tests of board/ and accounts/ do


@pytest.fixture
def client(engine):
    with closing(client_of(engine)) as opened:
        yield opened


@pytest.fixture
def ada(engine):
    return person(engine, "Ada")


@pytest.fixture
def bob(engine):
    return person(engine, "Bob")


@pytest.fixture
def mia(engine):
    return person(engine, "Mia", "maintainer")
