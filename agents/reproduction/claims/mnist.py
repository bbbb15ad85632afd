"""The paper's findings on MNIST (appendix, figure 7)."""

from __future__ import annotations

from agents.reproduction.between_waits import between_waits
from agents.reproduction.index import Index, cer, difference, final_error, of
from agents.reproduction.setting import Setting
from agents.reproduction.verdicts import Comparison

METHODS = ("sm", "ens")
CLOSE = 0.1  # of the CER that is compared with


def greedy_fails_small(runs: Index, now: Setting) -> list[Comparison]:
    """Small networks: w = 1 is clearly worse than the intermediate waiting times."""
    return [
        between_waits(runs, agent, now.widths[0], (now.greedy, wait), "CER", cer, "above")
        for agent in METHODS
        for wait in now.middle
    ]


def greedy_suffices_large(runs: Index, now: Setting) -> list[Comparison]:
    """Large networks: w = 1 and w = 10 are close, which is to say within a tenth of the CER at w = 10."""
    found = []
    for agent in METHODS:
        greedy = runs.pick(agent=agent, width=now.widths[-1], wait=now.greedy)
        patient = runs.pick(agent=agent, width=now.widths[-1], wait=now.middle[0])
        sums = of(patient, cer).values()
        tolerance = CLOSE * sum(sums) / len(sums) if sums else 0.0
        what = f"{agent} {now.widths[-1]}: w={now.greedy} − w={now.middle[0]}"
        found.append(Comparison(what, "CER", difference(greedy, patient, cer), "close", tolerance))
    return found


def tardy_is_worst(runs: Index, now: Setting) -> list[Comparison]:
    """The tardy learner has by far the worst CER."""
    return [
        between_waits(runs, agent, width, (now.tardy, wait), "CER", cer, "above")
        for agent in METHODS
        for width in (now.widths[0], now.widths[-1])
        for wait in now.waits[:-1]
    ]


def tardy_ends_best(runs: Index, now: Setting) -> list[Comparison]:
    """Large networks: the tardy learner has the lowest final error."""
    return [
        between_waits(runs, agent, now.widths[-1], (now.tardy, wait), "final error", final_error)
        for agent in METHODS
        for wait in now.waits[:-1]
    ]
