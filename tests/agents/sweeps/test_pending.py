"""The plan of a sweep: the order in which runs start, by their work, and what identifies a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import digest_of
from agents.cli import main
from agents.sweeps import local, run_index
from agents.sweeps.pending import plan
from agents.sweeps.sweep import sweep

from .small_runs import DIGITS, GOOD, new_console


def test_the_longest_runs_start_first_unless_an_order_is_given(tmp_path, monkeypatch):
    started = []

    def none(jobs, variables):
        started.extend(job.spec for job in jobs)
        yield from ()

    monkeypatch.setattr(local, "run_jobs", none)
    wide, often = replace(GOOD, width=64), replace(GOOD, width=64, wait=1)
    several = replace(GOOD, agent="ens", width=64)
    replayed = replace(GOOD, width=64, replay=True)
    growing = replace(often, agent="gmoe")
    sweep([GOOD, wide, often, several, replayed, growing], tmp_path, console=new_console())
    assert started == [several, replayed, growing, often, wide, GOOD]
    started.clear()
    # The two seeds of a setting do not follow each other, and the last run is the first one again.
    in_order = [GOOD, replace(wide, seed=1), often, wide, several, GOOD]
    sweep(in_order, tmp_path, in_order=True, console=new_console())
    assert started == in_order[:-1]


def test_a_mixture_with_uneven_growth_steps_can_be_planned(tmp_path):
    uneven = replace(GOOD, agent="gmoe", wait=1, settings={**GOOD.settings, "grow_by": (1, 2)})
    (pending,) = plan([uneven], tmp_path).pending.values()
    (even,) = plan([replace(uneven, settings={**GOOD.settings, "grow_by": 1})], tmp_path).pending.values()
    assert pending.work > even.work


@pytest.mark.parametrize("kind", ["zip", "npz"])
def test_a_policy_in_a_file_is_identified_by_the_content_of_the_file(kind):
    assert replace(GOOD, wait=None, policy=f"net.{kind}:pass_price=1").names_files
    assert not replace(GOOD, wait=None, policy="doubling").names_files


def test_the_learned_schedule_of_the_package_is_identified_by_its_content():
    assert replace(GOOD, wait=None, policy="learned:pass_price=1").names_files


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "doubling"}, "wait=2 with policy='doubling': a policy decides when to train and on what; leave"),
        (
            {"policy": "doubling", "wait": None, "replay": True},
            "replay=True with policy='doubling': .* leave replay out",
        ),
        ({"settings": {"epochs": {1, 2}}}, r"epochs=\{1, 2\}: must be a number, a text, true"),
        ({"agent": 5}, "agent=5: must be text; use for example agent='sm'"),
        ({"wait": None, "policy": 5}, "policy=5: must be text or None; use for example policy='doubling'"),
        ({"threads": 10**6}, "threads=1000000: must be 1 to 1024; leave it out"),
    ],
)
def test_a_wrong_specification_is_refused_with_the_remedy(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        plan([replace(GOOD, **changes)], tmp_path)


OWN = """
import agents

def make_agent(env, *, seed=0):
    policy = agents.RandomWait(probability=0.5, seed=seed)
    return agents.make("sm", env, width=4, epochs=1, seed=seed, policy=policy)
"""


def test_each_seed_of_an_own_agent_has_its_own_configuration(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("own_seed.py").write_text(OWN)
    command = ["--agent", "own_seed.py:make_agent", "--seeds", "0", "1", "--set", "ticks=4"]
    assert main(["run", DIGITS, *command]) == 0
    capsys.readouterr()
    assert main(["sweep", "--env", DIGITS, *command, "--dry-run"]) == 0
    assert "2 runs: 2 done, 0 started, 0 to run" in capsys.readouterr().out


def test_a_long_description_of_a_policy_leaves_room_for_the_name_of_the_folder(tmp_path):
    agent = {"id": "mine", "policy": {"name": "own", "ticks": list(range(300)), "replay": False}, "seed": 0}
    config = RunConfig.from_dict({"env": DIGITS, "protocol": {"ticks": 4}, "agent": agent, "seed": 0})
    folder = run_index.folder_of(tmp_path, config)
    assert len(config.label) > 255
    folder.mkdir(parents=True)
    assert folder.name.endswith(f"-seed0-{digest_of(config.to_dict())[:8]}")
