"""Create an agent by its id, ``agents.make("sm", env, width=32, wait=10)``, or from the configuration of a run."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from agents.catalogue import backbones
from agents.catalogue.agent_config import AgentConfig
from agents.catalogue.data_facts import facts_of, without_wrappers
from agents.catalogue.methods import Method, method_for
from agents.catalogue.recipes import recipe_for
from agents.catalogue.resolve import resolve_agent
from agents.catalogue.run_config import RunConfig
from agents.learners.anytime import AnytimeAgent
from agents.networks.mlp_vgg import Normalize, Predictor
from agents.policies import SCHEDULES, FixedWait, Policy
from agents.policies.learned.policy import LearnedPolicy
from agents.policies.learned.schedule import SHIPPED, LearnedSchedule
from agents.policies.specs import policy_from
from agents.training.engines import choose_engine, engine_named
from agents.training.settings import OnEpoch, StageSettings
from agents.training.trainer import Trainer
from alma_env import AlmaEnv, Ensemble
from alma_env.text.corpus import TextCorpus


def make(
    id: str,
    env: gym.Env[Any, Any],
    *,
    width: int | None = None,
    wait: int = 1,
    replay: bool = False,
    growth: str | None = None,
    policy: Policy | str | None = None,
    seed: int = 0,
    engine: str = "auto",
    device: str = "auto",
    on_epoch: OnEpoch | None = None,
    **hyperparameters: Any,
) -> AnytimeAgent:
    """Create one of the paper's agents for an environment, with the paper's recipe for its data set.

    Args:
        id: id of the method; ``alma agents`` lists them.
        env: the environment, from ``alma_env.make`` or ``gymnasium.make``. Its shapes, normalisation and length of the
            stream are read, nothing else.
        width: units per hidden layer, channels per convolution, or on text experts per Switch layer; None: the
            recipe's.
        wait: waiting time w in mega-batches.
        replay: train on all mega-batches so far instead of the last w.
        growth: schedule of growth, see ``agents.policies.growing``; None: a growing method grows before each stage but
            the first.
        policy: decides when to train and to grow, instead of ``wait``, ``replay`` and ``growth``. It maps a
            ``Progress`` to a ``Decision``, or to True to train and False to wait; or it is a text as for
            ``alma run --policy``, such as ``"doubling:first=5"``.
        seed: seed of the agent, at least 0.
        engine: ``plain``; ``native`` (C++, on a CPU) or ``graphs`` (on a GPU), for MLPs and VGG19s; or ``auto``: native
            or graphs wherever they can run.
        device: ``cpu``, ``cuda``, …; ``auto``: a GPU if there is one.
        on_epoch: called after every epoch.
        hyperparameters: the method's own, such as ``from_scratch``; the fields of ``StageSettings``, such as
            ``epochs``; and on text those of ``agents.catalogue.backbones.switch_transformer``, such as ``size``.

    Raises:
        ValueError: the agent or a hyper-parameter is unknown, or a value breaks its rule.
        TypeError: the environment is no stream, the policy is neither a function nor a text, or ``on_epoch`` is no
            function.
    """
    env = without_wrappers(env)
    if on_epoch is not None and not callable(on_epoch):
        raise TypeError(f"on_epoch={on_epoch!r}: must be a function of the number of epochs; leave it out for none")
    method = method_for(id, facts_of(env).recipe.backbone)
    if isinstance(policy, str):
        policy = policy_from(policy, grows=method.grows, option="policy=")
    if policy is not None:
        policy = for_method(policy, method)
    keywords = {"width": width, "wait": wait, "replay": replay, "growth": growth, "seed": seed, "engine": engine}
    config = resolve_agent(id, facts_of(env), policy=policy, device=device, **keywords, **hyperparameters)
    return build(config, env, policy=policy, on_epoch=on_epoch)


def for_method(policy: Policy, method: Method) -> Policy:
    """Return the policy as it decides for a method.

    A learned policy does not grow a method that cannot grow, and knows whether growth makes trainings dearer. A network
    of the package is the one for such methods.
    """
    if not isinstance(policy, LearnedPolicy | LearnedSchedule):
        return policy
    if isinstance(policy, LearnedSchedule) and policy.path in SHIPPED.values():
        policy = dataclasses.replace(policy, path=None, grows=method.grows)
    return dataclasses.replace(policy, grows=policy.grows and method.grows, free_growth=method.free_growth)


def build(
    config: RunConfig | AgentConfig, env: AlmaEnv, *, policy: Policy | None = None, on_epoch: OnEpoch | None = None
) -> AnytimeAgent:
    """Create the agent of a planned run or of a finished run; without `policy`, with the schedule in its record.

    Raises:
        ValueError: the engine or the device is not available, a value breaks the method's rule, or `policy` is None and
            the configuration records another policy than a schedule of this package.
    """
    agent = config.agent if isinstance(config, RunConfig) else config
    data = env.data
    recipe = recipe_for(data.name)
    method = method_for(agent.id, recipe.backbone)
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in agent.record.items()}
    own = {name: values[name] for name in method.keywords if name in values}
    network = {name: values[name] for name in backbones.own_keywords(recipe.backbone) if name in values}
    settings = StageSettings(**agent.stage)
    width = recipe.width if agent.width is None else agent.width

    def untrained(generator: torch.Generator) -> Predictor:
        body = method.body(recipe.backbone, data.input_shape, width, data.classes, generator, **network)
        if isinstance(data, TextCorpus):
            return Predictor(nn.Identity(), body)
        return Predictor(Normalize(data.scale, data.mean, data.std), body)

    device, seed = choose_device(agent.record["device"]), agent.record["seed"]
    trainer = Trainer(settings, seed, device, on_epoch=on_epoch)
    learner = method.learner(untrained, trainer, **own)
    predictor = learner.predictor
    body = predictor.members[0] if isinstance(predictor, Ensemble) else predictor.body
    engine = choose_engine(agent.record["engine"], body, settings, device=device)
    learner.trainer = dataclasses.replace(trainer, engine=engine_named(engine))
    return AnytimeAgent(
        learner,
        _recorded_policy(agent) if policy is None else policy,
        env.ticks,
        {**agent.record, "engine": engine, "device": str(device)},
        held_out_valid=data.held_out_valid,
        classes=data.classes,
    )


def _recorded_policy(agent: AgentConfig) -> Policy:
    fields = dict(agent.schedule)
    schedule = SCHEDULES.get(fields.pop("name")) if "name" in fields else FixedWait
    if not fields or schedule is None:
        raise ValueError(f"policy={agent.policy!r}: only schedules are built from their record; give the policy itself")
    return schedule(**fields)


def choose_device(device: str) -> torch.device:
    """Return a device by its name, which PyTorch must see; ``auto`` is the GPU if there is one, otherwise the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ValueError(f"device={device!r}: {reason}; use 'cpu' or 'auto'") from error
    return chosen
