"""A run: an agent goes through a stream; a killed run continues from its run folder.

A killed run continues from its last checkpoint. Rows that are already in the ledger stay: the repeated ticks must give
the same rows to the last bit (except for the seconds), or the run stops with an error instead of mixing results.
`agents.runs.run_folder` describes the files of the folder.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.data_facts import without_wrappers
from agents.catalogue.own_code import require_plain
from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import versions
from agents.learners.anytime import AnytimeAgent
from agents.policies import NO_DESCRIPTION
from agents.runs.episode import Player, play
from agents.runs.run_folder import RunFolder, finished_rows, locked, require_recorded
from agents.training import distributed
from alma_env import AlmaEnv, Ledger, Row
from alma_env.env import Observation
from alma_env.integers import require_seed
from alma_env.registration import NAMESPACE

OnTick = Callable[[Row], None]


def run(
    env: gym.Env[Any, Any],
    agent: AnytimeAgent | Player,
    seed: int,
    folder: str | Path | None = None,
    *,
    on_tick: OnTick | None = None,
    record: bool = False,
) -> Ledger:
    """Run an agent through the stream of ``seed`` and return its ledger.

    Args:
        env: the environment, from ``alma_env.make`` or ``gymnasium.make``; it is reset. Wrappers take no part.
        agent: an ``AnytimeAgent`` that has not run yet; or any object with ``observe(observation)``, which is called
            at every tick with the meter running, and returns the predictor to deploy, or None to keep the last one.
            Such an object runs without a folder; if it has a ``predictor``, this is its untrained answer at tick 0.
        seed: seed of the stream; the seed of the agent is an argument of ``agents.make``.
        folder: the run folder. A run that was started there continues, and a finished run is read. None: write nothing.
        on_tick: called with the row of every tick, including ticks that are read from the folder.
        record: also score the predictor of each stage on the validation parts of the whole stream. No run is charged
            for these scores; surrogates are fitted to them, so that no policy is tuned on the test set. A run that was
            started with `record` goes on with it from its first checkpoint on.

    Raises:
        RunMismatchError: the folder holds a run with another configuration, or an unfinished run of a batch of seeds
            of an earlier version; or a repeated tick differs.
        FolderInUseError: another process writes to the folder.
        ValueError: the agent has run before, is for a stream of another length, or its configuration cannot be recorded
            in a folder: it is empty, it has a value that is not plain data, or the policy has no description. Or the
            run in the folder was started without `record`, which is given now. Or the agent is no ``AnytimeAgent``,
            but `folder` or `record` is given. Or the seed is negative.
        TypeError: the environment is no stream, the agent has no ``observe``, or the seed is no integer.
    """
    env = without_wrappers(env)
    seed = require_seed(seed)  # before the folder records it
    report = on_tick or (lambda row: None)
    if not isinstance(agent, AnytimeAgent):
        return _play(env, agent, seed, folder, report, record)
    if agent.ticks != env.ticks:
        raise ValueError(
            f"agent with ticks={agent.ticks} on a stream with ticks={env.ticks}: must be equal, because its policy "
            "knows the length of the stream; make the agent with this environment"
        )
    if folder is None:
        return _run(env, agent, seed, None, report, record)
    if not agent.config:
        raise ValueError(
            f"agent.config={agent.config!r} with folder={str(folder)!r}: the folder must identify the agent by its "
            "configuration; give AnytimeAgent a config with everything that the results depend on, or leave folder out"
        )
    require_plain(agent.config)
    if "policy" in agent.config and agent.config["policy"] is None:
        raise ValueError(f"policy={agent.policy!r} with folder={str(folder)!r}: {NO_DESCRIPTION}")
    path, config = Path(folder), config_of(env, agent, seed)
    if record:
        distributed.from_first(lambda: require_recorded(path))
    if (rows := distributed.from_first(lambda: finished_rows(path, config))) is not None:
        return _read(rows, report)
    with ExitStack() as lock:
        distributed.from_first(lambda: lock.enter_context(locked(path)))
        return _run(env, agent, seed, RunFolder(path, config), report, record)


def _play(env: AlmaEnv, player: Player, seed: int, folder: str | Path | None, on_tick: OnTick, record: bool) -> Ledger:
    """Run an object of which only ``observe`` is known, and perhaps ``predictor``."""
    kind = type(player).__name__
    if not callable(getattr(player, "observe", None)):
        raise TypeError(
            f"agent of type {kind}: must have observe(observation), which returns the predictor to deploy or None; use "
            "agents.make, or agents.AnytimeAgent with your learner"
        )
    if folder is not None or record:
        what = "record=True" if folder is None else f"folder={str(folder)!r}"
        raise ValueError(
            f"{what} with an agent of type {kind}: only an agents.AnytimeAgent has the configuration, the state and "
            "the stages that this needs; leave it out, or give AnytimeAgent your learner"
        )
    untrained = getattr(player, "predictor", None)
    options = {"predictor": untrained} if isinstance(untrained, nn.Module) else None
    observation, _ = env.reset(seed=seed, options=options)
    on_tick(env.ledger[0])
    reported = 1
    for _ in play(env, player, observation):
        for row in env.ledger.rows[reported:]:
            on_tick(row)
        reported = len(env.ledger)
    return env.ledger


def _run(
    env: AlmaEnv, agent: AnytimeAgent, seed: int, files: RunFolder | None, on_tick: OnTick, record: bool
) -> Ledger:
    if files is not None and len(files.rows) == env.ticks + 1:  # its last rows were in the checkpoint
        return _read(files.rows, on_tick)
    observation, recorded = _start(env, agent, seed, files)
    record = record or recorded
    for row in env.ledger:
        on_tick(row)
    reported = len(env.ledger)
    for predictor in play(env, agent, observation):
        distributed.require_same(env.ledger[-1].digest, "the deployed predictor")
        if record and predictor is not None:
            held_out = env.validation_error(predictor)
            agent.history[-1] = dataclasses.replace(agent.history[-1], held_out_error=held_out)
        for row in env.ledger.rows[reported:]:
            if files is not None and not env.done:  # the rows of the last tick follow the last checkpoint
                files.write(row)
            on_tick(row)
        reported = len(env.ledger)
        if files is not None:
            files.checkpoint(env, agent, record=record, force=env.done)
    if files is None:
        return env.ledger
    files.end(env)
    return Ledger(files.rows)


def _read(rows: list[Row], on_tick: OnTick) -> Ledger:
    for row in rows:
        on_tick(row)
    return Ledger(rows)


def _start(env: AlmaEnv, agent: AnytimeAgent, seed: int, files: RunFolder | None) -> tuple[Observation, bool]:
    """Load the last checkpoint, or else reset the environment.

    Returns the mega-batch of the next tick, and whether the run in the checkpoint was started with ``record``.
    """
    if files is not None and (state := files.load_checkpoint()) is not None:
        env.load_state_dict(state["env"])
        agent.load_state_dict(state["agent"], env.megabatch)
        recorded = any(stage.held_out_error is not None for stage in agent.history)  # of an earlier version
        return env.observation(), state.get("record", recorded)
    if agent.tick != 0:
        raise ValueError(
            f"agent.tick={agent.tick}: the agent has already trained on a stream; create a new agent for each run"
        )
    observation, _ = env.reset(seed=seed, options={"predictor": agent.predictor})
    if files is not None:
        files.write(env.ledger[0])
    return observation, False


def config_of(env: AlmaEnv, agent: AnytimeAgent, seed: int) -> RunConfig:
    """Return the configuration of a run."""
    computation = {
        **({"ranks": distributed.ranks()} if distributed.ranks() > 1 else {}),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "machine": {"processor": platform.machine(), "simd": torch.backends.cpu.get_cpu_capability()},
    }
    env_id = env.spec.id.removeprefix(NAMESPACE) if env.spec is not None else type(env).__name__
    return RunConfig(env_id, env.protocol(), AgentConfig(agent.config), seed, computation)
