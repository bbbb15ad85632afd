"""Findings on the waiting time, for SM and Ens, the methods whose waiting times the paper compares."""

from __future__ import annotations

from collections.abc import Sequence

from agents.reproduction.claims.comparisons import CER, FINAL_ERROR, Picker, Quantity, compare
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import PairedComparison, Prediction

SM_AND_ENS = ("sm", "ens")
CLOSE = 0.1  # of the other side's mean: what counts as close


def compare_waits(
    pick: Picker,
    widths: Sequence[int],
    waits: Sequence[tuple[int, int]],
    quantity: Quantity,
    predicted: Prediction = "below",
    *,
    within: float = 0.0,
    replay: bool = False,
) -> list[PairedComparison]:
    """Compare pairs of waiting times, for SM and Ens and for each width; ``within`` as for `compare`."""
    return [
        compare(
            f"{agent} {width}: w={one} − w={other}",
            pick(agent=agent, width=width, wait=one, replay=replay),
            pick(agent=agent, width=width, wait=other, replay=replay),
            quantity,
            predicted,
            within=within,
        )
        for agent in SM_AND_ENS
        for width in widths
        for one, other in waits
    ]


def intermediate_is_best(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """The intermediate waiting time has a lower CER than the shortest and the longest."""
    return compare_waits(pick, setup.widths, [(setup.middle[0], wait) for wait in (setup.greedy, setup.tardy)], CER)


def waiting_ends_better(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """The longer the waiting time, the lower the final error."""
    middle = setup.middle[0]
    return compare_waits(pick, setup.widths, [(middle, setup.greedy), (setup.tardy, middle)], FINAL_ERROR)


def intermediate_ends_close(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """The final error of the intermediate waiting time is close to that of the longest."""
    return compare_waits(pick, setup.widths, [(setup.middle[0], setup.tardy)], FINAL_ERROR, "close", within=CLOSE)


def greedy_starts_better(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """The shortest waiting time has the lower error at the ticks before the intermediate one has trained."""
    first, last = setup.greedy, setup.middle[0] - 1
    mean_error = Quantity(
        f"mean error, t={first}..{last}", lambda run: float(run.columns.errors[first : last + 1].mean())
    )
    return compare_waits(pick, setup.widths, [(setup.greedy, setup.middle[0])], mean_error)


def greedy_fails_small(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """For the smallest width, the shortest waiting time has a higher CER than those in the middle."""
    return compare_waits(pick, setup.widths[:1], [(setup.greedy, wait) for wait in setup.middle], CER, "above")


def greedy_suffices_large(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """For the largest width, the CER of the shortest waiting time is close to that of the intermediate one."""
    pairs = [(setup.greedy, setup.middle[0])]
    return compare_waits(pick, setup.widths[-1:], pairs, CER, "close", within=CLOSE)


def greedy_is_ahead_large(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """For the largest width, the CER of the shortest waiting time is lower than that of the intermediate one."""
    return compare_waits(pick, setup.widths[-1:], [(setup.greedy, setup.middle[0])], CER)


def tardy_is_worst(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """The longest waiting time has the highest CER, for the smallest and the largest width."""
    widths = (setup.widths[0], setup.widths[-1])
    return compare_waits(pick, widths, [(setup.tardy, wait) for wait in setup.waits[:-1]], CER, "above")


def tardy_ends_best(pick: Picker, setup: Setup) -> list[PairedComparison]:
    """For the largest width, the longest waiting time has the lowest final error."""
    return compare_waits(pick, setup.widths[-1:], [(setup.tardy, wait) for wait in setup.waits[:-1]], FINAL_ERROR)
