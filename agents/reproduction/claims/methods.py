"""Findings that compare methods on images without replay: at equal width, equal size, and equal cost of training."""

from __future__ import annotations

from itertools import pairwise

from agents.reproduction.claims.comparisons import (
    CER,
    FINAL_ERROR,
    FINAL_SIZE,
    INFERENCE_FLOPS,
    MEAN_SIZE,
    TRAINING_FLOPS,
    Picker,
    compare,
    compare_at_equal,
    error_at,
)
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import PairedComparison
from agents.reproduction.claims.waits import SM_AND_ENS


def wider_is_better(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """SM and Ens have a lower CER and final error with the next larger width."""
    compared = []
    for agent in SM_AND_ENS:
        for wait in setup.waits:
            by_width = {width: pick(agent=agent, width=width, wait=wait) for width in setup.widths}
            for narrow, wide in pairwise(setup.widths):
                label = f"{agent}, w={wait}: {wide} − {narrow}"
                compared += [
                    compare(label, by_width[wide], by_width[narrow], quantity) for quantity in (CER, FINAL_ERROR)
                ]
    return compared


def large_is_ahead_early(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """The largest Ens is better after its first training than the smallest at the end."""
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


def _compare_methods(pick: Picker, setup: Setup, width: int, one: str, other: str) -> list[PairedComparison]:
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


def mixing_helps_small(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """UMix has a lower CER than Ens at the smallest width, and Ens than UMix at the largest."""
    return [
        *_compare_methods(pick, setup, setup.widths[0], "umix", "ens"),
        *_compare_methods(pick, setup, setup.widths[-1], "ens", "umix"),
    ]


def ensembles_help(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """Ens has a lower CER than SM at each width."""
    return [one for width in setup.widths for one in _compare_methods(pick, setup, width, "ens", "sm")]


def growing_helps(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """A growing network has a lower CER than the SM from which it grows."""
    return [
        compare(
            f"{agent} {width}, w={wait} − sm {width}",
            pick(agent=agent, width=width, wait=wait),
            pick(agent="sm", width=width, wait=wait),
            CER,
        )
        for wait in setup.growing_waits
        for agent in setup.growing
        for width in setup.widths
    ]


def growing_is_no_better_than_its_size(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """A growing network has no lower CER than an SM of its average size."""
    compared = []
    for wait in setup.growing_waits:
        singles = [pick(agent="sm", width=width, wait=wait) for width in setup.widths]
        for agent in setup.growing:
            for width in setup.widths:
                label = f"{agent} {width}, w={wait} − sm of equal average size"
                grown = pick(agent=agent, width=width, wait=wait)
                compared.append(compare_at_equal(MEAN_SIZE, label, grown, singles))
    return compared


def growing_is_worse_at_equal_compute(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """A growing network has a higher CER than SM and gEns at equal training FLOPs."""
    compared = []
    for wait in setup.growing_waits:
        for other in ("sm", "gens"):
            by_width = [pick(agent=other, width=width, wait=wait) for width in setup.widths]
            for agent in setup.growing:
                for width in setup.widths:
                    label = f"{agent} {width}, w={wait} − {other} at equal training FLOPs"
                    grown = pick(agent=agent, width=width, wait=wait)
                    compared.append(compare_at_equal(TRAINING_FLOPS, label, grown, by_width))
    return compared


def growing_ensembles_are_worst(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """gEns has a higher CER than every other method at equal Mem."""
    compared = []
    for wait in setup.growing_waits:
        grown = {width: pick(agent="gens", width=width, wait=wait) for width in setup.widths}
        for agent in setup.methods:
            if agent != "gens":
                others = [pick(agent=agent, width=width, wait=wait) for width in setup.widths]
                compared += [
                    compare_at_equal(MEAN_SIZE, f"gens {width}, w={wait} − {agent} of equal Mem", runs, others)
                    for width, runs in grown.items()
                ]
    return compared


def growing_ensembles_train_cheaply(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """gEns takes fewer FLOPs in training than Ens, and ends with more parameters and FLOPs of inference."""
    compared = []
    for wait in setup.growing_waits:
        for width in setup.widths:
            fixed, grown = (pick(agent=agent, width=width, wait=wait) for agent in ("ens", "gens"))
            label = f"{width}, w={wait}: ens − gens"
            compared.append(compare(label, fixed, grown, TRAINING_FLOPS, "above"))
            compared += [compare(label, fixed, grown, quantity) for quantity in (FINAL_SIZE, INFERENCE_FLOPS)]
    return compared
