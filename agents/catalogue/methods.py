"""The methods: the learner of each method and its hyper-parameters."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from agents.catalogue import backbones
from agents.catalogue.backbones import Body
from agents.learners.ens import Ens
from agents.learners.firefly.firefly import Firefly
from agents.learners.firefly.settings import GrowthSettings
from agents.learners.gens import GEns
from agents.learners.gmoe import GMoE
from agents.learners.network_learner import NetworkLearner
from agents.learners.sm import SingleModel
from agents.learners.umix import UMix
from agents.networks.mixture import build_mixture
from agents.networks.mlp_vgg import Build
from agents.training.trainer import Trainer
from alma_env.errors import did_you_mean


@dataclass(frozen=True)
class Method:
    """A method: one line of ``alma agents``.

    Attributes:
        title: the paper's name of the method, and a description.
        learner: creates the learner from a function that builds the untrained predictor, a trainer, and keywords.
        keywords: the method's own hyper-parameters and their defaults; every agent and every stage has others.
        grows: whether the method grows; by default it grows before every stage but the first.
        free_growth: whether a stage after a growth step costs as many FLOPs as one without; the step freezes what the
            method had before.
        always: whether the method trains at every tick on all data so far.
        keywords_of: the callable whose annotations are the types of keywords that ``learner`` passes on.
        body: creates the network that the method trains.
    """

    title: str
    learner: Callable[..., NetworkLearner[Any]]
    keywords: dict[str, Any]
    grows: bool = False
    free_growth: bool = False
    always: bool = False
    keywords_of: Callable[..., object] | None = None
    body: Body = backbones.plain


def _oracle(build: Build, trainer: Trainer, *, of: str, text: bool = False, **keywords: Any) -> NetworkLearner[Any]:
    """Return the learner of a fixed-size method, trained from scratch at every tick.

    Args:
        of: the id of the method whose architecture is trained: sm, ens or umix.
    """
    choices = ("sm", "ens") if text else ("sm", "ens", "umix")
    if of not in choices:
        raise ValueError(f"of={of!r}: must be a method of fixed size; use one of {', '.join(choices)}")
    method = (TEXT_METHODS if text else METHODS)[of]
    return method.learner(build, trainer, **{**method.keywords, "from_scratch": True}, **keywords)


def _ensemble_of_mixtures(build: Build, trainer: Trainer, *, experts: int, **keywords: Any) -> NetworkLearner[Any]:
    """Return a gEns learner whose members are fixed mixtures of experts.

    Args:
        experts: experts in each mixture layer of a member, at least 1.
    """
    if experts < 1:
        raise ValueError(f"experts={experts}: must be at least 1; the paper uses experts=2")
    return GEns(lambda generator: build_mixture(build, generator, experts), trainer, **keywords)


_MIXTURE = {"gating": "soft", "straight_through": "dense", "tree": True, "from_scratch": False}

METHODS: dict[str, Method] = {
    "sm": Method("SM, single model: one network, fine-tuned at every stage", SingleModel, {"from_scratch": False}),
    "ens": Method(
        "Ens, ensemble: independent single models, their probabilities averaged",
        Ens,
        {"members": 5, "from_scratch": False},
    ),
    "umix": Method(
        "UMix, uniform mixture: networks trained jointly, their logits averaged",
        UMix,
        {"members": 5, "reduce": "mean", "from_scratch": False},
    ),
    "gens": Method(
        "gEns, growing ensemble: a new single model per stage, the older ones frozen",
        GEns,
        {"members": 1, "warm_start": False, "space": "prob"},
        grows=True,
        free_growth=True,
    ),
    "gmoe": Method(
        "gMoE, growing mixture of experts: the expert with the largest loss is split before each stage",
        GMoE,
        {"split_by": "loss", "grow_by": 1, "init_experts": 1, **_MIXTURE},
        grows=True,
        body=backbones.mixture,
    ),
    "moe": Method(
        "fixed mixture of experts (ablation of the paper's first version)",
        partial(GMoE, fixed=True),
        {"init_experts": 2, **_MIXTURE},
        body=backbones.mixture,
    ),
    "gens-moe": Method(
        "growing ensemble of fixed mixtures of experts (ablation of the paper's first version)",
        _ensemble_of_mixtures,
        {"experts": 2, "members": 1, "warm_start": False, "space": "prob"},
        grows=True,
        free_growth=True,
        keywords_of=GEns,
        body=backbones.mixture,
    ),
    "ff": Method(
        "FF, Firefly: a VGG19 that is widened before each stage where that lowers the loss most",
        Firefly,
        {field.name: field.default for field in dataclasses.fields(GrowthSettings)} | {"from_scratch": False},
        grows=True,
        keywords_of=GrowthSettings,
        body=backbones.firefly,
    ),
    "oracle": Method(
        "oracle, for regret: at every tick the architecture of another method, from scratch on all data so far",
        _oracle,
        {"of": "sm"},
        always=True,
    ),
}

# On text: the same learners with a Switch Transformer (ALMA paper, section 4), whose mixtures are always flat and hard.
TEXT_METHODS: dict[str, Method] = {
    "sm": METHODS["sm"],
    "ens": replace(METHODS["ens"], keywords={"members": 2, "from_scratch": False}),
    "gens": METHODS["gens"],
    "gmoe": replace(
        METHODS["gmoe"],
        title="gMoE on text: the Switch layers' experts with the largest losses are copied before each stage",
        keywords={"split_by": "loss", "grow_by": (2, 2, 4), "from_scratch": False},
        body=backbones.plain,
    ),
    "oracle": replace(METHODS["oracle"], learner=partial(_oracle, text=True)),
}


def methods_for(backbone: str) -> dict[str, Method]:
    """Return the methods by id, in their variants for a backbone."""
    return TEXT_METHODS if backbone == "switch" else METHODS


def method_for(id: str, backbone: str) -> Method:
    """Return a method in its variant for a backbone; ValueError if the id is unknown or not used on text."""
    if not isinstance(id, str):
        raise ValueError(f"agent {id!r}: must be the id of an agent as text; the agents are {', '.join(METHODS)}")
    if id not in METHODS:
        file, colon, function = id.partition(":")
        hint = f"; did you mean {file}.py:{function}?" if colon else did_you_mean(id, METHODS)
        raise ValueError(f"agent {id!r}: unknown; the agents are {', '.join(METHODS)}{hint}")
    methods = methods_for(backbone)
    if id not in methods:
        raise ValueError(f"agent {id!r} on text: not available; the agents for text are {', '.join(methods)}")
    return methods[id]


def keyword_types(method: Method) -> dict[str, Any]:
    """Return the annotated types of a method's own keywords."""
    return {
        name: parameter.annotation
        for source in filter(None, (method.keywords_of, method.learner))
        for name, parameter in _parameters(source).items()
        if name in method.keywords
    }


@cache
def _parameters(source: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(source, eval_str=True).parameters
