"""Submissions and ledgers for tests, and the two databases."""

from __future__ import annotations

import pytest

from alma_env import Ledger, Row
from leaderboard.package import Package
from leaderboard.rules import TICKS


def ledger_of(seed: int, env_id: str = "Digits-ALMA-v0", comp: int = 1000) -> Ledger:
    """A ledger as a run of this seed could have written it."""
    return Ledger(
        [
            Row(
                tick=tick,
                error=0.9 / (1 + tick + seed % 7),
                parameters=100 + seed,
                buffers=0,
                inference_flops=12.5,
                flops={"training": comp + seed, "validation": 7} if tick else {},
                paper_flops=600 if tick else 0,
                declared=(),
                digest="d" * 16,
                refused=False,
                seconds=0.25,
            )
            for tick in range(TICKS[env_id] + 1)
        ]
    )


def manifest_text(**changes: object) -> str:
    values: dict[str, object] = {
        "name": "A",
        "authors": ["Ada"],
        "env": "Digits-ALMA-v0",
        "seeds": [0, 1, 2],
        "method": "sm",
        "description": "d",
    } | changes
    return "".join(f"{key} = {value!r}\n" for key, value in values.items())


def package_of(agent: str = "def make_agent(env):\n    return None\n", **changes: object) -> Package:
    """A submission that passes every check."""
    return Package({"agent.py": agent.encode(), "submission.toml": manifest_text(**changes).encode()})


@pytest.fixture
def package() -> Package:
    return package_of()
