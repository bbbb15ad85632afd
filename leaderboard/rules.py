"""The rules of the board: environments, ticks, seeds, budget classes.

The board, its rules and the environment ids share one version Major.Minor. A change of the rules makes results
incomparable, so results are stored and shown per version. Every environment id ends with the Major.
"""

from __future__ import annotations

import math

from alma_env.registration import PROTOCOLS, TEXT_ID, TEXT_TICKS

RULES_VERSION = "0.1"
MINIMUM_SEEDS = 3  # of a score; with fewer its interval is meaningless
PHASES = 16  # of FLOPs at one tick
MAXIMUM_SEEDS = 20  # so that one submission does not occupy a worker for days

# Mega-batches B of each stream. Arrays-ALMA-v0 is missing: its data belong to the user.
TICKS: dict[str, int] = {id: protocol["ticks"] for id, protocol in PROTOCOLS.items()} | {TEXT_ID: TEXT_TICKS}
# Streams on which submissions cannot be verified yet: a predictor of tokens is too large to be sent at every tick.
UNVERIFIED = frozenset({TEXT_ID})


def error_limit(env_id: str) -> float:
    """Return the largest possible error of a tick: 1 for an error rate, infinity for a perplexity."""
    return math.inf if env_id == TEXT_ID else 1.0


def budget_class(comp: float) -> int:
    """Return the decade of a run's Comp: the smallest k ≥ 0 with Comp ≤ 10^k FLOPs.

    >>> budget_class(0), budget_class(1e9), budget_class(2.5e9)
    (0, 9, 10)
    """
    k = max(0, math.ceil(math.log10(comp))) if comp > 1 else 0
    # The logarithm is rounded, so k can be off by one next to a power of ten. Powers of ten are exact.
    return k + 1 if comp > 10**k else k - 1 if k and comp <= 10 ** (k - 1) else k


def budget_class_text(k: int) -> str:
    """Return a budget class as text: ``up to 1e10 FLOPs``."""
    return f"up to 1e{k} FLOPs"
