"""The paper's findings on text (tables 1 and 2); ticks are counted from 1, where the tables have t_0."""

from __future__ import annotations

from itertools import pairwise

from agents.reproduction.index import Index, OfSeeds, difference, error_at
from agents.reproduction.setting import Setting
from agents.reproduction.verdicts import Comparison

PERPLEXITY = "perplexity"
TICKS = 4


def more_experts_are_better(runs: Index, now: Setting) -> list[Comparison]:
    """More experts are better from the second mega-batch on."""
    return [
        Comparison(
            f"{size}, t={tick}: sm {more} − sm {few}",
            PERPLEXITY,
            difference(single(runs, now, size, more), single(runs, now, size, few), error_at(tick)),
        )
        for size in now.sizes
        for few, more in pairwise(now.widths)
        for tick in range(2, TICKS + 1)
    ]


def large_is_ahead_early(runs: Index, now: Setting) -> list[Comparison]:
    """The large model after the first mega-batch is better than every base one after the last."""
    base, large = now.sizes
    return [
        Comparison(
            f"{large} sm {experts} at t=1 − {base} {name} at t={TICKS}",
            PERPLEXITY,
            difference(single(runs, now, large, experts), there, error_at(1), error_at(TICKS)),
        )
        for experts in now.widths
        for name, there in {**sequential(runs, now, base), **waited_for_all(runs, now, base)}.items()
    ]


def iid_is_better(runs: Index, now: Setting) -> list[Comparison]:
    """One stage on everything is better than a stage per mega-batch, at equal data and compute."""
    found = []
    for size in now.sizes:
        for wait, experts in zip(now.waits[1:], now.widths[1:], strict=True):
            for name, keywords in (
                ("sm", {"agent": "sm", "width": experts}),
                ("ens", _ENS_2 | {"width": now.widths[0]}),
            ):
                waited = runs.pick(size=size, wait=wait, updates=now.updates * wait, **keywords)
                stepwise = runs.pick(size=size, wait=1, updates=now.updates, **keywords)
                what = f"{size} {name} {keywords['width']}, t={wait}: w={wait}, {wait}× updates − w=1"
                found.append(Comparison(what, PERPLEXITY, difference(waited, stepwise, error_at(wait))))
    return found


def waiting_needs_compute(runs: Index, now: Setting) -> list[Comparison]:
    """Base: with the updates of one stage, to have waited is worse than to have trained on each mega-batch."""
    size = now.sizes[0]
    found = []
    for wait, experts in zip(now.waits[1:], now.widths[1:], strict=True):
        for name, keywords in (("sm", {"agent": "sm", "width": experts}), ("ens", _ENS_2 | {"width": now.widths[0]})):
            waited = runs.pick(size=size, wait=wait, updates=now.updates, **keywords)
            stepwise = runs.pick(size=size, wait=1, updates=now.updates, **keywords)
            what = f"{size} {name} {keywords['width']}, t={wait}: w={wait}, 1× updates − w=1"
            found.append(Comparison(what, PERPLEXITY, difference(waited, stepwise, error_at(wait)), "above"))
    return found


def ensembles_are_best(runs: Index, now: Setting) -> list[Comparison]:
    """Ens 4@4 is best at each tick among all that train at each tick."""
    found = []
    for size in now.sizes:
        rows = sequential(runs, now, size)
        best = rows.pop("ens 4@4")
        for tick in range(1, TICKS + 1):
            for name, there in rows.items():
                what = f"{size}, t={tick}: ens 4@4 − {name}"
                found.append(Comparison(what, PERPLEXITY, difference(best, there, error_at(tick))))
    return found


def growing_ensembles_are_ahead(runs: Index, now: Setting) -> list[Comparison]:
    """gEns is ahead of gMoE once both have grown."""
    return [
        Comparison(
            f"{size}, t={tick}: gens − gmoe",
            PERPLEXITY,
            difference(sequential(runs, now, size)["gens"], sequential(runs, now, size)["gmoe"], error_at(tick)),
        )
        for size in now.sizes
        for tick in range(2, TICKS + 1)
    ]


def fixed_beats_growing(runs: Index, now: Setting) -> list[Comparison]:
    """A fixed number of 8 or 12 experts is better than gMoE, which ends with 12."""
    return [
        Comparison(
            f"{size}, t={tick}: sm {experts} − gmoe",
            PERPLEXITY,
            difference(single(runs, now, size, experts), sequential(runs, now, size)["gmoe"], error_at(tick)),
        )
        for size in now.sizes
        for experts in now.widths[1:]
        for tick in range(1, TICKS + 1)
    ]


_ENS_2 = {"agent": "ens", "members": 2}


def single(runs: Index, now: Setting, size: str, experts: int) -> OfSeeds:
    """SM with so many experts, trained on each mega-batch."""
    return runs.pick(size=size, wait=1, updates=now.updates, agent="sm", width=experts)


def sequential(runs: Index, now: Setting, size: str) -> dict[str, OfSeeds]:
    """All rows of table 2 that train on each mega-batch, by name."""
    few = now.widths[0]
    rows = {f"sm {experts}": single(runs, now, size, experts) for experts in now.widths}
    for members in (2, 4):
        rows[f"ens {few}@{members}"] = runs.pick(
            size=size, wait=1, updates=now.updates, agent="ens", width=few, members=members
        )
    for agent in ("gens", "gmoe"):
        rows[agent] = runs.pick(size=size, wait=1, updates=now.updates, agent=agent, width=few)
    return rows


def waited_for_all(runs: Index, now: Setting, size: str) -> dict[str, OfSeeds]:
    """All rows of table 2 that train at the last tick alone, by name."""
    wait, few, many = now.tardy, now.widths[0], now.widths[-1]
    return {
        f"{name}, w={wait}, {times}× updates": runs.pick(size=size, wait=wait, updates=now.updates * times, **keywords)
        for name, keywords in (
            (f"sm {many}", {"agent": "sm", "width": many}),
            (f"ens {few}@2", _ENS_2 | {"width": few}),
        )
        for times in (1, wait)
    }
