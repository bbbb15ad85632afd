"""The paper's findings on replay (figures 4 and 8, appendix E)."""

from __future__ import annotations

from agents.analysis.statistics import differences_by_seed, pairs_by_seed
from agents.reproduction.claims.comparisons import (
    CER,
    FINAL_ERROR,
    TRAINING_FLOPS,
    Picker,
    compare,
    compare_at_equal,
    compare_pairs,
)
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import PairedComparison
from agents.reproduction.claims.waits import CLOSE, SM_AND_ENS, compare_waits

COST_TOLERANCE = 0.05  # of the factor by which replay raises the training FLOPs


def replay_helps(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """Replay lowers the CER of each method at the intermediate waiting time."""
    wait = setup.middle[0]
    return [
        compare(
            f"{agent} {width}, w={wait}: replay − no replay",
            pick(agent=agent, width=width, wait=wait, replay=True),
            pick(agent=agent, width=width, wait=wait),
            CER,
        )
        for width in setup.widths
        for agent in setup.methods
    ]


def replay_helps_growing_ensembles_least(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """Replay lowers the CER of each other method by more than that of gEns."""
    wait = setup.middle[0]
    compared = []
    for width in setup.widths:
        gains = {agent: _gains(pick, agent, width, wait) for agent in setup.methods}
        for agent in setup.methods:
            if agent != "gens":
                label = f"{width}, w={wait}: effect of replay on {agent} − on gens"
                compared.append(compare_pairs(label, CER.name, pairs_by_seed(gains[agent], gains["gens"])))
    return compared


def _gains(pick: Picker, agent: str, width: int, wait: int) -> dict[int, float]:
    once, replayed = (CER.by_seed(pick(agent=agent, width=width, wait=wait, replay=replay)) for replay in (False, True))
    return differences_by_seed(replayed, once)


def replay_costs(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """Replay multiplies the training FLOPs of SM by (S + 1) / 2, because stage s trains on the data of s stages."""
    wait = setup.middle[0]
    stages = -(-setup.tardy // wait)
    factor = (stages + 1) / 2
    compared = []
    for width in setup.widths:
        once, replayed = (
            TRAINING_FLOPS.by_seed(pick(agent="sm", width=width, wait=wait, replay=replay)) for replay in (False, True)
        )
        ratios = {seed: (more / less, factor) for seed, (more, less) in pairs_by_seed(replayed, once).items()}
        label = f"sm {width}, w={wait}: training FLOPs with replay / without − {factor:g}"
        compared.append(compare_pairs(label, "ratio", ratios, "close", within=COST_TOLERANCE))
    return compared


def replay_is_no_better_trade(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """With replay, SM and Ens have no lower CER than a wider network without replay at equal training FLOPs."""
    compared = []
    for agent in SM_AND_ENS:
        for wait in setup.growing_waits:  # with one stage replay changes nothing
            by_width = [pick(agent=agent, width=width, wait=wait) for width in setup.widths]
            for width in setup.widths:
                label = f"{agent} {width}, w={wait}, replay − {agent} without replay at equal training FLOPs"
                replayed = pick(agent=agent, width=width, wait=wait, replay=True)
                compared.append(compare_at_equal(TRAINING_FLOPS, label, replayed, by_width))
    return compared


def replay_rewards_short_waits(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """With replay, the shortest waiting time, which takes most training then, is better than the intermediate one.

    That the intermediate one is better than the longest is true without replay, too.
    """
    return compare_waits(pick, setup.widths, [(setup.greedy, setup.middle[0])], CER, replay=True)


def growing_ensembles_end_at_single_models(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """With replay, the final error of gEns is close to that of SM."""
    wait = setup.middle[0]
    return [
        compare(
            f"{width}, w={wait}, replay: gens − sm",
            pick(agent="gens", width=width, wait=wait, replay=True),
            pick(agent="sm", width=width, wait=wait, replay=True),
            FINAL_ERROR,
            "close",
            within=CLOSE,
        )
        for width in setup.widths
    ]
