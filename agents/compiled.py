"""The fast engine for small networks (being built)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.networks import Predictor
    from agents.stage import Engine, StageSettings


def choose_engine(
    engine: str, predictor: Predictor, settings: StageSettings, *, full_steps: int
) -> Engine:
    """The engine of a run that will make about `full_steps` mini-batch steps; `auto` chooses by that number."""
    if engine not in ("auto", "plain", "compiled"):
        raise ValueError(f"engine={engine!r}: choose one of auto, plain, compiled")
    return "plain"
