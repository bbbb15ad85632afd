"""The hyper-parameters of the agents: the default of each, and its meaning from the docstring that defines it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from agents.catalogue import backbones, build
from agents.catalogue.methods import Method
from agents.networks.switch_config import SwitchConfig
from agents.training.settings import StageSettings

# Keywords of `agents.make` that a command line can give.
OF_EVERY_AGENT = ("width", "wait", "replay", "growth", "seed", "engine", "device")


@dataclass(frozen=True)
class HyperParameter:
    """A hyper-parameter: its name, its default, and its meaning in words."""

    name: str
    default: Any
    meaning: str


def of_method(method: Method) -> list[HyperParameter]:
    """Return the hyper-parameters that a method has of its own."""
    learner = method.learner.func if isinstance(method.learner, partial) else method.learner
    return _described(method.keywords, *filter(None, (method.keywords_of, learner)))


def of_every_agent() -> list[HyperParameter]:
    """Return the hyper-parameters that every agent has, besides those of a stage."""
    signature = inspect.signature(build.make)
    return _described({name: signature.parameters[name].default for name in OF_EVERY_AGENT}, build.make)


def of_a_stage() -> list[HyperParameter]:
    """Return the settings of a stage; the recipe of the data set replaces some of these defaults."""
    return _described({field.name: field.default for field in dataclasses.fields(StageSettings)}, StageSettings)


def of_the_network_on_text() -> list[HyperParameter]:
    """Return the hyper-parameters of the Switch Transformer."""
    defaults = {name: parameter.default for name, parameter in backbones.own_keywords("switch").items()}
    return _described(defaults, backbones.switch_transformer, SwitchConfig)


def _described(defaults: Mapping[str, Any], *sources: Callable[..., object]) -> list[HyperParameter]:
    """Return hyper-parameters with the meaning that the first source with a meaning for the name has."""
    meanings: dict[str, str] = {}
    for source in reversed(sources):
        meanings |= meanings_in(inspect.getdoc(source) or "")
    return [HyperParameter(name, default, meanings.get(name, "")) for name, default in defaults.items()]


def meanings_in(docstring: str) -> dict[str, str]:
    """Return the meaning of each name in the sections ``Args`` and ``Attributes`` of a docstring.

    >>> meanings_in("One.\\n\\nArgs:\\n    width: units per\\n        layer.\\n    wait: w.\\n\\nReturns:\\n    x: y")
    {'width': 'units per layer.', 'wait': 'w.'}
    """
    found: dict[str, str] = {}
    for section in re.findall(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", docstring, re.MULTILINE):
        for names, text in re.findall(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found
