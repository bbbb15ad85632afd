"""Seed groups: finished runs with the same setting, one per seed; and the streams of finished runs.

Runs that differ only in their computation (engine, device, threads, versions, machine) have the same setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agents.analysis.labels import Setting, append_differences, differing_paths, natural_key, settings_of
from agents.analysis.measures import Measure, measure_of
from agents.analysis.statistics import Interval
from agents.catalogue.run_config import is_schedule
from agents.runs.load import FinishedRun
from alma_env import Score

_Key = tuple[tuple[str, str], ...]  # a setting that can be a key

# The paper's names; other methods are called by their ids.
NAMES = {
    "sm": "SM",
    "ens": "Ens",
    "umix": "UMix",
    "gens": "gEns",
    "gmoe": "gMoE",
    "moe": "MoE",
    "gens-moe": "gEns of MoE",
    "ff": "FF",
    "oracle": "oracle",
}


@dataclass(frozen=True)
class SeedGroup:
    """The finished runs of one setting within a stream, see `agents.catalogue.run_config`."""

    method: str  # the paper's name, with the hyper-parameters in which the settings of this method differ
    agent: str  # id of the method, or the name of the user's own agent
    width: int | None  # units, channels or experts; None if the agent has none
    wait: int | None  # in mega-batches; None for other policies than a fixed waiting time
    when: str  # the schedule as text
    replay: bool
    runs: Mapping[int, FinishedRun]  # by seed
    setting: Setting = field(default_factory=dict)

    @property
    def first(self) -> FinishedRun:
        """The first run, for values that all runs share."""
        return next(iter(self.runs.values()))

    @property
    def method_id(self) -> str | None:
        """The id of the method; None for an agent of the user, whose name can be that of a method."""
        return self.first.run_config.agent.method

    @property
    def measure(self) -> Measure:
        """The measure of the runs."""
        return measure_of(self.first.run_config.protocol)

    def values(self, of: Callable[[Score], float]) -> dict[int, float]:
        """Return a number of each run, by seed."""
        return {seed: float(of(run.score)) for seed, run in self.runs.items()}

    def interval(self, of: Callable[[Score], float]) -> Interval:
        """Return the mean of a number over the seeds, with its 95 % interval."""
        return Interval.of(list(self.values(of).values()))

    @property
    def name(self) -> str:
        """The name among the seed groups of a stream.

        >>> SeedGroup("SM", "sm", 4, 5, "w = 5", True, {}).name
        'SM-4, w = 5, replay'
        """
        return ", ".join([self.sized_name, self.when, *["replay"] * self.replay])

    @property
    def sized_name(self) -> str:
        """Method and width, as ``SM-4`` or ``Ens-4, members=2``."""
        name, comma, others = self.method.partition(",")
        return (name if self.width is None else f"{name}-{self.width}") + comma + others


def streams(runs: Iterable[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Return finished runs by stream: id of the environment, and the values in which its streams differ."""
    found: dict[_Key, list[FinishedRun]] = {}
    for run in runs:
        found.setdefault(_key(run.run_config.stream), []).append(run)
    keys = [dict(key) for key in found]
    names = []
    for key in keys:
        paths = differing_paths([other for other in keys if other["env"] == key["env"]])
        own = [f"{path.removeprefix('protocol.')}={key[path]}" for path in paths if path in key]
        names.append(", ".join([key["env"], *own]))
    return dict(zip(names, found.values(), strict=True))


def find_seed_groups(runs: Sequence[FinishedRun]) -> tuple[list[SeedGroup], list[str]]:
    """Return the seed groups of one stream, sorted; and a message for each run that is left out as a duplicate."""
    found: dict[_Key, dict[int, FinishedRun]] = {}
    notes = []
    for run, whole in zip(runs, settings_of([run.run_config for run in runs]), strict=True):
        stream = run.run_config.stream
        group = found.setdefault(_key({path: value for path, value in whole.items() if path not in stream}), {})
        if run.seed in group:
            notes.append(
                f"{run.folder}: the run of {group[run.seed].folder} with other rounding (engine, device, threads, "
                "versions or machine); counted once"
            )
        else:
            group[run.seed] = run
    settings = [dict(key) for key in found]
    agents = [next(iter(group.values())).run_config.agent for group in found.values()]
    names = [NAMES.get(agent.method or "", agent.id) for agent in agents]
    methods = append_differences(names, settings, _method_paths)
    groups = [_seed_group(*one) for one in zip(methods, settings, found.values(), strict=True)]
    return sorted(_with_unique_names(groups), key=_order), notes


