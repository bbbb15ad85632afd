"""What the board compares, and under which rules: environments, ticks, seeds, budget classes.

Board, rules and environment ids share one Major.Minor. Results are kept and shown per version, because a change of the
rules makes numbers that cannot be compared. The Major is the number at the end of every environment id.
"""

from __future__ import annotations

import inspect
import math

from alma_env.registration import PROTOCOLS, TEXT_ID, build_from_text

RULES_VERSION = "0.1"
MINIMUM_SEEDS = 3  # of a score; with fewer its interval says nothing
MAXIMUM_SEEDS = 20  # so that one submission does not hold the queue for days

# Mega-batches B of each stream. Arrays-ALMA-v0 is not among them: its data are everyone's own.
TICKS: dict[str, int] = {id: protocol["ticks"] for id, protocol in PROTOCOLS.items()} | {
    TEXT_ID: inspect.signature(build_from_text).parameters["ticks"].default
}
# Streams that submissions cannot be verified on yet: a predictor of tokens is too large to cross at every tick.
UNVERIFIED = frozenset({TEXT_ID})


def error_limit(env_id: str) -> float:
    """The largest error that a tick can have: a rate is at most 1, a perplexity is any number."""
    return math.inf if env_id == TEXT_ID else 1.0


def budget_class(comp: float) -> int:
    """The decade of a run's Comp: the smallest k with Comp ≤ 10^k FLOPs, at least 0. Like is compared with like.

    >>> budget_class(0), budget_class(1e9), budget_class(2.5e9)
    (0, 9, 10)
    """
    k = max(0, math.ceil(math.log10(comp))) if comp > 1 else 0
    # The logarithm is rounded; the powers of ten are not, where it matters.
    return k + 1 if comp > 10**k else k - 1 if k and comp <= 10 ** (k - 1) else k


def budget_class_text(k: int) -> str:
    """A budget class in words: ``up to 1e10 FLOPs``."""
    return f"up to 1e{k} FLOPs"
