"""The agents by id: ``agents.make("sm", env, width=32, wait=10)``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_type_hints

import torch

from agents import backbones
from agents.anytime import AnytimeAgent, Learner
from agents.backbones import Body
from agents.checks import check_types
from agents.compiled import choose_engine
from agents.ens import Ens
from agents.firefly import Firefly
from agents.firefly_settings import GrowthSettings
from agents.gens import GEns
from agents.gmoe import GMoE
from agents.growth import require_ticks
from agents.mixture_networks import build_mixture
from agents.networks import Normalize, Predictor
from agents.policies import FixedWait, Policy, as_plain_data
from agents.recipes import Recipe, recipe_for
from agents.single_model import Build, SingleModel
from agents.stage import OnEpoch, StageSettings
from agents.umix import UMix

if TYPE_CHECKING:
    from alma_env import AlmaEnv


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


def _oracle(build: Build, settings: StageSettings, *, of: str, **keywords: Any) -> Learner:
    """The fixed-size method ``of``, which forgets its weights, but no data, at every tick."""
    if of not in ("sm", "ens", "umix"):
        raise ValueError(f"of={of!r}: the oracle is one of the architectures of fixed size: sm, ens, umix")
    return METHODS[of].learner(build, settings, from_scratch=True, **keywords)


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

_SETTINGS = get_type_hints(StageSettings)
_OF_EVERY_AGENT = {"width": int | None, "wait": int, "replay": bool, "growth": str | None, "seed": int, "engine": str}
_EXAMPLES = {"width": 32, "wait": 5, "growth": "every", "seed": 0, "engine": "auto"}


def make(
    id: str,
    env: AlmaEnv,
    *,
    width: int | None = None,
    wait: int = 1,
    replay: bool = False,
    growth: str | None = None,
    policy: Policy | None = None,
    seed: int = 0,
    engine: str = "auto",
    device: str = "auto",
    on_epoch: OnEpoch | None = None,
    **hyperparameters: Any,
) -> AnytimeAgent:
    """Make one of the paper's agents for an environment, with the paper's recipe for its data set.

    Args:
        id: the method; ``alma agents`` lists them.
        env: the environment, for the shapes, the normalisation and the length of the stream; nothing else is read.
        width: units per hidden layer or channels per convolution; the recipe's where not given.
        wait: waiting time w in mega-batches.
        replay: train on everything gathered so far, not on the last w mega-batches alone.
        growth: when a growing method grows, see ``agents.growth``; before each stage but the first where not given.
        policy: when to train and grow, in place of ``wait``, ``replay`` and ``growth``.
        seed: run seed, 0 or more.
        engine: ``plain``, ``compiled``, or ``auto``: compiled where the expected work pays for compiling.
        device: ``cpu``, ``cuda``, …; ``auto`` takes a GPU where there is one.
        on_epoch: told after every epoch.
        hyperparameters: the method's own, such as ``from_scratch``, and the fields of ``StageSettings``, such as
            ``epochs``.

    Raises:
        ValueError: an unknown agent or hyper-parameter, or a value that breaks its rule.
    """
    if id not in METHODS:
        raise ValueError(f"agent {id!r}: unknown; the agents are {', '.join(METHODS)}")
    of_every: dict[str, Any] = {
        "width": width,
        "wait": wait,
        "replay": replay,
        "growth": growth,
        "seed": seed,
        "engine": engine,
    }
    of_every = check_types(of_every, _OF_EVERY_AGENT, _EXAMPLES)
    width, wait, replay, growth, seed = (of_every[name] for name in ("width", "wait", "replay", "growth", "seed"))
    if policy is not None and (wait != 1 or replay or growth is not None):
        raise ValueError(
            f"wait={wait}, replay={replay}, growth={growth!r} beside a policy: a policy decides both when to train and "
            "when to grow; give either it or them"
        )
    own = dict(METHODS[id].keywords)
    unknown = sorted(set(hyperparameters) - set(_SETTINGS) - set(own))
    if unknown:
        known = sorted(set(_SETTINGS) | set(own))
        raise ValueError(f"{unknown[0]!r}: agent {id!r} has no such hyper-parameter; it has {', '.join(known)}")
    recipe = recipe_for(env.data.name)
    hyperparameters = check_types(
        hyperparameters, _types_of(METHODS[id]) | _SETTINGS, own | dataclasses.asdict(recipe.settings)
    )
    if METHODS[id].always:
        if policy is not None or wait != 1:
            raise ValueError(f"wait={wait} or a policy with agent {id!r}: it trains at every tick; leave both out")
        replay = True
    if type(policy) is FixedWait:  # the same run as with its three keywords, so one record
        wait, replay, growth, policy = policy.wait, policy.replay, policy.growth, None
    own.update({name: hyperparameters.pop(name) for name in list(hyperparameters) if name in own})
    if own.get("from_scratch") and not replay and policy is None:
        raise ValueError(
            "from_scratch=True without replay would forget all earlier data: it is only meaningful with replay=True"
        )
    if growth not in (None, "never") and not METHODS[id].grows:
        growing = ", ".join(name for name, method in METHODS.items() if method.grows)
        raise ValueError(
            f"growth={growth!r}: agent {id!r} cannot grow; leave it out, or take one that grows: {growing}"
        )
    if wait > env.ticks:
        raise ValueError(f"wait={wait}: the stream has only {env.ticks} mega-batches; wait at most {env.ticks}")
    if policy is None:
        policy = FixedWait(wait, replay, growth or ("every" if METHODS[id].grows else "never"))
        require_ticks(policy.growth, env.ticks)
    settings = dataclasses.replace(recipe.settings, **hyperparameters)
    width = recipe.width if width is None else width
    build = partial(build_predictor, env=env, recipe=recipe, width=width, body=METHODS[id].body)
    where = choose_device(device)
    chosen = choose_engine(
        engine,
        build(torch.Generator()).body,
        settings,
        full_steps=expected_steps(env, settings, wait=wait, replay=replay),
        device=where,
    )
    learner = METHODS[id].learner(build, settings, seed=seed, engine=chosen, device=where, on_epoch=on_epoch, **own)
    config = {
        "id": id,
        "backbone": recipe.backbone,
        "width": width,
        "policy": as_plain_data(policy),
        "seed": seed,
        "engine": chosen,
        "device": str(where),
        **own,
        "stage": dataclasses.asdict(settings),
    }
    return AnytimeAgent(learner, policy, env.ticks, config)


def _types_of(method: Method) -> dict[str, Any]:
    """Types of a method's own keywords, as they are annotated."""
    hints: dict[str, Any] = {}
    for source in (method.keywords_of, method.learner):
        if source is not None:
            parameters = inspect.signature(source, eval_str=True).parameters
            hints |= {name: parameter.annotation for name, parameter in parameters.items()}
    return {name: hints[name] for name in method.keywords if name in hints}