def _key(setting: Setting) -> _Key:
    return tuple(sorted(setting.items()))


def _with_unique_names(groups: Sequence[SeedGroup]) -> Iterator[SeedGroup]:
    """Append the values in which seed groups with the same name differ to their methods."""
    by_name: dict[str, list[Setting]] = {}
    for group in groups:
        by_name.setdefault(group.name, []).append(group.setting)
    for group in groups:
        paths = [path for path in differing_paths(by_name[group.name]) if path in group.setting]
        yield replace(group, method=", ".join([group.method, *(f"{path}={group.setting[path]}" for path in paths)]))


def _method_paths(settings: Sequence[Setting]) -> list[str]:
    """Return the paths that differ, except for width and schedule, which figures show separately."""
    paths = differing_paths(settings)
    growth = {setting["agent.policy.growth"] for setting in settings if "agent.policy.growth" in setting}
    others = [path for path in paths if path != "agent.width" and not is_schedule(path)]
    return others + ["agent.policy.growth"] * (len(growth) > 1)


def _seed_group(method: str, setting: Setting, runs: Mapping[int, FinishedRun]) -> SeedGroup:
    agent = next(iter(runs.values())).run_config.agent
    when = f"w = {agent.wait}" if agent.wait is not None else agent.when.removesuffix(", replay")
    when = when.replace(", replay last:", ", window ")  # the name of a group says that it replays
    if agent.wait is not None and isinstance(agent.replay, str):  # another method, not another waiting time
        method += f", window {agent.replay.removeprefix('last:')}"
    by_seed = dict(sorted(runs.items()))
    return SeedGroup(method, agent.id, agent.width, agent.wait, when, bool(agent.replay), by_seed, setting)


def _order(group: SeedGroup) -> tuple[Any, ...]:
    index = list(NAMES).index(group.method_id) if group.method_id in NAMES else len(NAMES)
    wait = (group.wait is None, group.wait or 0, natural_key(group.when))
    return index, group.method, group.width or 0, wait, group.replay


def headline(stream: str, groups: Sequence[SeedGroup]) -> str:
    """Return the stream and everything that all seed groups share: method, width, schedule and replay."""
    methods, widths = {group.method for group in groups}, {group.width for group in groups}
    parts = [stream]
    if len(methods) == 1:
        parts.append(groups[0].sized_name if len(widths) == 1 else groups[0].method)
    elif len(widths) == 1 and groups[0].width is not None:
        parts.append(f"width {groups[0].width}")
    if len({group.when for group in groups}) == 1:
        parts.append(groups[0].when)
    return ", ".join([*parts, *["replay"] * all(group.replay for group in groups)])


def short_names(groups: Sequence[SeedGroup], *, width: bool = True, when: bool = True) -> list[str]:
    """Return a name for each seed group: everything that the groups do not share, or the method if they share all.

    Without ``width`` or ``when`` the names leave out widths or schedules that differ.
    """
    several = {
        name: len({getattr(group, name) for group in groups}) > 1 for name in ("method", "width", "when", "replay")
    }
    names = []
    for group in groups:
        parts = []
        if several["method"]:
            parts.append(group.sized_name if width and several["width"] else group.method)
        elif width and several["width"] and group.width is not None:
            parts.append(f"width {group.width}")
        parts += [group.when] * (when and several["when"]) + ["replay"] * (several["replay"] and group.replay)
        names.append(", ".join(parts) or ("no replay" if several["replay"] else group.method))
    return names


def seeds_caption(groups: Iterable[SeedGroup], what: str = "bars") -> str:
    """Return the meaning of the bars or bands of a figure, for its caption."""
    numbers = sorted({len(group.runs) for group in groups})
    if numbers[-1] == 1:
        return "one seed each: no intervals"
    several = [number for number in numbers if number > 1]
    seeds = f"{several[0]} seeds" if len(several) == 1 else f"{several[0]} to {several[-1]} seeds"
    return f"{what}: 95 % interval over {seeds}" + ("; none where there is one seed" if numbers[0] == 1 else "")
