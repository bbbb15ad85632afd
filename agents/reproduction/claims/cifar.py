"""The paper's findings on CIFAR-10 (sections 5 and 6, figures 2, 3, 4 and 8), and the ablation of its first version.

The ablation (section 5.2 of the first version) compares mixtures that train at each tick.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from agents.analysis.statistics import paired_difference
from agents.reproduction.claims.comparisons import (
    CER,
    FINAL_ERROR,
    SM_AND_ENS,
    Findings,
    Pick,
    Quantity,
    compare,
    compare_at_equal_size,
    compare_waits,
    error_at,
)
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import PairedComparison

GROWING = ("gmoe", "ff")
METHODS = ("sm", "ens", "umix", "gens", "gmoe", "ff")


def _intermediate_wait(pick: Pick, setup: Setup) -> list[PairedComparison]:
    return compare_waits(pick, setup.widths, [(setup.middle[0], wait) for wait in (setup.greedy, setup.tardy)], CER)


def _waiting_ends_better(pick: Pick, setup: Setup) -> list[PairedComparison]:
    middle = setup.middle[0]
    return compare_waits(pick, setup.widths, [(middle, setup.greedy), (setup.tardy, middle)], FINAL_ERROR)


def _greedy_starts_better(pick: Pick, setup: Setup) -> list[PairedComparison]:
    # The ticks at which the greedy learner has trained and the patient learner has not.
    first, last = setup.greedy, setup.middle[0] - 1
    mean_error = Quantity(
        f"mean error, t={first}..{last}", lambda run: float(run.columns.errors[first : last + 1].mean())
    )
    return compare_waits(pick, setup.widths, [(setup.greedy, setup.middle[0])], mean_error)


def _wider_is_better(pick: Pick, setup: Setup) -> list[PairedComparison]:
    compared = []
    for agent in SM_AND_ENS:
        for wait in setup.waits:
            by_width = {width: pick(agent=agent, width=width, wait=wait) for width in setup.widths}
            widths = [width for width in setup.widths if by_width[width]]
            for narrow, wide in pairwise(widths if len(widths) > 1 else setup.widths):
                label = f"{agent}, w={wait}: {wide} − {narrow}"
                compared += [
                    compare(label, by_width[wide], by_width[narrow], quantity) for quantity in (CER, FINAL_ERROR)
                ]
    return compared


def _large_is_ahead_early(pick: Pick, setup: Setup) -> list[PairedComparison]:
    small, large, wait = setup.widths[0], setup.widths[-1], setup.middle[0]
    return [
        compare(
            f"ens, w={wait}: {large} at t={wait} − {small} at the end",
            pick(agent="ens", width=large, wait=wait),
            pick(agent="ens", width=small, wait=wait),
            error_at(wait),
            of_those=FINAL_ERROR,
        )
    ]


def _compare_methods(pick: Pick, setup: Setup, width: int, one: str, other: str) -> list[PairedComparison]:
    """Compare the CER of two methods of one width at each waiting time."""
    return [
        compare(
            f"{width}, w={wait}: {one} − {other}",
            pick(agent=one, width=width, wait=wait),
            pick(agent=other, width=width, wait=wait),
            CER,
        )
        for wait in setup.waits
    ]


def _mixing_helps_small(pick: Pick, setup: Setup) -> list[PairedComparison]:
    return [
        *_compare_methods(pick, setup, setup.widths[0], "umix", "ens"),
        *_compare_methods(pick, setup, setup.widths[-1], "ens", "umix"),
    ]


def _ensembles_help(pick: Pick, setup: Setup) -> list[PairedComparison]:
    return [one for width in setup.widths for one in _compare_methods(pick, setup, width, "ens", "sm")]


def _growing_helps(pick: Pick, setup: Setup) -> list[PairedComparison]:
    compared = []
    for wait in setup.waits[:-1]:  # the tardy learner trains once and does not grow
        singles = [pick(agent="sm", width=width, wait=wait) for width in setup.widths]
        for agent in GROWING:
            for width, single in zip(setup.widths, singles, strict=True):
                grown = pick(agent=agent, width=width, wait=wait)
                label = f"{agent} {width}, w={wait}"
                compared.append(compare(f"{label} − sm {width}", grown, single, CER))
                compared.append(compare_at_equal_size(f"{label} − sm of equal average size", grown, singles))
    return compared


def _growing_ensembles_are_worst(pick: Pick, setup: Setup) -> list[PairedComparison]:
    compared = []
    for wait in setup.waits[:-1]:
        grown = {width: pick(agent="gens", width=width, wait=wait) for width in setup.widths}
        for agent in METHODS:
            if agent != "gens":
                others = [pick(agent=agent, width=width, wait=wait) for width in setup.widths]
                compared += [
                    compare_at_equal_size(f"gens {width}, w={wait} − {agent} of equal Mem", runs, others)
                    for width, runs in grown.items()
                ]
    return compared


def _replay_helps(pick: Pick, setup: Setup) -> list[PairedComparison]:
    wait = setup.middle[0]
    stages = -(-setup.tardy // wait)
    factor = (stages + 1) / 2  # with replay, stage s trains on s times the data of a stage without replay
    compared = []
    for width in setup.widths:
        gains = {}
        for agent in METHODS:
            once = pick(agent=agent, width=width, wait=wait)
            replayed = pick(agent=agent, width=width, wait=wait, replay=True)
            compared.append(compare(f"{agent} {width}, w={wait}: replay − no replay", replayed, once, CER))
            common = [seed for seed in replayed if seed in once]
            gains[agent] = {seed: CER.value(replayed[seed]) - CER.value(once[seed]) for seed in common}
            if agent == "sm":
                ratios = {seed: replayed[seed].score.paper_flops / once[seed].score.paper_flops for seed in common}
                label = f"sm {width}, w={wait}: Comp with replay / without − {factor:g}"
                interval = paired_difference(ratios, dict.fromkeys(ratios, factor))
                compared.append(PairedComparison(label, "training FLOPs, ratio", interval, "close", 0.05 * factor))
        for agent in METHODS:
            if agent != "gens":
                label = f"{width}, w={wait}: effect of replay on {agent} − on gens"
                compared.append(PairedComparison(label, CER.name, paired_difference(gains[agent], gains["gens"])))
    return compared


_MIXTURES: dict[str, dict[str, Any]] = {
    "tree": {"agent": "gmoe", "tree": True},
    "flat": {"agent": "gmoe", "tree": False},
    "gmoe": {"agent": "gmoe", "tree": True},
    "moe": {"agent": "moe"},
    "gens-moe": {"agent": "gens-moe"},
}


def _compare_mixtures(pick: Pick, setup: Setup, *pairs: tuple[str, str]) -> list[PairedComparison]:
    return [
        compare(
            f"{width}: {one} − {other}", pick(width=width, **_MIXTURES[one]), pick(width=width, **_MIXTURES[other]), CER
        )
        for width in setup.widths
        for one, other in pairs
    ]


def _trees_are_better(pick: Pick, setup: Setup) -> list[PairedComparison]:
    return _compare_mixtures(pick, setup, ("tree", "flat"))


def _growing_beats_fixed(pick: Pick, setup: Setup) -> list[PairedComparison]:
    return _compare_mixtures(pick, setup, ("gmoe", "moe"), ("moe", "gens-moe"))


FINDINGS: Findings = {
    "cifar-a": (
        "CER is lowest at an intermediate waiting time, w=10, for SM and Ens at each width",
        _intermediate_wait,
    ),
    "cifar-b": ("final error: w=100 ≤ w=10 < w=2, for SM and Ens", _waiting_ends_better),
    "cifar-c": ("before t=10, w=2 has a lower error than w=10, for SM and Ens", _greedy_starts_better),
    "cifar-d": ("wider is better, in CER and in final error, for SM and Ens", _wider_is_better),
    "cifar-e": ("Ens of c=64 is better at t=10 than Ens of c=4 at the end of the stream", _large_is_ahead_early),
    "cifar-f": ("CER: UMix ≤ Ens at c=4, Ens ≤ UMix at c=64", _mixing_helps_small),
    "cifar-g": ("CER: Ens < SM at equal width", _ensembles_help),
    "cifar-h": (
        "gMoE and FF are better than the SM from which they grow, and not better than an SM of their average size",
        _growing_helps,
    ),
    "cifar-i": ("gEns has the worst CER at equal Mem", _growing_ensembles_are_worst),
    "cifar-j": ("replay lowers CER at w=10, least for gEns, at 5.5 times the compute", _replay_helps),
}
ABLATION_FINDINGS: Findings = {
    "ablation-tree": ("gMoE with a tree of gates is better than with a flat gate", _trees_are_better),
    "ablation-growing": ("gMoE < fixed MoE < ensemble of fixed MoEs, in CER", _growing_beats_fixed),
}
