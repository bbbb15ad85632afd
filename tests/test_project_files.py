"""The files that other programs read (citation, continuous integration, services) agree with the project."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest

import alma_env
import leaderboard.cli

from .documentation import ROOT

yaml = pytest.importorskip("yaml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_names_this_version_and_the_licence():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == alma_env.__version__ == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert f"version = {{{PROJECT['version']}}}" in (ROOT / "README.md").read_text()


def test_the_workflow_runs_every_python_version_of_the_classifiers():
    jobs = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())["jobs"]
    one = next(
        step["with"]["python-version"] for step in jobs["all"]["steps"] if "setup-python" in step.get("uses", "")
    )
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert sorted([one, *jobs["python"]["strategy"]["matrix"]["python"]]) == sorted(named)
    assert any(step.get("run", "").endswith(".ci/run") for step in jobs["all"]["steps"])


def test_the_services_of_a_board_start_commands_that_exist():
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    commands = [services["web"]["command"]]
    commands += [shlex.split(line)[1:] for line in _lines("deploy/systemd/*.service", r"ExecStart=(.*)")]
    commands += [list(words) for words in map(yaml.safe_load, _lines("deploy/Containerfile", r"CMD (\[.*\])"))]
    assert sorted(command[0] for command in commands) == ["serve", "serve", "serve", "worker", "worker"]
    for command in commands:
        leaderboard.cli._parser().parse_args(command)


def _lines(files: str, pattern: str) -> list[str]:
    return [found for file in ROOT.glob(files) for found in re.findall(rf"^{pattern}$", file.read_text(), re.MULTILINE)]
