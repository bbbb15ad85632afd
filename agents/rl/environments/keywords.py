"""The keywords of decision environments and surrogates: an unknown one is refused with the known ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from alma_env.errors import ArgumentTypeError, did_you_mean

# The end of the ids that have each price.
_PRICES = {"pass_price": "v1", "memory_price": "v1", "flops_price": "v0", "parameter_price": "v0"}
_FIXED = ("stream", "num_envs", "autoreset_mode", "keywords")  # the id or Gymnasium gives them


def class_of(env_id: str) -> Callable[..., object]:
    """Return what makes an environment: of a surrogate, the form that plays many episodes at once."""
    spec = gym.spec(env_id)
    entry = spec.vector_entry_point or spec.entry_point
    assert entry is not None, env_id  # each id of `agents.rl` has one
    return load_env_creator(entry) if isinstance(entry, str) else entry


def keywords_of_class(environment: Callable[..., object]) -> list[str]:
    """Return the names of the keywords of an environment that its user may give."""
    return [name for name in inspect.signature(environment).parameters if name not in _FIXED]


def refuse_unknown(environment: Callable[..., object], keywords: Iterable[str]) -> None:
    """Raise the error for the first of the keywords for which an environment has no parameter."""
    for name in keywords:
        raise unknown_keyword(name, keywords_of_class(environment))


def unknown_keyword(name: str, own: Iterable[str], others: Iterable[str] = (), reason: str = "") -> ArgumentTypeError:
    """Return the error for an unknown keyword; libraries such as TorchRL leave the keyword out if they get it.

    Args:
        name: the unknown keyword.
        own: keywords of the environment.
        others: names of further keywords, which it passes on.
        reason: why it passes on no such keyword.
    """
    own = list(own)
    hint = f"; make the id that ends in {_PRICES[name]}" if name in _PRICES else did_you_mean(name, [*own, *others])
    return ArgumentTypeError(
        f"unexpected keyword argument {name!r}: {reason}the environment has {', '.join(own)}{hint}"
    )
