"""A client of the board, three people with tokens, and a board with results."""

from __future__ import annotations

from contextlib import closing

import pytest

from ..page_reader import publish
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


@pytest.fixture
def filled(engine):
    """A board with three submissions. Order by CER: c, a, b. Order by Comp: a, b, c."""
    return {
        "a": publish(engine, name="a", comp=10, seeds=(1, 2, 3), method="sm", wait=5),
        "b": publish(engine, name="b", comp=100, seeds=(0, 1, 7), method="ens", wait=5),
        "c": publish(engine, name="c", comp=1000, seeds=(4, 5, 6), method="sm", wait=9),
    }
