"""The paper's findings on CIFAR-10 (sections 5 and 6, figures 2, 3, 4 and 8)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from agents.finished import FinishedRun
from agents.reproduction.between_waits import between_waits
from agents.reproduction.index import (
    Index,
    OfSeeds,
    at_equal_size,
    cer,
    difference,
    error_at,
    final_error,
    mean_error,
)
from agents.reproduction.setting import Setting
from agents.reproduction.verdicts import NONE_OF_ITS_SIZE, NOT_RUN, Comparison
from agents.statistics import paired

FIXED = ("sm", "ens")
GROWING = ("gmoe", "ff")
METHODS = ("sm", "ens", "umix", "gens", "gmoe", "ff")


def intermediate_wait(runs: Index, now: Setting) -> list[Comparison]:
    """(a) An intermediate waiting time has the lowest CER."""
    return [
        between_waits(runs, agent, width, (now.middle[0], wait), "CER", cer)
        for agent in FIXED
        for width in now.widths
        for wait in (now.greedy, now.tardy)
    ]


def waiting_ends_better(runs: Index, now: Setting) -> list[Comparison]:
    """(b) The longer the wait, the lower the final error."""
    return [
        between_waits(runs, agent, width, (longer, shorter), "final error", final_error)
        for agent in FIXED
        for width in now.widths
        for shorter, longer in ((now.greedy, now.middle[0]), (now.middle[0], now.tardy))
    ]


def greedy_begins_better(runs: Index, now: Setting) -> list[Comparison]:
    """(c) Before the patient learner has trained, the greedy one is ahead; over the ticks at which it has."""
    first, last = now.greedy, now.middle[0] - 1
    name, measure = f"mean error, t={first}..{last}", mean_error(first, last)
    return [
        between_waits(runs, agent, width, (now.greedy, now.middle[0]), name, measure)
        for agent in FIXED
        for width in now.widths
    ]


def wider_is_better(runs: Index, now: Setting) -> list[Comparison]:
    """(d) At an equal waiting time the wider one has the lower CER and final error; next widths are compared."""
    found = []
    for agent in FIXED:
        for wait in now.waits:
            by_width = {width: runs.pick(agent=agent, width=width, wait=wait) for width in now.widths}
            there = [width for width in now.widths if by_width[width]]
            for narrow, wide in pairwise(there if len(there) > 1 else now.widths):
                for name, measure in (("CER", cer), ("final error", final_error)):
                    what = f"{agent}, w={wait}: {wide} − {narrow}"
                    found.append(Comparison(what, name, difference(by_width[wide], by_width[narrow], measure)))
    return found


def large_is_ahead_early(runs: Index, now: Setting) -> list[Comparison]:
    """(e) A large ensemble is better after a tenth of the stream than a small one at its end."""
    small, large, wait = now.widths[0], now.widths[-1], now.middle[0]
    interval = difference(
        runs.pick(agent="ens", width=large, wait=wait),
        runs.pick(agent="ens", width=small, wait=wait),
        error_at(wait),
        final_error,
    )
    return [Comparison(f"ens, w={wait}: {large} at t={wait} − {small} at the end", "error", interval)]


def mixing_helps_small(runs: Index, now: Setting) -> list[Comparison]:
    """(f) UMix is ahead of Ens where the networks are small, Ens where they are large."""
    found = []
    for width, one, other in ((now.widths[0], "umix", "ens"), (now.widths[-1], "ens", "umix")):
        for wait in now.waits:
            these = runs.pick(agent=one, width=width, wait=wait)
            those = runs.pick(agent=other, width=width, wait=wait)
            found.append(Comparison(f"{width}, w={wait}: {one} − {other}", "CER", difference(these, those, cer)))
    return found


def ensembles_help(runs: Index, now: Setting) -> list[Comparison]:
    """(g) Ens has a lower CER than SM."""
    return [
        Comparison(
            f"{width}, w={wait}: ens − sm",
            "CER",
            difference(
                runs.pick(agent="ens", width=width, wait=wait),
                runs.pick(agent="sm", width=width, wait=wait),
                cer,
            ),
        )
        for width in now.widths
        for wait in now.waits
    ]


def growing_helps(runs: Index, now: Setting) -> list[Comparison]:
    """(h) What grows is better than the SM that it began as, but not than an SM of its average size."""
    found = []
    for wait in now.waits[:-1]:  # the tardy learner trains once, and has not grown
        singles = [runs.pick(agent="sm", width=width, wait=wait) for width in now.widths]
        for agent in GROWING:
            for width, single in zip(now.widths, singles, strict=True):
                grown = runs.pick(agent=agent, width=width, wait=wait)
                where = f"{agent} {width}, w={wait}"
                found.append(Comparison(f"{where} − sm {width}", "CER", difference(grown, single, cer)))
                found.append(_at_equal_size(f"{where} − sm of its average size", grown, singles))
    return found


def growing_ensembles_are_worst(runs: Index, now: Setting) -> list[Comparison]:
    """(i) gEns has the worst CER at a fixed Mem."""
    found = []
    for wait in now.waits[:-1]:
        for agent in METHODS:
            if agent == "gens":
                continue
            others = [runs.pick(agent=agent, width=width, wait=wait) for width in now.widths]
            for width in now.widths:
                grown = runs.pick(agent="gens", width=width, wait=wait)
                found.append(_at_equal_size(f"gens {width}, w={wait} − {agent} of its Mem", grown, others))
    return found


def _at_equal_size(what: str, grown: OfSeeds, by_width: Sequence[OfSeeds]) -> Comparison:
    interval, beyond = at_equal_size(grown, by_width)
    return Comparison(what, "CER", interval, "above", without=NONE_OF_ITS_SIZE if beyond else NOT_RUN)


def replay_helps(runs: Index, now: Setting) -> list[Comparison]:
    """(j) Replay lowers CER, least for gEns, and takes (S + 1) / 2 times the compute, S stages."""
    wait = now.middle[0]
    found = []
    for width in now.widths:
        gains = {}
        for agent in METHODS:
            without = runs.pick(agent=agent, width=width, wait=wait)
            replayed = runs.pick(agent=agent, width=width, wait=wait, replay=True)
            what = f"{agent} {width}, w={wait}: replay − none"
            found.append(Comparison(what, "CER", difference(replayed, without, cer)))
            gains[agent] = {seed: cer(replayed[seed]) - cer(without[seed]) for seed in replayed if seed in without}
            if agent == "sm":
                times = -(-now.tardy // wait) / 2 + 0.5
                ratios = {
                    seed: _training(replayed[seed]) / _training(without[seed]) for seed in replayed if seed in without
                }
                interval = paired(ratios, dict.fromkeys(ratios, times))
                what = f"sm {width}, w={wait}: Comp, replay / none − {times:g}"
                found.append(Comparison(what, "training FLOPs, ratio", interval, "close", 0.05 * times))
        for agent in METHODS:
            if agent != "gens":
                what = f"{width}, w={wait}: what replay brings {agent} − gens"
                found.append(Comparison(what, "CER", paired(gains[agent], gains["gens"])))
    return found


def _training(run: FinishedRun) -> int:
    return run.score.paper_flops
