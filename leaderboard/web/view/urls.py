"""Where things are, from the board's root on."""

from __future__ import annotations

from urllib.parse import quote

API = "/api/v1"


def board(env_id: str, rules_version: str) -> str:
    """The standings of an environment under a version of the rules.

    >>> board("Digits-ALMA-v0", "0.1")
    '/boards/Digits-ALMA-v0/0.1'
    """
    return f"/boards/{quote(env_id, safe='')}/{quote(rules_version, safe='')}"


def export(env_id: str, rules_version: str, format: str) -> str:
    """A board as a file."""
    return f"{API}{board(env_id, rules_version)}/export?format={format}"


def submission(id: int) -> str:
    """The page of a submission."""
    return f"/submissions/{id}"


def submission_json(id: int) -> str:
    """A submission for programs."""
    return f"{API}/submissions/{id}"


def package(id: int) -> str:
    """The files of a submission."""
    return f"{API}/submissions/{id}/package"


def ledger(id: int, seed: int) -> str:
    """The ledger of a verified run."""
    return f"{API}/submissions/{id}/ledgers/{seed}"


def openapi() -> str:
    """What the API can do, for programs."""
    return f"{API}/openapi.json"
