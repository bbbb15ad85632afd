"""Saved episodes, read back: a state is read and checked as a whole before anything changes."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
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

    @classmethod
    def read(cls, state: Mapping[str, Any], make_stream: Callable[[int], Stream | TextStream]) -> SavedState:
        """Read and check every part of a state.

        Args:
            state: what ``AlmaEnv.state_dict`` returned.
            make_stream: the stream of a seed.

        Raises:
            ValueError: a part is missing or has another form, or the episode has not begun.
        """
        with damage_named():
            episode = Episode.from_dict(state)
            if not len(episode.ledger):
                raise ValueError("it has no tick")
            assert episode.stream_seed is not None
            Meter().load_state_dict(state["meter"])  # raises, and leaves the environment's own meter as it is
            generator = checked_generator(state["generator"])
            return cls(episode, make_stream(episode.stream_seed), state["meter"], generator)


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


def checked_generator(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a generator that Gymnasium made and that a new generator has loaded without an error."""
    np.random.PCG64().state = cast("Any", state)
    return state
