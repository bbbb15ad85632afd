"""A verification executes a submission in isolation and scores it like a local run."""

from __future__ import annotations

import dataclasses
import re

import pytest

import agents
import alma_env
from agents.training.native import library
from leaderboard import cli, rules
from leaderboard.sandbox.sandbox import ISOLATED, Limits, level_here
from leaderboard.submission import static_check, zip_archive
from leaderboard.verification.one_run import run_sandboxed
from leaderboard.verification.verify import verify

from .threads import parties_in_threads

pytestmark = pytest.mark.skipif(level_here() != ISOLATED, reason="bubblewrap is missing, or cannot create namespaces")

AGENT = """
import agents

def make_agent(env):
    return agents.make({method!r}, env, width=4, wait=2, epochs=3, seed=env.run_seed{more})
"""
SM = AGENT.format(method="sm", more="")
IN_SANDBOX = f"""
import os
from agents.training.native.library import library_folder

built = library_folder()
# The native engine is one that this run has not built.
assert built is None if {library.compiler() is None} else not os.access(built, os.W_OK)
"""
MANIFEST = """
name = "Small"
authors = ["A. Uthor"]
env = "Digits-ALMA-v0"
seeds = [3, 4, 5]
method = "sm"
description = "A test."
"""
COLUMNS = ("tick", "error", "parameters", "buffers", "inference_flops", "flops", "paper_flops", "refused")


def values_of(ledger):
    return [[getattr(row, name) for name in COLUMNS] for row in ledger]


@pytest.fixture
def short(monkeypatch) -> None:
    """Shorten the streams of submissions."""
    make = alma_env.make
    monkeypatch.setattr(alma_env, "make", lambda id: make(id, ticks=5))
    monkeypatch.setitem(rules.TICKS, "Digits-ALMA-v0", 5)


@pytest.fixture(autouse=True)
def warm_caches(monkeypatch) -> None:
    """Leave the file caches of this machine as they are: test_page_cache.py tests that they are reset."""
    monkeypatch.setattr("leaderboard.verification.verify.reset_file_caches", lambda: None)


def submission(folder, agent=SM, **files):
    folder.mkdir()
    (folder / "agent.py").write_text(agent)
    (folder / "submission.toml").write_text(MANIFEST)
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


@pytest.mark.usefixtures("short")
def test_a_verified_ledger_equals_that_of_a_local_run_to_the_last_bit(tmp_path):
    report = static_check.check_path(submission(tmp_path / "sent", IN_SANDBOX + SM))
    messages = []
    # Two seeds are enough here, and too few for a submission.
    found = verify(report.package, dataclasses.replace(report.manifest, seeds=(3, 4)), messages.append)
    assert found.worst == "info"
    assert found.environment["isolation"] == ISOLATED
    assert "run 2 of 2, seed 4, tick 5 of 5" in messages
    assert [finding.code for finding in found.findings] == ["seeds"]
    assert "CPU seconds" in found.environment["used"]
    for run in found.runs:
        env = alma_env.make("Digits-ALMA-v0")
        agent = agents.make("sm", env, width=4, wait=2, epochs=3, seed=run.seed)
        assert values_of(run.ledger) == values_of(agents.run(env, agent, seed=run.seed))
    assert [run.seed for run in found.runs] == [3, 4]


@pytest.mark.parametrize(
    ("method", "arguments", "sandboxes"), [("gmoe", {}, 1), ("gens", {}, 0), ("ens", {"members": 2}, 0)]
)
def test_methods_that_grow_or_average_run_as_programs(tmp_path, method, arguments, sandboxes):
    """The method with the most parts runs in a sandbox, the others in threads: their programs are the same there."""
    more = "".join(f", {name}={value}" for name, value in arguments.items())
    folder = submission(tmp_path / "sent", IN_SANDBOX * sandboxes + AGENT.format(method=method, more=more))
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    with parties_in_threads(sandboxes=sandboxes):
        run = run_sandboxed(env, folder, 1, Limits(wall_seconds=1800))
    assert run.failure is None
    agent = agents.make(method, env, width=4, wait=2, epochs=3, seed=1, **arguments)
    assert values_of(run.ledger) == values_of(agents.run(env, agent, seed=1))


@pytest.mark.usefixtures("short")
def test_an_idle_agent_with_the_ledgers_of_another_agent_is_flagged(tmp_path):
    """The agent also checks that the sandbox does not have the errors of its answers."""
    folder = submission(
        tmp_path / "sent",
        """
import math
import agents

class Idle:
    def __init__(self, env):
        self.env, self.predictor = env, agents.make("sm", env, width=4, seed=env.run_seed).predictor

    def observe(self, observation):
        assert all(math.isnan(row.error) for row in self.env.ledger)
        return None

def make_agent(env):
    return Idle(env)
""",
    )
    (folder / "ledgers").mkdir()
    for seed in (3, 4, 5):
        env = alma_env.make("Digits-ALMA-v0")
        ledger = agents.run(env, agents.make("sm", env, width=4, wait=1, epochs=3, seed=seed), seed=seed)
        (folder / "ledgers" / f"seed-{seed}.jsonl").write_text(ledger.to_json())
    report = static_check.check_path(folder)
    assert report.ok
    with parties_in_threads(sandboxes=1):
        found = verify(report.package, dataclasses.replace(report.manifest, seeds=(3, 4)))
    assert found.worst == "suspicious"
    claims = [finding for finding in found.findings if finding.code == "claim"]
    assert {finding.seed for finding in claims} == {3, 4}
    assert all(run.ledger.score().final_error > 0.6 for run in found.runs)


@pytest.mark.usefixtures("short")
def test_the_first_run_that_fails_ends_the_verification(tmp_path):
    agent = "def make_agent(env):\n    if env.run_seed == 4:\n        raise RuntimeError('not this one')\n"
    agent += "    import agents\n    return agents.make('sm', env, width=4, wait=5, epochs=1, seed=env.run_seed)\n"
    report = static_check.check_path(submission(tmp_path / "sent", agent))
    with parties_in_threads():
        found = verify(report.package, report.manifest)
    assert [run.seed for run in found.runs] == [3]
    (finding,) = [finding for finding in found.findings if finding.severity == "fatal"]
    assert finding.seed == 4
    assert "RuntimeError: not this one" in finding.text


def test_the_template_of_init_passes_check_and_verify(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    folder = tmp_path / "mine"
    assert cli.main(["init", str(folder)]) == 0
    assert cli.main(["check", str(folder)]) == 0
    (tmp_path / "mine.zip").write_bytes(zip_archive.read(folder).to_zip())
    capsys.readouterr()
    with parties_in_threads(sandboxes=1):
        assert cli.main(["verify", str(tmp_path / "mine.zip")]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"(?m)^ *[012] +\d\.\d\d +0\.\d{3} +72,786 ", out)) == 3
    assert "3 runs, isolated; worst: info" in out
