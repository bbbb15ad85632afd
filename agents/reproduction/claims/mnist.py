"""The paper's findings on MNIST (appendix, figure 7)."""

from __future__ import annotations

from agents.reproduction.claims.comparisons import CER, FINAL_ERROR, SM_AND_ENS, Findings, Pick, compare, compare_waits
from agents.reproduction.claims.setups import Setup
from agents.reproduction.claims.verdicts import PairedComparison

CLOSE = 0.1  # of the mean CER at the intermediate waiting time


def _greedy_fails_small(pick: Pick, setup: Setup) -> list[PairedComparison]:
    return compare_waits(pick, setup.widths[:1], [(setup.greedy, wait) for wait in setup.middle], CER, "above")


def _greedy_suffices_large(pick: Pick, setup: Setup) -> list[PairedComparison]:
    compared = []
    width, (one, other) = setup.widths[-1], (setup.greedy, setup.middle[0])
    for agent in SM_AND_ENS:
        greedy, patient = (pick(agent=agent, width=width, wait=wait) for wait in (one, other))
        values = CER.by_seed(patient).values()
        tolerance = CLOSE * sum(values) / len(values) if values else 0.0
        label = f"{agent} {width}: w={one} − w={other}"
        compared.append(compare(label, greedy, patient, CER, "close", tolerance=tolerance))
    return compared


def _tardy_is_worst(pick: Pick, setup: Setup) -> list[PairedComparison]:
    widths = (setup.widths[0], setup.widths[-1])
    return compare_waits(pick, widths, [(setup.tardy, wait) for wait in setup.waits[:-1]], CER, "above")


def _tardy_ends_best(pick: Pick, setup: Setup) -> list[PairedComparison]:
    return compare_waits(pick, setup.widths[-1:], [(setup.tardy, wait) for wait in setup.waits[:-1]], FINAL_ERROR)


FINDINGS: Findings = {
    "mnist-small": ("h=4: w=1 is clearly worse than w=10 and w=50", _greedy_fails_small),
    "mnist-large": ("h=64: the CER at w=1 is within a tenth of the CER at w=10", _greedy_suffices_large),
    "mnist-tardy": ("waiting for all data, w=500, has by far the worst CER", _tardy_is_worst),
    "mnist-final": ("h=64: waiting for all data, w=500, has the best final error", _tardy_ends_best),
}
