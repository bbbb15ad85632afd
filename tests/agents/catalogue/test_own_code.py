"""``--agent FILE.py:FUNCTION``: agents of the user on the command line, in runs and in sweeps."""

from __future__ import annotations

import json

import pytest

import agents
import alma_env
from agents.catalogue import own_code
from agents.cli import main

CODE = """
import agents

def make_agent(env, *, width=4, wait=2, policy=None, seed=0, epochs=1):
    when = {"wait": wait} if policy is None else {"policy": policy}
    return agents.make("sm", env, width=width, seed=seed, epochs=epochs, **when)

def of_the_board(env):
    return agents.make("sm", env, width=4, wait=2, epochs=1, seed=env.run_seed)

def plain(env):
    return object()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_code._module.cache_clear()
    monkeypatch.delitem(own_code.sys.modules, "own_mine", raising=False)
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path / "mine.py"


def configs(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("config.json"))]


def run(*words) -> int:
    return main(["run", "--out", "runs", *map(str, words)])


def test_a_run_gives_the_function_its_options_and_records_its_code(file, capsys):
    words = ["--agent", "mine.py:make_agent", "--width", 8, "--seeds", 0, 1, "--set", "ticks=4", "epochs=2"]
    assert run(*words) == 0
    first, second = configs(file.parent)
    assert {first["seed"], second["seed"]} == {0, 1} == {first["agent"]["seed"], second["agent"]["seed"]}
    assert first["agent"]["width"] == 8
    assert first["agent"]["stage"]["epochs"] == 2
    assert first["agent"]["code"]["file"] == "mine.py"
    # The ledger is that of the same agent without the command line.
    env = alma_env.make("Digits-ALMA-v0", ticks=4)
    ledger = agents.run(env, agents.make("sm", env, width=8, wait=2, epochs=2, seed=0), seed=0)
    found = alma_env.Ledger.from_json(next(file.parent.rglob("*seed0*/ledger.jsonl")).read_text())
    assert [row.error for row in found] == [row.error for row in ledger]


def test_another_content_of_the_file_is_another_run(file, monkeypatch):
    assert run("--agent", "mine.py:make_agent", "--set", "ticks=3") == 0
    file.write_text(CODE + "# changed\n")
    own_code._module.cache_clear()
    monkeypatch.delitem(own_code.sys.modules, "own_mine")
    assert run("--agent", "mine.py:make_agent", "--set", "ticks=3") == 0
    assert len({config["agent"]["code"]["digest"] for config in configs(file.parent)}) == 2


def test_a_policy_reaches_the_function(file):
    assert run("--agent", "mine.py:make_agent", "--policy", "doubling", "--set", "ticks=4") == 0
    assert configs(file.parent)[0]["agent"]["policy"]["name"] == "doubling"


def test_the_function_of_a_submission_gets_the_seed_from_the_environment(file):
    assert run("--agent", "mine.py:of_the_board", "--seeds", 3, "--set", "ticks=3") == 0
    assert configs(file.parent)[0]["agent"]["seed"] == 3


def test_a_sweep_runs_own_agents_beside_others_and_recognises_finished_runs(file, capsys):
    words = ["--env", "Digits-ALMA-v0", "--agent", "mine.py:make_agent", "sm", "--wait", "2", "--width", "4"]
    words = ["sweep", *words, "--set", "ticks=3", "epochs=1", "--workers", "1", "--out", "runs"]
    assert main(words) == 0
    assert len(configs(file.parent)) == 2
    capsys.readouterr()
    assert main(words) == 0
    assert "2 of them from before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("agent", "options", "message"),
    [
        ("mine.py", [], "must be FILE.py:FUNCTION"),
        ("other.py:make_agent", [], "there is no file"),
        ("mine.py:nothing", [], "has no function 'nothing'"),
        ("mine.py:make_agent", ["--set", "momentum=0.5"], "has no parameter 'momentum'"),
        ("mine.py:of_the_board", ["--width", "4"], "has no parameter 'width'"),
        ("mine.py:plain", [], "must be an AnytimeAgent"),
    ],
)
def test_what_the_function_cannot_do_is_said(file, capsys, agent, options, message):
    assert run("--agent", agent, *options) == 2
    assert message in capsys.readouterr().err
    assert not (file.parent / "runs").exists()


def test_two_files_of_one_name_are_refused(file, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "mine.py").write_text(CODE)
    env = alma_env.make("Digits-ALMA-v0", ticks=3)
    own_code.make("mine.py:make_agent", env, 0, {})
    with pytest.raises(ValueError, match="another file of this name"):
        own_code.make("below/mine.py:make_agent", env, 0, {})
