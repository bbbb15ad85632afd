"""Exploring runs differ in how often they train, replay, restart and grow, and each can be repeated."""

from __future__ import annotations

import numpy as np
import pytest

import agents
import alma_env
from agents.policies.exploring import PASSES, Exploring
from agents.policies.progress import Decision, Progress, megabatches_of
from agents.policies.specs import policy_from

TICKS = 60


def stages(seed: int, *, grows: bool = True, ticks: int = TICKS) -> list[tuple[int, int, Decision]]:
    """Return tick, gathered mega-batches and decision of the stages of a run."""
    policy, done, last, processed = Exploring(seed, grows), [], 0, 0
    for tick in range(1, ticks + 1):
        decision = policy(Progress(tick, ticks, pending=tick - last, stages=len(done), processed=processed))
        if decision.train:
            done.append((tick, tick - last, decision))
            processed += megabatches_of(tick, tick - last, replay=decision.replay, window=decision.window)
            last = tick
    return done


def test_a_run_depends_on_its_seed_only_and_a_learner_that_cannot_grow_does_not():
    assert stages(3) == stages(3)
    assert stages(3) != stages(4)
    assert not any(decision.grow for seed in range(40) for *_, decision in stages(seed, grows=False))
    assert [tick for tick, *_ in stages(3)] == [tick for tick, *_ in stages(3, grows=False)]


def test_the_runs_cover_what_a_policy_can_do():
    runs = [stages(seed) for seed in range(200)]
    counts = np.array([len(run) for run in runs])
    assert (counts >= 1).all()
    assert counts.min() <= 2
    assert counts.max() >= TICKS * 0.7
    early = np.mean([run[-1][0] < TICKS for run in runs])
    assert 0.35 < early < 0.65
    for done in (
        lambda decision: decision.replay and decision.window is None,
        lambda decision: decision.window is not None,
        lambda decision: decision.restart,
        lambda decision: decision.grow,
    ):
        shares = np.array([np.mean([done(decision) for *_, decision in run]) for run in runs])
        assert (shares == 0).mean() > 0.1
        assert (shares > 0.2).mean() > 0.1
    passes = [
        sum(megabatches_of(tick, pending, replay=d.replay, window=d.window) for tick, pending, d in run) / TICKS
        for run in runs
    ]
    assert max(passes) <= PASSES
    assert np.mean(np.array(passes) > 2) > 0.15
    windows = [(tick - pending, decision.window) for run in runs for tick, pending, decision in run if decision.window]
    assert all(1 <= window <= before for before, window in windows)


def test_the_policy_has_a_name_on_the_command_line():
    assert policy_from("exploring:seed=5") == Exploring(5)
    assert policy_from("exploring", grows=True) == Exploring(0, grows=True)
    with pytest.raises(ValueError, match=r"'wait=3' is not a field.*fields seed"):
        policy_from("exploring:wait=3")
    with pytest.raises(ValueError, match="seed=-1.*0 or more"):
        policy_from("exploring:seed=-1")
    with pytest.raises(ValueError, match="seed='much'.*whole number"):
        policy_from("exploring:seed=much")


def test_a_learner_explores_a_stream_and_the_run_folder_names_the_policy(tmp_path):
    env = alma_env.make("Digits-ALMA-v0", ticks=12)
    agent = agents.make("gmoe", env, width=4, epochs=1, policy=Exploring(2, grows=True))
    agents.run(env, agent, 0, tmp_path)
    assert agent.config["policy"] == {"name": "exploring", "seed": 2, "grows": True}
    planned = [(tick, decision.replay, decision.restart) for tick, _, decision in stages(2, ticks=12)]
    assert [(one.tick, one.replay, one.restart) for one in agent.history] == planned
