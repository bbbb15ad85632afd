"""What the ablation of the paper's first version finds (section 5.2): mixtures on CIFAR-10, trained at each tick."""

from __future__ import annotations

from typing import Any

from agents.reproduction.index import Index, cer, difference
from agents.reproduction.setting import Setting
from agents.reproduction.verdicts import Comparison

TREE: dict[str, Any] = {"agent": "gmoe", "tree": True}
FLAT: dict[str, Any] = {"agent": "gmoe", "tree": False}
FIXED: dict[str, Any] = {"agent": "moe"}
ENSEMBLE: dict[str, Any] = {"agent": "gens-moe"}


def trees_are_better(runs: Index, now: Setting) -> list[Comparison]:
    """A tree of gates is better than one flat gate."""
    return [_comparison(runs, width, "tree − flat", TREE, FLAT) for width in now.widths]


def growing_beats_fixed(runs: Index, now: Setting) -> list[Comparison]:
    """gMoE is better than a fixed mixture, and that than an ensemble of fixed mixtures."""
    return [
        _comparison(runs, width, *pair)
        for width in now.widths
        for pair in (("gmoe − moe", TREE, FIXED), ("moe − gens-moe", FIXED, ENSEMBLE))
    ]


def _comparison(runs: Index, width: int, what: str, these: dict[str, Any], those: dict[str, Any]) -> Comparison:
    left, right = (runs.pick(width=width, **where) for where in (these, those))
    return Comparison(f"{width}: {what}", "CER", difference(left, right, cer))
