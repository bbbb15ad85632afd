"""The configuration of an agent from recipe, method and given values: one pure step that creates no network."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.catalogue import backbones
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.data_facts import DataFacts
from agents.catalogue.methods import Method, keyword_types, method_for, methods_for
from agents.policies import FixedWait, Geometric, Policy, Schedule, policy_record
from agents.policies.growing import require_ticks
from agents.policies.validation import check_types
from agents.training.settings import STAGE_TYPES, StageSettings, settings_without_effect
from alma_env.errors import did_you_mean
from alma_env.registration import PROTOCOL_KEYWORDS, TEXT_KEYWORDS

# Keywords of every agent
_DEFAULTS = {"width": None, "wait": 1, "replay": False, "growth": None, "seed": 0, "engine": "auto", "device": "auto"}
_TYPES = {
    "width": int | None,
    "wait": int,
    "replay": bool,
    "growth": str | None,
    "seed": int,
    "engine": str,
    "device": str,
}
_EXAMPLES = {"width": 32, "wait": 5, "growth": "every", "seed": 0, "engine": "auto", "device": "auto"}


def resolve_agent(id: str, facts: DataFacts, /, *, policy: Policy | None = None, **keywords: Any) -> AgentConfig:
    """Return the configuration of one of the paper's agents.

    The arguments and errors are those of `agents.make`, with the facts about the data instead of the environment.
    """
    recipe = facts.recipe
    method = method_for(id, recipe.backbone)
    given = check_types({name: keywords.pop(name, default) for name, default in _DEFAULTS.items()}, _TYPES, _EXAMPLES)
    width = recipe.width if given["width"] is None else given["width"]
    if width < 1:
        meaning = "number of experts in each Switch layer" if facts.is_text else "number of hidden units or channels"
        raise ValueError(f"width={width}: the {meaning} must be at least 1; the recipe has width={recipe.width}")
    own, stage = _hyperparameters(id, method, facts, keywords)
    chosen = _policy(id, method, facts, policy, given["wait"], given["replay"], given["growth"])
    if isinstance(chosen, Schedule):  # the decisions of any other policy are unknown beforehand
        _require_schedule(id, method, facts, chosen, from_scratch=bool(own.get("from_scratch")))
    if stage.augmentation != "none" and (facts.is_text or len(facts.input_shape or (0, 0)) == 1):
        kind = "text" if facts.is_text else f"inputs of shape {facts.input_shape}"
        raise ValueError(f"augmentation={stage.augmentation!r} on {kind}: it is for images only; leave it out")
    record = {
        "id": id,
        "backbone": recipe.backbone,
        "width": width,
        "policy": policy_record(chosen),
        "seed": given["seed"],
        "engine": given["engine"],
        "device": given["device"],
        **own,
        "stage": vars(stage),
    }
    return AgentConfig(json.loads(json.dumps(record, default=_without_numpy)))


def _without_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r}: must be a number, a text or a list of them")


class UnknownHyperparameterError(ValueError):
    """A keyword is no hyper-parameter of the agent.

    Attributes:
        name: the keyword.
        reason: what the agent has instead.
        known: the keywords of the agent and of its environment.
    """

    def __init__(self, name: str, reason: str, known: Sequence[str]) -> None:
        super().__init__(name, reason, known)
        self.name, self.reason, self.known = name, reason, known

    def __str__(self) -> str:
        return f"{self.name!r}: {self.reason}{did_you_mean(self.name, self.known)}"


def _hyperparameters(
    id: str, method: Method, facts: DataFacts, given: Mapping[str, Any]
) -> tuple[dict[str, Any], StageSettings]:
    """Return the hyper-parameters of the method and its network, and the settings of a stage."""
    recipe = facts.recipe
    network = backbones.own_keywords(recipe.backbone)
    own = {name: parameter.default for name, parameter in network.items()} | method.keywords
    known = {*STAGE_TYPES, *own}
    unknown = sorted(set(given) - known)
    of_environment = ("ticks", *PROTOCOL_KEYWORDS, *(TEXT_KEYWORDS if facts.is_text else ()))
    if unknown and unknown[0] in of_environment:
        reason = f"a keyword of the environment, not of agent {id!r}; give it to the environment (--set for all agents)"
        raise UnknownHyperparameterError(unknown[0], reason, [])
    if unknown:
        reason = f"agent {id!r} has no such hyper-parameter; it has {', '.join(sorted(known))}"
        raise UnknownHyperparameterError(unknown[0], reason, [*known, *_DEFAULTS, *of_environment])
    types = {name: parameter.annotation for name, parameter in network.items()} | keyword_types(method) | STAGE_TYPES
    checked = check_types(given, types, own | vars(recipe.settings))
    own |= {name: checked.pop(name) for name in list(checked) if name in own}
    stage = dataclasses.replace(recipe.settings, **checked)
    needs = settings_without_effect(stage) | ({} if facts.is_text else {"balance": "text"})
    for name in checked:  # the value of the recipe misleads nobody
        if name in needs and checked[name] != getattr(recipe.settings, name):
            raise ValueError(
                f"{name}={checked[name]}: only a run with {needs[name]} reads it; leave {name} out, or change the run"
            )
    if own.get("gating") == "soft" and own["straight_through"] != method.keywords["straight_through"]:
        raise ValueError(
            f"straight_through={own['straight_through']!r}: only a run with gating='hard' reads it; leave it out, or "
            "set gating='hard'"
        )
    if own.get("copy_noise") and id != "gmoe":
        raise ValueError(f"copy_noise={own['copy_noise']}: only gmoe copies experts; leave copy_noise out, or use gmoe")
    return own, stage


def _policy(
    id: str, method: Method, facts: DataFacts, policy: Policy | None, wait: int, replay: bool, growth: str | None
) -> Policy:
    """Return the given policy, or the fixed waiting time of the keywords."""
    if policy is not None and (wait != 1 or replay or growth is not None):
        raise ValueError(
            f"wait={wait}, replay={replay}, growth={growth!r} with a policy: a policy decides when to train and when "
            "to grow; give the policy or these values, not both"
        )
    if method.always:
        if policy is not None or wait != 1:
            raise ValueError(f"wait={wait} or a policy with agent {id!r}: it trains at every tick; leave both out")
        replay = True
    if type(policy) is FixedWait:
        wait = policy.wait
    if wait > facts.ticks:
        raise ValueError(f"wait={wait}: the stream has only {facts.ticks} mega-batches; use at most {facts.ticks}")
    if policy is not None:
        return policy
    return FixedWait(wait, replay=replay, growth=growth or ("every" if method.grows else "never"))


def _require_schedule(id: str, method: Method, facts: DataFacts, policy: Schedule, *, from_scratch: bool) -> None:
    if from_scratch and not policy.replay:
        raise ValueError(
            "from_scratch=True without replay: the agent would forget all earlier data; use replay=True as well"
        )
    if policy.growth != "never" and not method.grows:
        growing = ", ".join(name for name, other in methods_for(facts.recipe.backbone).items() if other.grows)
        raise ValueError(
            f"growth={policy.growth!r}: agent {id!r} cannot grow; leave growth out, or use one that grows: {growing}"
        )
    last = policy.last_tick(facts.ticks)
    require_ticks(policy.growth, facts.ticks, last)
    if isinstance(policy, Geometric) and policy.first > last:
        stops = f", and stop={policy.stop:g} ends the training at tick {last}" if last < facts.ticks else ""
        raise ValueError(
            f"first={policy.first}: the stream has only {facts.ticks} mega-batches{stops}; use at most first={last}"
        )
