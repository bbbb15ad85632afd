"""The order in which the runs of a sweep start, by their work."""

from __future__ import annotations

from dataclasses import replace

from agents.sweeps import local
from agents.sweeps.pending import plan
from agents.sweeps.sweep import sweep

from .small_runs import GOOD, new_console


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
