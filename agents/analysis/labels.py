"""Labels of runs: short texts that distinguish their settings.

A setting is a mapping from dotted path to value as text, see `agents.catalogue.run_config`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from agents.catalogue.agent_config import AgentConfig  # noqa: F401 - for the doctest
from agents.catalogue.run_config import BUDGETS, RunConfig

Setting = Mapping[str, str]
_FURTHER_SEEDS = ("agent.seed", "agent.policy.seed")  # beside the seed of the stream


def labels_of(configs: Sequence[RunConfig]) -> list[str]:
    """Return a label for each run; two labels are equal if and only if the settings are equal, see `settings_of`.

    A label is the method, the width and the policy of the run, and the values in which settings with the same method,
    width and policy differ.

    >>> def config(epochs, seed):
    ...     agent = AgentConfig({"id": "sm", "width": 32, "seed": seed, "stage": {"epochs": epochs}})
    ...     return RunConfig("Digits-ALMA-v0", {"ticks": 20}, agent, seed)
    >>> labels_of([config(1, 0), config(1, 1), config(3, 0)])
    ['sm 32, epochs=1', 'sm 32, epochs=1', 'sm 32, epochs=3']
    """
    several = len({config.env for config in configs}) > 1
    names = [f"{config.env} " * several + _name(config) for config in configs]
    return append_differences(names, settings_of(configs))


def _name(config: RunConfig) -> str:
    """Method, width and policy, without the seed of a random policy: it may vary like the seed of the stream."""
    agent = config.agent
    return agent.label.removesuffix(agent.policy_text) + agent.when if agent.policy else agent.label


def settings_of(configs: Sequence[RunConfig]) -> list[Setting]:
    """Return the setting of each run, with the further seeds that make different settings.

    If each stream has one seed of the agent, this seed varies like the stream, and the runs have one setting. If a
    stream has several, each is a setting. The same is true of the seed of a random policy.
    """
    unlimited = {f"protocol.{name}": "null" for name in BUDGETS}  # a record of an earlier version may lack a budget
    settings = [
        {path: value for path, value in config.setting.items() if value != unlimited.get(path)} for config in configs
    ]
    keys = [tuple(sorted(setting.items())) for setting in settings]
    seeds: dict[tuple[object, int, str], set[str]] = {}
    for key, config in zip(keys, configs, strict=True):
        for path in _FURTHER_SEEDS:
            if path in config.identity:
                seeds.setdefault((key, config.seed, path), set()).add(config.identity[path])
    split = {(key, path) for (key, _, path), found in seeds.items() if len(found) > 1}
    return [
        setting
        | {path: config.identity[path] for path in _FURTHER_SEEDS if (key, path) in split and path in config.identity}
        for setting, key, config in zip(settings, keys, configs, strict=True)
    ]


def natural_key(label: str) -> list[tuple[int, float, str]]:
    """Return a key that sorts the numbers in labels as numbers.

    >>> sorted(["sm 4, wait 10", "sm 4, wait 2", "sm 32, wait 2"], key=natural_key)
    ['sm 4, wait 2', 'sm 4, wait 10', 'sm 32, wait 2']
    """
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    return [(1, float(part), "") if number % 2 else (0, 0.0, part) for number, part in enumerate(parts)]


def differing_paths(settings: Sequence[Setting]) -> list[str]:
    """Return the paths, in alphabetical order, whose values are not equal in all settings."""
    paths = sorted({path for setting in settings for path in setting})
    return [path for path in paths if len({setting.get(path) for setting in settings}) > 1]


def append_differences(
    names: Sequence[str],
    settings: Sequence[Setting],
    paths_of: Callable[[Sequence[Setting]], list[str]] = differing_paths,
) -> list[str]:
    """Append to each name the values in which the settings with this name differ.

    ``paths_of`` returns the paths to compare, for the settings with one name.
    """
    by_name: dict[str, list[Setting]] = {}
    for name, setting in zip(names, settings, strict=True):
        by_name.setdefault(name, []).append(setting)
    paths = {name: paths_of(same_name) for name, same_name in by_name.items()}
    return [
        ", ".join([name, *name_values(setting, paths[name])]) for name, setting in zip(names, settings, strict=True)
    ]


def name_values(setting: Setting, paths: Sequence[str]) -> list[str]:
    """Return ``name=value`` for each path of a setting; the name is the last part of the path if that is unique.

    A digest is shortened to its first eight digits.
    """
    names = [path.rpartition(".")[2] for path in paths]
    return [
        f"{name if names.count(name) == 1 else path}={setting[path][: 8 if name == 'digest' else None]}"
        for path, name in zip(paths, names, strict=True)
        if path in setting
    ]
