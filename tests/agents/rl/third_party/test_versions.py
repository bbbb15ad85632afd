"""The table of suites names the versions that are pinned, and each test file of a suite is in the table."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
PACKAGES = {"RLlib (ray)": "ray"}  # named otherwise in the table
PAGE = (ROOT / "docs/suites.md").read_text()
ROWS = re.findall(r"^\| ([^|]+?) \| (\d[\d.]*) \|.*\| (`tests/.*) \|$", PAGE, re.MULTILINE)


def pins():
    files = [ROOT / "constraints.txt", *Path(__file__).parent.glob("requirements*.txt")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    lines += PAGE.split()  # morl-baselines, which is installed without dependencies
    pairs = (line.partition("==") for line in lines if "==" in line)
    return {name.lower().replace("_", "-"): version for name, _, version in pairs}


def test_the_versions_of_the_table_are_those_that_are_pinned():
    pinned = pins()
    assert len(ROWS) >= 10
    for suite, version, _ in ROWS:
        name = PACKAGES.get(suite, suite).lower()
        assert pinned[name] == version, suite


def test_every_test_file_of_a_suite_is_in_the_table():
    named = " ".join(tests for *_, tests in ROWS)
    for file in Path(__file__).parent.glob("test_*.py"):
        if file.name != "test_versions.py":
            assert str(file.relative_to(ROOT)) in named
