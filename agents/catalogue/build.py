"""The agents by id: ``agents.make("sm", env, width=32, wait=10)``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

import torch
from torch import nn

from agents import backbones
from agents.anytime import AnytimeAgent
from agents.backbones import Body
from agents.checks import check_types
from agents.compiled import choose_engine
from agents.growth import require_ticks
from agents.methods import method_for, methods_for, types_of
from agents.networks import Normalize, Predictor
from agents.policies import FixedWait, Policy, Schedule, as_plain_data
from agents.recipes import Recipe, recipe_for
from agents.stage import OnEpoch, StageSettings
from agents.trainings import trainings
from alma_env.registration import keywords_of
from alma_env.text_corpus import TextCorpus

if TYPE_CHECKING:
    from alma_env import AlmaEnv

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
        width: units per hidden layer, channels per convolution, or experts per Switch layer on text; the recipe's where
            not given.
        wait: waiting time w in mega-batches.
        replay: train on everything gathered so far, not on the last w mega-batches alone.
        growth: when a growing method grows, see ``agents.growth``; before each stage but the first where not given.
        policy: when to train and grow, in place of ``wait``, ``replay`` and ``growth``.
        seed: run seed, 0 or more.
        engine: ``plain``, ``compiled``, or ``auto``: compiled where the expected work pays for compiling.
        device: ``cpu``, ``cuda``, …; ``auto`` takes a GPU where there is one.
        on_epoch: told after every epoch.
        hyperparameters: the method's own, such as ``from_scratch``, the fields of ``StageSettings``, such as
            ``epochs``, and on text those of ``agents.backbones.switch_transformer``, such as ``size``.

    Raises:
        ValueError: an unknown agent or hyper-parameter, or a value that breaks its rule.
    """
    recipe = recipe_for(env.data.name)
    method = method_for(id, recipe.backbone)
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
    own, network = dict(method.keywords), backbones.keywords_of(recipe.backbone)
    known = {*_SETTINGS, *own, *network}
    unknown = sorted(set(hyperparameters) - known)
    if unknown:
        raise ValueError(f"{unknown[0]!r}: agent {id!r} has no such hyper-parameter; it has {', '.join(sorted(known))}")
    hyperparameters = check_types(
        hyperparameters,
        types_of(method) | backbones.types_of(recipe.backbone) | _SETTINGS,
        own | network | dataclasses.asdict(recipe.settings),
    )
    if method.always:
        if policy is not None or wait != 1:
            raise ValueError(f"wait={wait} or a policy with agent {id!r}: it trains at every tick; leave both out")
        replay = True
    if type(policy) is FixedWait:  # the same run as with its three keywords, so one record
        wait, replay, growth, policy = policy.wait, policy.replay, policy.growth, None
    for keywords in (own, network):
        keywords.update({name: hyperparameters.pop(name) for name in list(hyperparameters) if name in keywords})
    if wait > env.ticks:
        raise ValueError(f"wait={wait}: the stream has only {env.ticks} mega-batches; wait at most {env.ticks}")
    if policy is None:
        policy = FixedWait(wait, replay=replay, growth=growth or ("every" if method.grows else "never"))
    if isinstance(policy, Schedule):  # of any other policy nobody knows what it will do
        if own.get("from_scratch") and not policy.replay:
            raise ValueError(
                "from_scratch=True without replay would forget all earlier data: it is only meaningful with replay=True"
            )
        if policy.growth != "never" and not method.grows:
            growing = ", ".join(name for name, other in methods_for(recipe.backbone).items() if other.grows)
            raise ValueError(
                f"growth={policy.growth!r}: agent {id!r} cannot grow; leave it out, or take one that grows: {growing}"
            )
        require_ticks(policy.growth, env.ticks)
    settings = dataclasses.replace(recipe.settings, **hyperparameters)
    if settings.augmentation != "none" and len(env.data.input_shape) == 1:
        kind = "text" if isinstance(env.data, TextCorpus) else f"inputs of shape {env.data.input_shape}"
        raise ValueError(f"augmentation={settings.augmentation!r} on {kind}: it crops and flips images; leave it out")
    width = recipe.width if width is None else width

    def build(generator: torch.Generator) -> Predictor:
        return build_predictor(generator, env=env, recipe=recipe, width=width, body=method.body, **network)

    where = choose_device(device)
    chosen = choose_engine(
        engine,
        build(torch.Generator()).body,
        settings,
        full_steps=expected_steps(env, settings, wait=wait, replay=replay),
        device=where,
    )
    learner = method.learner(build, settings, seed=seed, engine=chosen, device=where, on_epoch=on_epoch, **own)
    config = {
        "id": id,
        "backbone": recipe.backbone,
        "width": width,
        "policy": as_plain_data(policy),
        "seed": seed,
        "engine": chosen,
        "device": str(where),
        **_plain(network | own),
        "stage": dataclasses.asdict(settings),
    }
    return AnytimeAgent(
        learner,
        policy,
        env.ticks,
        config,
        held_out_valid=env.data.held_out_valid,
        classes=env.data.classes,
    )


def split_keywords(env_id: str, keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sort keywords into those of an environment, for ``alma_env.make``, and all others, for ``make``."""
    of_env = {"data", *keywords_of(env_id)}  # data: which `alma_env.make` refuses with a remedy
    protocol = {key: value for key, value in keywords.items() if key in of_env}
    return protocol, {key: value for key, value in keywords.items() if key not in of_env}


def _plain(keywords: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives them back."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in keywords.items()}


def build_predictor(
    generator: torch.Generator,
    *,
    env: AlmaEnv,
    recipe: Recipe,
    width: int,
    body: Body = backbones.plain,
    **keywords: Any,
) -> Predictor:
    """The untrained predictor of a recipe, its weights drawn from the generator; `keywords` are the backbone's."""
    data = env.data
    network = body(recipe.backbone, data.input_shape, width, data.classes, generator, **keywords)
    if isinstance(data, TextCorpus):
        return Predictor(nn.Identity(), network)
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
    made = [one for one in trainings(env.ticks, wait, replay=replay) if until is None or one.tick <= until]
    return epochs * sum(one.mega_batches for one in made) * env.examples_per_tick


def expected_steps(env: AlmaEnv, settings: StageSettings, *, wait: int, replay: bool) -> int:
    """About how many mini-batch steps a run with a fixed waiting time makes."""
    if settings.updates is not None:
        return -(-env.ticks // wait) * settings.updates
    per_stage = wait * env.examples_per_tick
    examples = training_examples(env, settings.epochs, wait=wait, replay=replay)
    return examples // min(per_stage, settings.batch_size)