def build_predictor(
    generator: torch.Generator, *, env: AlmaEnv, recipe: Recipe, width: int, body: Body = backbones.plain
) -> Predictor:
    """The untrained predictor of a recipe, its weights drawn from the generator."""
    data = env.data
    network = body(recipe.backbone, data.train_x.shape[1:], width, data.classes, generator)
    return Predictor(Normalize(data.scale, data.mean, data.std), network)


def choose_device(device: str) -> torch.device:
    """``auto`` is the GPU where PyTorch sees one, else the CPU.

    Raises:
        ValueError: PyTorch does not know the device, or does not see it.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r}: {str(error).splitlines()[0]}; use 'cpu' or 'auto'") from error
    return chosen


def training_examples(env: AlmaEnv, epochs: int, *, wait: int, replay: bool, until: int | None = None) -> int:
    """Examples that a run with a fixed waiting time trains on, in all epochs, up to tick ``until`` (the last one)."""
    until = env.ticks if until is None else until
    gathered = [tick for tick in range(1, until + 1) if tick % wait == 0 or tick == env.ticks]
    mega_batches = sum(gathered) if replay else (gathered[-1] if gathered else 0)
    return epochs * mega_batches * env.examples_per_tick


def expected_steps(env: AlmaEnv, settings: StageSettings, *, wait: int, replay: bool) -> int:
    """About how many mini-batch steps a run with a fixed waiting time makes."""
    per_stage = wait * env.examples_per_tick
    examples = training_examples(env, settings.epochs, wait=wait, replay=replay)
    return examples // min(per_stage, settings.batch_size)
