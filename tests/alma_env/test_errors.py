"""Tests of what the error messages of all packages have in common."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from alma_env.errors import how_to_install

ROOT = Path(__file__).parent.parent.parent


def test_the_remedy_for_a_missing_package_works_with_and_without_the_package_index():
    assert how_to_install("web") == (
        "pip install 'alma-env[web]', or in a clone of the repository pip install -c constraints.txt -e '.[web]'"
    )


def test_every_message_about_a_missing_package_has_this_remedy_and_names_an_extra_that_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set()
    for package in ("alma_env", "agents", "leaderboard"):
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert file.name == "errors.py" or "pip install 'alma-env[" not in text, file
            named |= set(re.findall(r"how_to_install\(['\"](\w+)['\"]\)", text))
    assert {"web", "rl", "text"} <= named <= extras.keys()
