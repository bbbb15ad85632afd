"""What a run's record will say, known from its `RunSpec` alone: neither its data nor its agent is made for that."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents import backbones, catalogue
from agents.experiments.spec import RunSpec
from agents.methods import method_for
from agents.policies import as_plain_data
from agents.policy_specs import policy_from
from agents.recipes import recipe_for
from agents.settings import StageSettings
from alma_env import AlmaEnv
from alma_env.data import TEXT
from alma_env.registration import PROTOCOL_KEYWORDS, PROTOCOLS, TEXT_ID, TINY_SIZES

TEXT_TICKS = 4
TEXT_TOKENS = 512  # in a sequence of one's own text

_PROTOCOL = {
    name: parameter.default
    for name, parameter in inspect.signature(AlmaEnv).parameters.items()
    if name in PROTOCOL_KEYWORDS
}

# Of a recipe, what changes nothing but speed and rounding.
_SPEED = ("validation_batch", "together", "engine", "device")
# Of an environment, what changes nothing but where its data lies.
_PLACES = ("root", "download", "cache", "evaluation_batch_size")


@dataclass(frozen=True)
class Expected:
    """The configuration of a run, as far as it is known beforehand.

    Attributes:
        env: environment id.
        protocol: the protocol's keywords, ``ticks`` (B) among them, and those of the data that are given.
        data: name of the data set.
        backbone: what the method trains.
        agent: id, width, policy and the hyper-parameters of method and backbone.
        stage: how a stage is trained.
        grows: whether the method can grow.
        seed: of stream and agent.
    """

    env: str
    protocol: Mapping[str, Any]
    data: str
    backbone: str
    agent: Mapping[str, Any]
    stage: StageSettings
    grows: bool
    seed: int

    @property
    def ticks(self) -> int:
        """Mega-batches of the stream, B."""
        ticks: int = self.protocol["ticks"]
        return ticks

    def agrees(self, config: Mapping[str, Any]) -> bool:
        """Whether a finished run's configuration is this, in all that its numbers depend on but versions and machine.

        What either of the two does not name is left open: a version may have added a setting since.
        """
        agent, protocol = config["agent"], config["protocol"]
        return (
            (config["env"], config["seed"]) == (self.env, self.seed)
            and _agree(self.protocol, protocol, _PLACES)
            and _agree(self.agent, agent, (*_SPEED, "stage"))
            and _agree(dataclasses.asdict(self.stage), agent.get("stage", {}), _SPEED)
        )


def _agree(these: Mapping[str, Any], those: Mapping[str, Any], ignored: tuple[str, ...]) -> bool:
    return all(those[name] == value for name, value in these.items() if name in those and name not in ignored)


def expected(spec: RunSpec) -> Expected:
    """The configuration that a run will have.

    Raises:
        ValueError: there is no such environment or agent, or it does not take one of the settings.
    """
    protocol, own = catalogue.split_keywords(spec.env, spec.settings)
    data = TEXT if spec.env == TEXT_ID else PROTOCOLS[spec.env]["data"]
    standard = {**_PROTOCOL, "ticks": TEXT_TICKS if spec.env == TEXT_ID else PROTOCOLS[spec.env]["ticks"]}
    if spec.env == TEXT_ID:
        tiny = protocol.get("train", "tiny") == "tiny"
        standard["sequence_length"] = TINY_SIZES["sequence_length"] if tiny else TEXT_TOKENS
    ticks = (standard | protocol)["ticks"]
    if isinstance(ticks, bool) or not isinstance(ticks, int) or ticks < 1:
        raise ValueError(
            f"{spec}: ticks={ticks!r}: must be a whole number of mega-batches from 1, for example ticks=50"
        )
    recipe = recipe_for(data)
    method = method_for(spec.agent, recipe.backbone)
    given = dict(own)
    growth = given.pop("growth", None) or ("every" if method.grows else "never")
    agent = {**method.keywords, **backbones.keywords_of(recipe.backbone)}
    agent |= {name: given.pop(name) for name in list(given) if name in agent}
    if spec.policy is None:
        policy: Any = {"wait": spec.wait or 1, "replay": spec.replay or method.always, "growth": growth}
    else:
        policy = as_plain_data(policy_from(spec.policy, grows=method.grows))
    agent |= {"id": spec.agent, "width": spec.width or recipe.width, "policy": policy}
    try:
        stage = dataclasses.replace(recipe.settings, **given)
    except TypeError as error:
        raise ValueError(f"{spec}: {error}; `alma agents` lists the hyper-parameters") from error
    plain: dict[str, Any] = json.loads(json.dumps(agent))
    return Expected(spec.env, standard | protocol, data, recipe.backbone, plain, stage, method.grows, spec.seed)
