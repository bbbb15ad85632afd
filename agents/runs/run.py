"""A run: one agent through one stream, into a folder from which it can go on after it was killed.

A killed run is repeated from its last checkpoint. Rows that are already in the ledger stay as they are; the repeated
ticks must reproduce them to the last bit (the seconds aside), or the run stops with an error instead of mixing results.
What is in its folder, `agents.run_folder` says.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import alma_env
from agents import parallel
from agents.anytime import AnytimeAgent
from agents.policies import NO_DESCRIPTION
from agents.run_folder import RunFolder, locked
from alma_env import AlmaEnv, Ledger, Row

OnTick = Callable[[Row], None]


def run(
    env: AlmaEnv,
    agent: AnytimeAgent,
    seed: int,
    folder: str | Path | None = None,
    *,
    on_tick: OnTick | None = None,
    record: bool = False,
) -> Ledger:
    """Take an agent through the stream of ``seed`` and return its ledger.

    Args:
        env: the environment; it is reset.
        agent: an ``AnytimeAgent`` that has not run yet.
        seed: seed of the stream; the agent's own seed was given to ``agents.make``.
        folder: where to write; a run that was begun there is continued, a finished one is read. None: write nothing.
        on_tick: told after every tick, also of the ticks that are read from the folder.
        record: also score what each training brought on the validation parts of the whole stream, which nobody is
            charged for: surrogates are fitted to it, so that no policy is tuned on the test set.

    Raises:
        RunMismatchError: the folder holds a run of another configuration, or one that does not repeat.
        FolderInUseError: another process writes to the folder.
        ValueError: the agent has run before, or a folder could not know it again: its config is empty, or its policy
            has no description.
    """
    if folder is None:
        return _run(env, agent, seed, None, on_tick, record)
    if not agent.config:
        raise ValueError(
            f"agent.config={agent.config!r} with folder={str(folder)!r}: another agent's run could not be told from "
            "this one; give AnytimeAgent a config that says all that its numbers depend on, or leave folder out"
        )
    if "policy" in agent.config and agent.config["policy"] is None:
        raise ValueError(f"policy={agent.policy!r} with folder={str(folder)!r}: {NO_DESCRIPTION}")
    with ExitStack() as lock:
        parallel.from_first(lambda: lock.enter_context(locked(Path(folder))))
        return _run(env, agent, seed, RunFolder(Path(folder), describe(env, agent, seed)), on_tick, record)


def _run(
    env: AlmaEnv, agent: AnytimeAgent, seed: int, files: RunFolder | None, on_tick: OnTick | None, record: bool
) -> Ledger:
    if files is not None and len(files.rows) == env.ticks + 1:
        for row in files.rows:
            if on_tick is not None:
                on_tick(row)
        return Ledger(files.rows)
    state = files.load_checkpoint() if files is not None else None
    observation = begin(env, agent, seed, files, state)
    if on_tick is not None:
        for row in env.ledger:
            on_tick(row)
    while not env.done:
        with env.meter:
            predictor = agent.observe(observation)
        parallel.add_up(env.meter)
        observation = step(env, agent, predictor, files, on_tick, record)
        if files is not None:
            files.checkpoint(env, agent, force=env.done)
    if files is None:
        return env.ledger
    files.end(env)
    return Ledger(files.rows)


def step(
    env: AlmaEnv,
    agent: AnytimeAgent,
    predictor: nn.Module | None,
    files: RunFolder | None,
    on_tick: OnTick | None = None,
    record: bool = False,
) -> Any:
    """Answer at a tick with what the agent has trained, or with None, and write the rows; the next mega-batch.

    The rows of the last tick are left to `RunFolder.end`.
    """
    done_before = len(env.ledger)
    observation, *_ = env.step(predictor)
    parallel.require_same(env.ledger[-1].digest, "the deployed predictor")
    if record and predictor is not None:
        held_out = env.validation_error(predictor)
        agent.history[-1] = dataclasses.replace(agent.history[-1], held_out_error=held_out)
    for row in env.ledger.rows[done_before:]:
        if files is not None and not env.done:
            files.write(row)
        if on_tick is not None:
            on_tick(row)
    return observation


def begin(env: AlmaEnv, agent: AnytimeAgent, seed: int, files: RunFolder | None, state: dict[str, Any] | None) -> Any:
    """Reset, or go on from a checkpoint's state; the mega-batch that awaits its answer."""
    if state is not None:
        env.load_state_dict(state["env"])
        agent.load_state_dict(state["agent"], env.megabatch)
        return env.observation()
    if agent.tick != 0:
        raise ValueError(
            f"agent.tick={agent.tick}: the agent has trained on a stream before and would begin this one with what it "
            "learned there; make a new agent per run"
        )
    observation, _ = env.reset(seed=seed, options={"predictor": agent.predictor})
    if files is not None:
        files.write(env.ledger[0])
    return observation


def describe(env: AlmaEnv, agent: AnytimeAgent, seed: int, *, batched: int = 1) -> dict[str, Any]:
    """The configuration of a run: everything that its numbers depend on.

    `batched` is the number of runs in one computation (`agents.experiments.batched`), on which the last bits depend.
    """
    several = {"ranks": parallel.ranks()} if parallel.ranks() > 1 else {}
    several |= {"batched": batched} if batched > 1 else {}
    return several | {
        "env": env.spec.id if env.spec is not None else type(env).__name__,
        "protocol": env.protocol(),
        "agent": agent.config,
        "seed": seed,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "machine": {"processor": platform.machine(), "simd": torch.backends.cpu.get_cpu_capability()},
    }


def versions() -> dict[str, str]:
    """Of what computes a run: with another one the last bits may differ."""
    return {
        "alma-env": alma_env.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
