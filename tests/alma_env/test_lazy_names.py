"""``import alma_env`` is light, its public names are imported on first use, and former names of modules still work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import alma_env
from alma_env import lazy_names

PUBLIC = [
    "AlmaEnv",
    "AlmaError",
    "DataSet",
    "DataUnavailableError",
    "Ensemble",
    "Ledger",
    "PredictorError",
    "PredictorSpace",
    "Row",
    "Score",
    "Stream",
    "UnknownCostError",
    "UnmeteredTrainingError",
    "UntrainedPredictor",
    "from_arrays",
    "from_dataset",
    "from_path",
    "load",
    "make",
    "partition",
    "register_all",
]


def _run(code: str) -> str:
    """Run code in a new interpreter; return what it printed."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_alma_env_registers_the_ids_without_torch() -> None:
    code = """
import sys, gymnasium, alma_env
print("torch" in sys.modules, "Digits-ALMA-v0" in gymnasium.registry)
env = gymnasium.make("Digits-ALMA-v0", disable_env_checker=True)
print(type(env.unwrapped) is alma_env.AlmaEnv)
"""
    assert _run(code).split() == ["False", "True", "True"]


def test_the_public_names_are_listed_and_importable() -> None:
    assert sorted(alma_env.__all__) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(alma_env))
    for name in PUBLIC:
        assert getattr(alma_env, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="alma_env.*mkae"):
        _ = alma_env.mkae
    with pytest.raises(ImportError, match="mkae"):
        exec("from alma_env import mkae")


def test_submodules_and_former_names_are_attributes() -> None:
    code = """
import alma_env
print(alma_env.flops.register_cost.__module__, alma_env.arena.__name__, alma_env.ledger.__name__)
from alma_env import arena, flops, meter
import alma_env.meter, alma_env.metering
print(alma_env.meter is alma_env.metering is meter, meter.__spec__.name, meter.count_once.__module__)
"""
    assert _run(code).splitlines() == [
        "alma_env.metering.costs.cost_table alma_env.arena alma_env.ledger",
        "True alma_env.metering alma_env.metering.function_cost",
    ]


def test_the_files_of_a_moved_package_are_not_loaded_twice(tmp_path: Path) -> None:
    package = tmp_path / "some_package"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from alma_env import lazy_names\n"
        "__getattr__, __dir__, __all__ = lazy_names.attach(__name__, {'old': 'room', 'old.thing': 'room.new_thing'})\n"
    )
    (package / "room" / "__init__.py").write_text("")
    for name in ("other", "new_thing"):
        (package / "room" / f"{name}.py").write_text("")
    code = """
import some_package.old.other, some_package.old.thing
import some_package.room.other, some_package.room.new_thing
print(some_package.old.other is some_package.room.other, some_package.old.thing is some_package.room.new_thing)
print(some_package.__all__)
"""
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert out.splitlines() == ["True True", "[]"]


def test_the_names_in_records_are_translated() -> None:
    assert lazy_names.new_name("alma_env.flops.register_cost") == "alma_env.metering.costs.cost_table.register_cost"
    assert lazy_names.new_name("alma_env.metering.meter.Meter") == "alma_env.metering.meter.Meter"


@pytest.mark.parametrize("name", ["build", "build_from_arrays", "build_from_text", "make"])
def test_entry_points_in_saved_specs_still_resolve(name: str) -> None:
    from alma_env import construction

    assert gymnasium.envs.registration.load_env_creator(f"alma_env.registration:{name}") is getattr(construction, name)
