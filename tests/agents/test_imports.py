"""Importing a part of ``agents`` loads only what this part needs."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import agents


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("agents", ["torch", "scipy", "agents.learners", "agents.catalogue", "agents.figures"]),
        ("agents.rl", ["torch", "scipy", "agents.learners", "agents.rl.environments.wait_env"]),
        (
            "agents.analysis.statistics",
            ["torch", "matplotlib", "agents.learners", "agents.figures", "agents.catalogue"],
        ),
    ],
)
def test_an_import_does_not_load_other_rooms(module, absent):
    script = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_matplotlib_and_the_trackers_are_not_imported_before_they_are_used():
    script = (
        "import sys, agents.cli.runs.run_sweep; from agents import cli, figures\n"
        "from agents.analysis import measures, tables\n"
        "try: cli.main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'matplotlib', 'wandb', 'mlflow', 'tensorboard'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "set()"


def test_every_public_name_is_importable():
    assert {"make", "run", "sweep", "Progress", "METHODS"} <= set(agents.__all__)
    assert all(getattr(agents, name) is not None for name in agents.__all__)
    assert callable(agents.sweep)


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("policies.features", "policies.learned.features"),
        ("policies.priced_features", "policies.learned.priced_features"),
        ("policies.learned_schedule", "policies.learned.schedule"),
    ],
)
def test_a_moved_module_has_its_former_name(former, name):
    assert importlib.import_module(f"agents.{former}") is importlib.import_module(f"agents.{name}")
