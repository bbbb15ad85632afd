"""The methods that there are: how each one's learner is made, and its hyper-parameters."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agents import backbones
from agents.anytime import Learner
from agents.backbones import Body
from agents.ens import Ens
from agents.firefly import Firefly
from agents.firefly_settings import GrowthSettings
from agents.gens import GEns
from agents.gmoe import GMoE
from agents.mixture_networks import build_mixture
from agents.single_model import Build, SingleModel
from agents.stage import StageSettings
from agents.umix import UMix


@dataclass(frozen=True)
class Method:
    """One line of ``alma agents``.

    Attributes:
        title: the paper's name of the method and what it does.
        learner: makes its learner, from what builds an untrained predictor, the settings of a stage, and keywords.
        keywords: its own hyper-parameters, beside those of every agent and of a stage, with their defaults.
        grows: whether it grows, at every stage from the second on unless the policy says otherwise.
        always: training at every tick on everything seen so far is part of the method.
        keywords_of: whose annotations tell the types of keywords that the learner passes on.
        body: makes the network that it trains.
    """

    title: str
    learner: Callable[..., Learner]
    keywords: dict[str, Any]
    grows: bool = False
    always: bool = False
    keywords_of: Callable[..., object] | None = None
    body: Body = backbones.plain


def _oracle(build: Build, settings: StageSettings, *, of: str, text: bool = False, **keywords: Any) -> Learner:
    """The fixed-size method ``of``, which forgets its weights, but no data, at every tick."""
    among = ("sm", "ens") if text else ("sm", "ens", "umix")
    if of not in among:
        raise ValueError(f"of={of!r}: the oracle is one of the architectures of fixed size: {', '.join(among)}")
    method = (TEXT_METHODS if text else METHODS)[of]
    return method.learner(build, settings, **{**method.keywords, "from_scratch": True}, **keywords)


def _ensemble_of_mixtures(build: Build, settings: StageSettings, *, experts: int, **keywords: Any) -> Learner:
    """gEns whose members are fixed mixtures of experts."""
    if experts < 1:
        raise ValueError(f"experts={experts}: a mixture needs at least 1 expert; the paper has 2")
    return GEns(lambda drawn: build_mixture(build, drawn, experts), settings, **keywords)


METHODS: dict[str, Method] = {
    "sm": Method("SM, single model: one network, fine-tuned at every stage", SingleModel, {"from_scratch": False}),
    "ens": Method(
        "Ens, ensemble: independent single models, their probabilities averaged",
        Ens,
        {"members": 5, "from_scratch": False, "together": None},
    ),
    "umix": Method(
        "UMix, uniform mixture: networks trained jointly, their logits averaged",
        UMix,
        {"members": 5, "reduce": "mean", "from_scratch": False, "together": None},
    ),
    "gens": Method(
        "gEns, growing ensemble: a new single model per stage, the older ones frozen",
        GEns,
        {"members": 1, "warm_start": False, "space": "prob", "together": None},
        grows=True,
    ),
    "gmoe": Method(
        "gMoE, growing mixture of experts: the expert with the largest loss is split before each stage",
        GMoE,
        {
            "gating": "soft",
            "straight_through": "dense",
            "split_by": "loss",
            "grow_by": 1,
            "init_experts": 1,
            "tree": True,
            "from_scratch": False,
            "together": None,
        },
        grows=True,
        body=backbones.mixture,
    ),
    "moe": Method(
        "fixed mixture of experts (ablation of the paper's first version)",
        partial(GMoE, fixed=True),
        {
            "init_experts": 2,
            "gating": "soft",
            "straight_through": "dense",
            "tree": True,
            "from_scratch": False,
            "together": None,
        },
        body=backbones.mixture,
    ),
    "gens-moe": Method(
        "growing ensemble of fixed mixtures of experts (ablation of the paper's first version)",
        _ensemble_of_mixtures,
        {"experts": 2, "members": 1, "warm_start": False, "space": "prob"},
        grows=True,
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
        "oracle, for regret: at every tick the architecture of another method, from scratch on everything so far",
        _oracle,
        {"of": "sm"},
        always=True,
    ),
}

# On text: the same learners, over a Switch Transformer (ALMA paper, section 4). Its members are not computed at once,
# and its mixtures are flat and hard by nature.
TEXT_METHODS: dict[str, Method] = {
    "sm": METHODS["sm"],
    "ens": replace(METHODS["ens"], keywords={"members": 2, "from_scratch": False}),
    "gens": replace(METHODS["gens"], keywords={"members": 1, "warm_start": False, "space": "prob"}),
    "gmoe": replace(
        METHODS["gmoe"],
        title="gMoE on text: the Switch layers' experts with the largest losses are copied before each stage",
        keywords={"split_by": "loss", "grow_by": (2, 2, 4), "from_scratch": False},
        body=backbones.plain,
    ),
    "oracle": replace(METHODS["oracle"], learner=partial(_oracle, text=True)),
}


def methods_for(backbone: str) -> dict[str, Method]:
    """The methods by id, as they are on data that the backbone is for."""
    return TEXT_METHODS if backbone == "switch" else METHODS


def method_for(id: str, backbone: str) -> Method:
    """One of these methods.

    Raises:
        ValueError: there is no such method, or the paper has none of this kind for text.
    """
    if id not in METHODS:
        raise ValueError(f"agent {id!r}: unknown; the agents are {', '.join(METHODS)}")
    methods = methods_for(backbone)
    if id not in methods:
        raise ValueError(f"agent {id!r} on text: the agents for text are {', '.join(methods)}")
    return methods[id]


def types_of(method: Method) -> dict[str, Any]:
    """Types of a method's own keywords, as they are annotated."""
    hints: dict[str, Any] = {}
    for source in (method.keywords_of, method.learner):
        if source is not None:
            parameters = inspect.signature(source, eval_str=True).parameters
            hints |= {name: parameter.annotation for name, parameter in parameters.items()}
    return {name: hints[name] for name in method.keywords if name in hints}
