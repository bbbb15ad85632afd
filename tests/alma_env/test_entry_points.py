"""A package of the user that hides a package of alma-env: the error names the user's file and the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from alma_env import entry_points

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the metadata of an installed distribution."""
    metadata = tmp_path / "site" / "alma_env-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    metadata.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: alma-env\nVersion: 0.1.0\n")
    groups = PROJECT["entry-points"] | {"console_scripts": PROJECT["scripts"]}
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in table.items()) for group, table in groups.items()]
    metadata.joinpath("entry_points.txt").write_text("\n".join(lines))
    return metadata.parent


@pytest.fixture
def foreign(tmp_path: Path):
    """A function that makes a user's package of a name, as a folder or a file, and returns the folder it lies in."""

    def make(name: str, kind: str) -> Path:
        folder = tmp_path / "user"
        file = folder / name / "__init__.py" if kind == "folder" else folder / f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text("")
        return folder

    return make


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))}
    # The finder of an editable installation finds the modules of a hidden package all the same.
    usual = (
        "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in getattr(f, '__module__', '')]"
    )
    command = [sys.executable, "-c", f"{usual}\n{code}"]
    return subprocess.run(command, env=environment, cwd=path[0], capture_output=True, text=True, check=False)


def script(name: str, *words: str) -> str:
    """The code of an installed console script."""
    module, _, function = PROJECT["scripts"][name].partition(":")
    return f"import sys; from {module} import {function}; sys.argv = {[f'/bin/{name}', *words]}; sys.exit({function}())"


@pytest.mark.parametrize(
    ("command", "package", "kind"),
    [("alma", "agents", "folder"), ("alma", "agents", "file"), ("alma-leaderboard", "leaderboard", "folder")],
)
def test_a_console_script_names_the_package_that_hides_its_own(command, package, kind, installed, foreign):
    folder = foreign(package, kind)
    done = run(script(command, "--help"), folder, installed)
    assert done.returncode == 2
    name = f"{package}/__init__.py" if kind == "folder" else f"{package}.py"
    assert done.stderr.startswith(f"{command}: {folder / name}: this package named {package!r} comes first")
    assert f"hides {ROOT / package}, which belongs to alma-env; rename" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_board_names_a_package_that_hides_the_agents(installed, foreign):
    words = ["baselines", "--database", "sqlite:///board.db"]
    done = run(script("alma-leaderboard", *words), foreign("agents", "folder"), installed)
    assert done.returncode == 2
    assert f"hides {ROOT / 'agents'}, which belongs to alma-env" in done.stderr


@pytest.mark.parametrize("command", PROJECT["scripts"])
def test_a_console_script_calls_its_function(command, installed):
    done = run(script(command, "--help"), installed)
    assert done.returncode == 0, done.stderr
    assert f"usage: {command}" in done.stdout


def test_streams_still_work_and_a_decision_environment_names_the_package_that_hides_its_own(installed, foreign):
    code = (
        "import alma_env, gymnasium\n"
        "print(alma_env.make('Digits-ALMA-v0').ticks)\n"
        "for id in ('Digits-ALMA-Wait-v0', 'alma_env/Digits-ALMA-Wait-Surrogate-v0'):\n"
        "    try: gymnasium.make(f'alma_env:{id}')\n"
        "    except ImportError as error: print(error)\n"
    )
    done = run(code, foreign("agents", "file"), installed)
    assert done.returncode == 0, done.stderr
    ticks, *errors = done.stdout.splitlines()
    assert ticks == "20"
    assert len(errors) == 2
    assert all(f"hides {ROOT / 'agents'}, which belongs to alma-env; rename" in error for error in errors)


def test_without_the_other_packages_the_streams_are_registered(monkeypatch):
    absent = EntryPoint("any", "no_such_package.module:function", "gymnasium.envs")
    assert entry_points.hidden("no_such_package") is None
    with pytest.raises(ModuleNotFoundError):
        entry_points.load(absent)
