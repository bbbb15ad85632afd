"""Fixtures for several test modules."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from torch import nn

import agents
import alma_env
from agents.catalogue import own_code
from agents.networks.switch_size import SwitchSize
from agents.runs import load
from alma_env.data.image_files import datasets

from . import postgresql
from .agents.ledgers import without_seconds

# A busy machine is no reason to fail.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")

# Several workers share the cores, and PyTorch's threads wait for each other in busy loops: with one thread per core in
# every worker, the tests take ten times as long. The variable is for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start each test from the same random numbers, whatever tests the worker ran before it."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed takes a millisecond without a GPU
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


# Files that take more than ten seconds. They start first, so that no worker is left alone with one of them at the end.
LONG_FILES = (
    "test_verify.py",
    "test_build.py",
    "test_docs.py",
    "test_worker.py",
    "test_ray_cluster.py",
    "test_distributed.py",
    "test_storms.py",
    "test_killed_server.py",
    "test_damage.py",
    "test_native_library.py",
    "test_text_agents.py",
    "test_stopped_sweep.py",
    "test_firefly.py",
    "test_candidates.py",
    "test_free_operations.py",
    "test_docs_blocks.py",
    "test_reproduce.py",
    "test_trackers.py",
    "test_registration.py",
    "test_run.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by file: the longest files first."""
    items.sort(key=lambda item: LONG_FILES.index(item.path.name) if item.path.name in LONG_FILES else len(LONG_FILES))


@pytest.fixture(scope="session", autouse=True)
def recorded_runs_are_read_once() -> Iterator[None]:
    """Keep the runs in the packed files of the package: many tests read all of these hundreds of runs."""
    read, package = load._runs_of, Path(agents.__file__).parent
    kept: dict[Path, list[load.FinishedRun]] = {}

    def runs_of(path: Path) -> Iterator[load.FinishedRun]:
        if package not in path.parents:
            return read(path)
        if path not in kept:
            kept[path] = list(read(path))
        return iter(kept[path])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(load, "_runs_of", runs_of)
        yield


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """Start a PostgreSQL server for the tests, once, when a test first uses it; return its URL."""
    with postgresql.cluster() as url:
        yield url


@pytest.fixture(scope="session")
def postgresql_database(postgresql_server: str) -> Callable[..., AbstractContextManager[str]]:
    """Return a context manager that creates a database by name and template, and gives its URL."""
    return partial(postgresql.database, postgresql_server)


@pytest.fixture(autouse=True)
def no_own_code() -> Iterator[Callable[[], None]]:
    """Forget the users' files that the process has imported, as a new process would; return a function that does so.

    A process refuses a second file of one name, and a worker of pytest runs many tests with such files.
    """

    def forget() -> None:
        own_code._module.cache_clear()
        own_code._files.clear()
        for name in [name for name in sys.modules if name.startswith("own_")]:
            del sys.modules[name]

    yield forget
    forget()


@pytest.fixture
def real_data() -> Callable[..., alma_env.DataSet]:
    """Return a function that loads a real data set by name from the folder ALMA_DATA, or skips the test."""

    def load(name: str, **options: str) -> alma_env.DataSet:
        if not os.environ.get("ALMA_DATA"):
            pytest.skip("ALMA_DATA is not set; set it to a folder with the data sets in torchvision's layout")
        try:
            return alma_env.load(name, download=False, **options)
        except alma_env.DataUnavailableError as error:
            pytest.skip(str(error))

    return load


@pytest.fixture
def dense_gpt2() -> Callable[[int, SwitchSize], nn.Module]:
    """Return a function that makes the GPT-2 of `transformers` without dropout and with the exact GELU."""
    datasets()  # lets transformers import torchvision on a CPU build of torch
    transformers = pytest.importorskip("transformers")

    def make(vocabulary: int, size: SwitchSize) -> nn.Module:
        config = transformers.GPT2Config(
            vocab_size=vocabulary,
            n_positions=size.context,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
        model: nn.Module = transformers.GPT2LMHeadModel(config)
        return model

    return make


@pytest.fixture
def goes_on_after_any_tick() -> Callable[..., alma_env.Ledger]:
    """Check that a run that is saved and restored at every tick ends with the same ledger, except for the seconds.

    A run that is restored once, in its middle, and not again does, too. A restored agent gives the same answers, and
    none of its modules trains. The check returns the ledger of the run that nothing disturbed.
    """

    def check(
        make_env: Callable[[], alma_env.AlmaEnv], make_agent: Callable[[alma_env.AlmaEnv], agents.AnytimeAgent]
    ) -> alma_env.Ledger:
        def new() -> tuple[alma_env.AlmaEnv, agents.AnytimeAgent]:
            env = make_env()
            agent = make_agent(env)
            env.reset(seed=0, options={"predictor": agent.predictor})
            return env, agent

        def restored(env_state: Any, agent_state: Any) -> tuple[alma_env.AlmaEnv, agents.AnytimeAgent]:
            env = make_env()
            env.load_state_dict(env_state)
            agent = make_agent(env)
            agent.load_state_dict(agent_state, env.megabatch)
            return env, agent

        def tick(env: alma_env.AlmaEnv, agent: agents.AnytimeAgent) -> None:
            with env.meter:
                predictor = agent.observe(env.observation())
            env.step(predictor)

        env, agent = new()
        for _ in range(env.ticks):
            tick(env, agent)
        assert env.done
        undisturbed, ticks = env.ledger, env.ticks

        env, agent = new()
        states = []
        for _ in range(ticks):
            states.append(copy.deepcopy((env.state_dict(), agent.state_dict())))
            before = agent
            env, agent = restored(*copy.deepcopy(states[-1]))
            x = torch.tensor(env.observation()["train"]["x"][:24])
            with torch.no_grad():
                assert torch.equal(agent.predictor(x), before.predictor(x))
            assert not any(module.training for module in agent.predictor.modules())
            tick(env, agent)
        assert env.done
        assert without_seconds(env.ledger) == without_seconds(undisturbed)

        env, agent = restored(*states[ticks // 2])
        for _ in range(ticks // 2, ticks):
            tick(env, agent)
        assert env.done
        assert without_seconds(env.ledger) == without_seconds(undisturbed)
        return undisturbed

    return check
