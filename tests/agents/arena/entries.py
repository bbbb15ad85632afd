"""Arenas and agents for the tests of tournaments."""

from __future__ import annotations

from agents.arena.contestants import read_contestants
from alma_env.arena.arena import Arena

TICKS = 6
DIGITS = "Digits-ALMA-v0"


def enter(env, *specs, **arena_keywords):
    """An arena and agents for these specifications."""
    contestants = read_contestants(specs, {"epochs": 2})
    arena = Arena(env, [contestant.name for contestant in contestants], **arena_keywords)
    return arena, {contestant.name: contestant.make(env, seed=0) for contestant in contestants}
