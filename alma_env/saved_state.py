"""Saved episodes, read back: a state is read and checked as a whole before anything changes."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from alma_env.data.stream import Stream
from alma_env.episode import Episode
from alma_env.metering.meter import Meter
from alma_env.text.stream import TextStream


@dataclass(frozen=True)
class SavedState:
    """What an environment needs to continue a saved episode.

    Attributes:
        episode: the state between two ticks.
        stream: of the episode's seed.
        meter: state of the meter.
        generator: state of the environment's random generator.
    """

    episode: Episode
    stream: Stream | TextStream
    meter: Mapping[str, Any]
    generator: Mapping[str, Any]


def require_same(state: Any, here: Mapping[str, object], where: str) -> None:
    """Raise ValueError if a saved state is no such state, or if its protocol is not the protocol here.

    ``where`` names what can continue a saved episode, for the message.
    """
    if not isinstance(state, Mapping) or not isinstance(state.get("protocol"), Mapping):
        raise ValueError(f"state={reprlib.repr(state)}: must be what state_dict() returned, of {where}")
    saved = state["protocol"]
    for name, value in here.items():
        if saved.get(name) != value:
            raise ValueError(
                f"{name}={saved.get(name)!r} in the saved state, {value!r} here: an episode continues only in {where}; "
                "make one with the saved values"
            )


@contextmanager
def damage_named() -> Iterator[None]:
    """Raise ValueError for a state that lacks a part, or has a part of another form."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"the saved state is damaged ({type(error).__name__}: {error}); give what state_dict() returned, unchanged"
        ) from error


def read_episode(state: Mapping[str, Any]) -> Episode:
    """Return the episode of a state; ValueError if it has not begun."""
    episode = Episode.from_dict(state)
    if not len(episode.ledger):
        raise ValueError("the saved state has no tick: state_dict() returns at least tick 0; give what it returned")
    return episode


def checked_meter(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a meter that a new meter has loaded without an error."""
    Meter().load_state_dict(state)
    return state


def checked_generator(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a generator that Gymnasium made and that a new generator has loaded without an error."""
    np.random.PCG64().state = cast("Any", state)
    return state
