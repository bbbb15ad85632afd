"""``alma new`` and ``alma completion``: what they write works as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agents.cli import main
from agents.cli.options.listing_parser import SHELLS

ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # other tests run beside this one
ROOT = Path(__file__).parents[3]


def test_starting_points_pass_their_tests_and_run_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for what in ("agent", "policy"):
        assert main(["new", what, f"mine/starting_{what}.py"]) == 0
        assert f"--agent mine/starting_{what}.py:make_agent" in capsys.readouterr().out
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "mine"]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **ONE_THREAD, "PYTHONPATH": paths})
    assert ended.returncode == 0, ended.stdout
    assert "6 passed" in ended.stdout
    for what in ("agent", "policy"):
        assert main(["run", "--agent", f"mine/starting_{what}.py:make_agent", "--set", "epochs=1"]) == 0
        assert main(["new", what, f"mine/starting_{what}.py"]) == 2
        assert "exists already" in capsys.readouterr().err
    agent = "mine/starting_agent.py:make_agent"
    command = ["run", "--agent", agent, "--out", "runs2", "--set", "epochs=1", "ticks=6"]
    for options in (["--policy", "doubling:restart=0.5,replay=true"], ["--policy", "learned"], ["--replay"]):
        assert main([*command, *options]) == 0
    configs = [json.loads(file.read_text()) for file in Path("runs2").rglob("config.json")]
    policies = [config["agent"]["policy"] for config in configs]
    assert sorted(policy.get("name", "fixed") for policy in policies) == ["doubling", "fixed", "learned-schedule"]
    command[2] = "mine/starting_policy.py:make_agent"
    assert main([*command, "--policy", "doubling"]) == 0


def test_a_submission_is_the_template_of_the_leaderboard_and_runs_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "submission", "mine"]) == 0
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["agent.py", "submission.toml"]
    assert main(["run", "--agent", "mine/agent.py:make_agent", "--seeds", "0", "1"]) == 0
    assert len(list((tmp_path / "runs").rglob("ledger.jsonl"))) == 2


def test_a_name_that_python_cannot_import_is_refused(tmp_path, capsys):
    assert main(["new", "agent", str(tmp_path / "my-agent.py")]) == 2
    assert "must be the name of a Python module" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["agents", "alma_env", "torch", "random"])
def test_a_name_that_hides_a_package_is_refused(tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "agent", f"{name}.py"]) == 2
    assert f"could no longer import the package {name}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_prints_a_script_with_commands_ids_and_options(shell, capsys):
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("reproduce", "Digits-ALMA-v0", "gens-moe", "fresh", "doubling", "tensorboard"):
        assert word in script


def test_bash_completes_commands_ids_and_options(capsys, tmp_path):
    pytest.importorskip("shtab")
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        code = (
            f"source {tmp_path}/script; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
            f"_shtab_alma alma '{words[-1]}' '{words[-2]}'; echo ${{COMPREPLY[@]}}"
        )
        return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert completed("alma", "rep") == ["reproduce"]
    assert completed("alma", "run", "Dig") == ["Digits-ALMA-v0"]
    assert completed("alma", "run", "--agent", "gm") == ["gmoe"]
    assert completed("alma", "run", "--en") == ["--engine"]
    assert completed("alma", "run", "--policy", "lea") == ["learned"]
    assert completed("alma", "policy", "tr") == ["train", "train-schedule"]
    assert completed("alma", "policy", "train", "FashionMNIST-ALMA-Wait-v") == [
        "FashionMNIST-ALMA-Wait-v0",
        "FashionMNIST-ALMA-Wait-v1",
    ]


def test_without_shtab_the_error_names_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "alma-env[completion]" in capsys.readouterr().err
