"""The decision environments are registered with Gymnasium by ``import alma_env`` and by ``import agents.rl``."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import gymnasium
import pytest

import agents
import alma_env
from agents.rl import registration
from agents.runs.run import config_of
from alma_env.registration import NAMESPACE, STREAM_IDS

ROOT = Path(__file__).parents[3]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["gymnasium.envs"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the metadata of an installed distribution."""
    metadata = tmp_path / "alma_env-0.1.0.dist-info"
    metadata.mkdir()
    metadata.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: alma-env\nVersion: 0.1.0\n")
    lines = [f"{name} = {value}\n" for name, value in DECLARED.items()]
    metadata.joinpath("entry_points.txt").write_text("".join(["[gymnasium.envs]\n", *lines]))
    return tmp_path


def run(script: str, *path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))}
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("id", "given", "meant"),
    [
        ("Digits-ALMA-Wait-v0", "flop_price", "flops_price"),
        ("Digits-ALMA-Wait-v0", "epoch", "epochs"),
        ("Digits-ALMA-Wait-v1", "pas_price", "pass_price"),
        ("Digits-ALMA-Wait-v1", "lerner", "learner"),
        ("Digits-ALMA-Wait-v1", "tick", "ticks"),
        ("Digits-ALMA-Wait-Surrogate-v0", "flop_price", "flops_price"),
        ("Digits-ALMA-Wait-Surrogate-v1", "memoryprice", "memory_price"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_a_misspelt_keyword_is_refused_with_a_similar_one(id, given, meant):
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{given}': .*; did you mean {meant}") as raised:
        gymnasium.make(id, **{given: 1})
    assert "environment creator" not in str(raised.value)
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{given}': .*; did you mean {meant}"):
        gymnasium.make_vec(id, num_envs=2, **{given: 1})


def test_the_entry_point_names_the_function():
    (value,) = DECLARED.values()
    assert EntryPoint("", value, "gymnasium.envs").load() is registration.register


def test_import_of_an_installed_alma_env_registers_them_without_pytorch(installed):
    script = "import sys, alma_env, gymnasium; print({}, 'torch' in sys.modules)"
    ids = "'Digits-ALMA-Wait-v0' in gymnasium.registry, 'Digits-ALMA-Wait-Surrogate-v0' in gymnasium.registry"
    assert run(script.format(ids), installed) == "True True False"
    assert run(f"import sys, agents.rl, gymnasium; print({ids}, 'torch' in sys.modules)") == "True True False"


def test_gymnasium_makes_them_by_id_also_in_worker_processes(installed):
    script = (
        "import gymnasium\n"
        "if __name__ == '__main__':\n"
        "    env = gymnasium.make('alma_env:Digits-ALMA-Wait-v0', width=2, ticks=2)\n"
        "    envs = gymnasium.make_vec('alma_env:Digits-ALMA-Wait-v0', num_envs=1, vectorization_mode='async',\n"
        "        vector_kwargs={'context': 'spawn'}, width=2, ticks=2)\n"
        "    print(env.reset(seed=0)[0].shape, envs.reset(seed=0)[0].shape)\n"
        "    envs.close()\n"
    )
    assert run(script, installed) == "(13,) (1, 13)"


def test_a_spec_that_names_the_former_module_is_made():
    """As in Minari data sets that were written before the modules were moved."""
    spec = gymnasium.spec("Digits-ALMA-Wait-v0")
    former = gymnasium.envs.registration.EnvSpec(
        spec.id, entry_point="agents.waiting.environment:WaitEnv", kwargs={**spec.kwargs, "width": 2, "ticks": 2}
    )
    assert type(gymnasium.make(former).unwrapped).__module__ == "agents.rl.environments.wait_env"


def test_every_stream_has_decision_environments_and_those_with_recordings_in_the_package_have_surrogates():
    registration.register()  # a second call changes nothing
    ids = {id.removeprefix(NAMESPACE) for id in gymnasium.registry}
    assert {f"{stream.removesuffix('-v0')}-Wait-{one}" for stream in STREAM_IDS for one in ("v0", "MO-v0", "v1")} <= ids
    surrogates = {id for id in ids if "-ALMA-Wait-Surrogate-" in id}
    names = ("MNIST", "FashionMNIST", "CIFAR10", "Digits", "Recorded")
    assert surrogates == {f"{name}-ALMA-Wait-Surrogate-{one}" for name in names for one in ("v0", "MO-v0", "v1")}
    assert surrogates <= {id.removeprefix(NAMESPACE) for id in gymnasium.registry if id.startswith(NAMESPACE)}
    for id in surrogates:
        if not id.startswith("Recorded"):
            gymnasium.make(id, width=4)


@pytest.mark.parametrize("id", ["Digits-ALMA-v0", "Digits-ALMA-Wait-v0", "Digits-ALMA-Wait-Surrogate-MO-v0"])
def test_each_id_also_exists_in_the_namespace_of_the_package(id):
    env = gymnasium.make(f"alma_env/{id}")
    assert env.spec.namespace == "alma_env"
    assert type(env.unwrapped) is type(gymnasium.make(id).unwrapped)


def test_a_run_in_the_namespace_is_recorded_under_the_plain_id():
    env = alma_env.make("alma_env/Digits-ALMA-v0", ticks=2)
    agent = agents.make("sm", env, width=2, epochs=1)
    assert config_of(env, agent, 0).env == "Digits-ALMA-v0"
    assert config_of(gymnasium.make("alma_env/Digits-ALMA-v0", ticks=2).unwrapped, agent, 0).env == "Digits-ALMA-v0"


@pytest.mark.parametrize(
    "saved",
    [
        "agents.waiting.environment:WaitEnv",
        "agents.rl.wait_env:WaitEnv",
        "agents.rl.decision_env:DecisionEnv",
        "agents.rl.surrogate:SurrogateVectorEnv",
        "agents.rl.decision_surrogate:DecisionSurrogateEnv",
        "agents.rl.next_training_env:NextTrainingVectorEnv",
    ],
)
def test_entry_points_in_saved_specs_of_earlier_versions_resolve(saved: str) -> None:
    name = saved.partition(":")[2]
    assert gymnasium.envs.registration.load_env_creator(saved) is getattr(agents.rl, name)
