"""The paper's findings on CIFAR-10 (sections 5 and 6, figures 2, 3, 4 and 8), and the ablation of its first version.

The ablation (section 5.2 of the first version) compares mixtures that train at each tick.
"""

from __future__ import annotations

from typing import Any

from agents.reproduction.claims import methods, replay, waits
from agents.reproduction.claims.comparisons import CER, Findings, Picker, compare
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import PairedComparison

_MIXTURES: dict[str, dict[str, Any]] = {
    "tree": {"agent": "gmoe", "tree": True},
    "flat": {"agent": "gmoe", "tree": False},
    "gmoe": {"agent": "gmoe", "tree": True},
    "moe": {"agent": "moe"},
    "gens-moe": {"agent": "gens-moe"},
}


def _compare_mixtures(pick: Picker, setup: Setup, *pairs: tuple[str, str]) -> list[PairedComparison]:
    return [
        compare(
            f"{width}: {one} − {other}",
            pick(width=width, **_MIXTURES[one]),
            pick(width=width, **_MIXTURES[other]),
            CER,
        )
        for width in setup.widths
        for one, other in pairs
    ]


def _trees_are_better(pick: Picker, setup: Setup) -> list[PairedComparison]:
    return _compare_mixtures(pick, setup, ("tree", "flat"))


def _growing_beats_fixed(pick: Picker, setup: Setup) -> list[PairedComparison]:
    return _compare_mixtures(pick, setup, ("gmoe", "moe"), ("moe", "gens-moe"))


FINDINGS: Findings = {
    "cifar-a": (
        "CER is lowest at an intermediate waiting time, w=10, for SM and Ens at each width",
        waits.intermediate_is_best,
    ),
    "cifar-b": ("final error: w=100 ≤ w=10 < w=2, for SM and Ens", waits.waiting_ends_better),
    "cifar-close": (
        "the final error at w=10 is within a tenth of that at w=100, for SM and Ens",
        waits.intermediate_ends_close,
    ),
    "cifar-c": ("before t=10, w=2 has a lower error than w=10, for SM and Ens", waits.greedy_starts_better),
    "cifar-d": ("wider is better, in CER and in final error, for SM and Ens", methods.wider_is_better),
    "cifar-e": (
        "Ens of c=64 is better at t=10 than Ens of c=4 at the end of the stream",
        methods.large_is_ahead_early,
    ),
    "cifar-f": ("CER: UMix ≤ Ens at c=4, Ens ≤ UMix at c=64", methods.mixing_helps_small),
    "cifar-g": ("CER: Ens < SM at equal width", methods.ensembles_help),
    "cifar-h": ("gMoE and FF are better than the SM from which they grow", methods.growing_helps),
    "cifar-size": (
        "gMoE and FF are not better than an SM of their average size",
        methods.growing_is_no_better_than_its_size,
    ),
    "cifar-compute": (
        "at equal training FLOPs, SM and gEns are better than gMoE and FF",
        methods.growing_is_worse_at_equal_compute,
    ),
    "cifar-i": ("gEns has the worst CER at equal Mem", methods.growing_ensembles_are_worst),
    "cifar-cost": (
        "gEns trains with fewer FLOPs than Ens, but ends with more parameters and a costlier inference",
        methods.growing_ensembles_train_cheaply,
    ),
    "cifar-j": ("replay lowers the CER of each method at w=10", replay.replay_helps),
    "cifar-replay-least": (
        "replay lowers the CER of gEns less than that of any other method",
        replay.replay_helps_growing_ensembles_least,
    ),
    "cifar-replay-cost": ("replay at w=10 takes 5.5 times the training FLOPs", replay.replay_costs),
    "cifar-replay-trade": (
        "replay gives no better trade of CER for training FLOPs than a wider network",
        replay.replay_is_no_better_trade,
    ),
    "cifar-replay-wait": (
        "with replay, the best waiting time falls as the budget grows: at the budget of w=2, CER at w=2 < w=10",
        replay.replay_rewards_short_waits,
    ),
    "cifar-replay-gens": (
        "with replay, gEns ends within a tenth of the final error of SM",
        replay.growing_ensembles_end_at_single_models,
    ),
}
ABLATION_FINDINGS: Findings = {
    "ablation-tree": ("gMoE with a tree of gates is better than with a flat gate", _trees_are_better),
    "ablation-growing": ("gMoE < fixed MoE < ensemble of fixed MoEs, in CER", _growing_beats_fixed),
}
