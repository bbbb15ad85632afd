"""The paper's findings on text (tables 1 and 2). The first tick is t=1 here, and t_0 in the tables of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from agents.analysis.statistics import differences_by_seed, pairs_by_seed
from agents.reproduction.claims.comparisons import (
    Findings,
    Picker,
    Quantity,
    RunsBySeed,
    compare,
    compare_pairs,
    error_at,
)
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import PairedComparison, Prediction

TICKS = 4

Row = dict[str, Any]  # agent, width and members of a row of table 2


def _perplexity_at(tick: int) -> Quantity:
    return error_at(tick, "perplexity")


def _sm(experts: int) -> dict[str, Row]:
    return {f"sm {experts}": {"agent": "sm", "width": experts}}


def _ens(experts: int, members: int) -> dict[str, Row]:
    return {f"ens {experts}@{members}": {"agent": "ens", "width": experts, "members": members}}


def _rows(setup: Setup) -> dict[str, Row]:
    few = setup.widths[0]
    rows = _ens(few, 2) | _ens(few, 4) | {agent: {"agent": agent, "width": few} for agent in ("gens", "gmoe")}
    for experts in setup.widths:
        rows |= _sm(experts)
    return rows


def _sequential(pick: Picker, setup: Setup, size: str, names: Iterable[str]) -> dict[str, RunsBySeed]:
    """Return the runs of these rows that train on each mega-batch."""
    rows = _rows(setup)
    return {name: pick(size=size, wait=1, updates=setup.updates, **rows[name]) for name in dict.fromkeys(names)}


def _growing(pick: Picker, setup: Setup) -> dict[str, dict[str, RunsBySeed]]:
    """Return the growing methods that train on each mega-batch by size, also those with more updates."""
    rows = {size: _sequential(pick, setup, size, ("gens", "gmoe")) for size in setup.sizes}
    few, size = setup.widths[0], setup.sizes[0]
    more = {
        f"{size}, {updates:,} updates": {
            agent: pick(size=size, wait=1, updates=updates, agent=agent, width=few) for agent in ("gens", "gmoe")
        }
        for updates in setup.more_updates
    }
    return rows | more


def _compare_rows(
    pick: Picker, setup: Setup, pairs: Sequence[tuple[str, str]], first_tick: int = 1
) -> list[PairedComparison]:
    """Compare pairs of rows that train on each mega-batch, at each tick."""
    compared = []
    for size in setup.sizes:
        rows = _sequential(pick, setup, size, chain.from_iterable(pairs))
        compared += [
            compare(f"{size}, t={tick}: {one} − {other}", rows[one], rows[other], _perplexity_at(tick))
            for one, other in pairs
            for tick in range(first_tick, TICKS + 1)
        ]
    return compared


def _more_experts_are_better(pick: Picker, setup: Setup) -> list[PairedComparison]:
    pairs = [(f"sm {more}", f"sm {fewer}") for fewer, more in pairwise(setup.widths)]
    return _compare_rows(pick, setup, pairs, first_tick=2)


def _ensembles_are_best(pick: Picker, setup: Setup) -> list[PairedComparison]:
    others = [*(f"sm {experts}" for experts in setup.widths), f"ens {setup.widths[0]}@2", "gens", "gmoe"]
    return _compare_rows(pick, setup, [(f"ens {setup.widths[0]}@4", other) for other in others])


def _growing_ensembles_are_ahead(pick: Picker, setup: Setup) -> list[PairedComparison]:
    return [
        compare(f"{size}, t={tick}: gens − gmoe", rows["gens"], rows["gmoe"], _perplexity_at(tick))
        for size, rows in _growing(pick, setup).items()
        for tick in range(2, TICKS + 1)  # from the first tick at which both have grown
    ]


def _fixed_beats_growing(pick: Picker, setup: Setup) -> list[PairedComparison]:
    return _compare_rows(pick, setup, [(f"sm {experts}", "gmoe") for experts in setup.widths[1:]])


def _waiting(setup: Setup, experts: int) -> dict[str, Row]:
    """Return the rows that also train after several mega-batches."""
    return _sm(experts) | _ens(setup.widths[0], 2)


def _large_is_ahead_early(pick: Picker, setup: Setup) -> list[PairedComparison]:
    base, large = setup.sizes
    wait = setup.tardy
    base_rows = _sequential(pick, setup, base, _rows(setup))
    for name, row in _waiting(setup, setup.widths[-1]).items():
        for times in (1, wait):
            runs = pick(size=base, wait=wait, updates=setup.updates * times, **row)
            base_rows[f"{name}, w={wait}, {times}× updates"] = runs
    large_rows = _sequential(pick, setup, large, (f"sm {experts}" for experts in setup.widths))
    return [
        compare(
            f"{large} sm {experts} at t=1 − {base} {name} at t={TICKS}",
            large_rows[f"sm {experts}"],
            runs,
            _perplexity_at(1),
            of_those=_perplexity_at(TICKS),
        )
        for experts in setup.widths
        for name, runs in base_rows.items()
    ]


def _compare_waiting(
    pick: Picker, setup: Setup, sizes: Sequence[str], predicted: Prediction, *, equal_compute: bool
) -> list[PairedComparison]:
    """Compare one training on several mega-batches with a training on each of them."""
    return [
        compare(
            f"{size} {name}, t={wait}: w={wait}, {times}× updates − w=1",
            pick(size=size, wait=wait, updates=setup.updates * times, **row),
            pick(size=size, wait=1, updates=setup.updates, **row),
            _perplexity_at(wait),
            predicted,
        )
        for size in sizes
        for wait, experts in zip(setup.waits[1:], setup.widths[1:], strict=True)
        for times in [wait if equal_compute else 1]
        for name, row in _waiting(setup, experts).items()
    ]


def _iid_is_better(pick: Picker, setup: Setup) -> list[PairedComparison]:
    return _compare_waiting(pick, setup, setup.sizes, "below", equal_compute=True)


def _waiting_needs_compute(pick: Picker, setup: Setup) -> list[PairedComparison]:
    return _compare_waiting(pick, setup, setup.sizes[:1], "above", equal_compute=False)


def _gap_grows_with_size(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """Compare the gap between sequential and i.i.d. training of Ens, of the large model and the base model."""
    few, (base, large) = setup.widths[0], setup.sizes
    compared = []
    for wait in setup.waits[1:]:
        gaps = {}
        for size in setup.sizes:
            row = {"agent": "ens", "width": few, "members": 2, "size": size}
            at_once = pick(wait=wait, updates=setup.updates * wait, **row)
            in_turn = pick(wait=1, updates=setup.updates, **row)
            gaps[size] = _differences(in_turn, at_once, _perplexity_at(wait))
        label = f"t={wait}: sequential − i.i.d., {large} − {base}"
        compared.append(compare_pairs(label, "perplexity", pairs_by_seed(gaps[large], gaps[base]), "above"))
    return compared


def _differences(these: RunsBySeed, those: RunsBySeed, quantity: Quantity) -> dict[int, float]:
    return differences_by_seed(quantity.by_seed(these), quantity.by_seed(those))


def _mixtures_save_memory(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """Compare gMoE with gEns at equal numbers of parameters, on the line through the ticks of gEns."""
    compared = []
    for size, rows in _growing(pick, setup).items():
        for tick in range(2, TICKS + 1):
            pairs = {}
            for seed, (gmoe, gens) in pairs_by_seed(rows["gmoe"], rows["gens"]).items():
                mixture, ensemble = gmoe.columns, gens.columns
                sizes, values = ensemble.parameters[1:], ensemble.error[1:]
                at_equal = float(np.interp(np.log(mixture.parameters[tick]), np.log(sizes), values))
                pairs[seed] = mixture.error[tick], at_equal
            label = f"{size}: gmoe at t={tick} − gens with as many parameters"
            compared.append(compare_pairs(label, "perplexity", pairs))
    return compared


def _one_model_saves_compute(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """Compare the largest SM with an earlier tick of Ens, at which Ens has taken as many training FLOPs."""
    few, many = setup.widths[0], setup.widths[-1]
    compared = []
    for size in setup.sizes:
        rows = _sequential(pick, setup, size, (f"sm {many}", f"ens {few}@2", f"ens {few}@4"))
        for members in (2, 4):
            for tick in range(1, TICKS // members + 1):
                compared.append(
                    compare(
                        f"{size}: sm {many} at t={tick * members} − ens {few}@{members} at t={tick}",
                        rows[f"sm {many}"],
                        rows[f"ens {few}@{members}"],
                        _perplexity_at(tick * members),
                        of_those=_perplexity_at(tick),
                    )
                )
    return compared


FINDINGS: Findings = {
    "text-experts": ("more experts are better from the second mega-batch on", _more_experts_are_better),
    "text-large": (
        "large is better after the first mega-batch than every base row after the last",
        _large_is_ahead_early,
    ),
    "text-iid": ("i.i.d. is better than sequential at equal data and compute", _iid_is_better),
    "text-waiting": ("base: waiting is worse than w=1 with the updates of one training", _waiting_needs_compute),
    "text-ens": ("Ens 4@4 is best at each tick among the rows with w=1", _ensembles_are_best),
    "text-gens": ("gEns is ahead of gMoE at equal tick", _growing_ensembles_are_ahead),
    "text-fixed": ("8 or 12 fixed experts are better than gMoE at equal tick", _fixed_beats_growing),
    "text-gap": ("i.i.d. training gains more for the large model than for the base model", _gap_grows_with_size),
    "text-memory": ("gMoE is better than gEns at an equal number of parameters", _mixtures_save_memory),
    "text-compute": ("SM with 12 experts is better than Ens at equal training FLOPs", _one_model_saves_compute),
}
