"""Finished runs by stream, and by cell: runs of a cell differ in nothing but their seeds.

What changes nothing but the rounding (engine, device, threads, versions, machine) is no difference here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.finished import FinishedRun
from agents.report import Measure, by_path, measure_of, schedule
from agents.statistics import Interval
from alma_env import Score

# The paper's names; a method that is not here is called by its id.
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

_SCHEDULE = "agent.policy.seed"  # of a random one
_ROUNDING = {"agent.engine", "agent.device", "agent.together", "agent.seed", _SCHEDULE}
_BUDGETS = ("flops_budget", "parameter_budget")


@dataclass(frozen=True)
class Cell:
    """The runs of one setting, by seed.

    Attributes:
        method: the paper's name, with the hyper-parameters in which cells of this method differ.
        agent: its id.
        width: units, channels or experts; None of an agent that has none.
        wait: waiting time in mega-batches; None where a policy decides.
        when: the schedule in words.
        replay: whether it trained on everything so far.
        runs: by seed.
    """

    method: str
    agent: str
    width: int | None
    wait: int | None
    when: str
    replay: bool
    runs: Mapping[int, FinishedRun]

    @property
    def first(self) -> FinishedRun:
        """Any of its runs, for what is the same in all."""
        return next(iter(self.runs.values()))

    @property
    def measure(self) -> Measure:
        """What its errors are."""
        return measure_of(self.first.config["protocol"])

    def values(self, of: Callable[[Score], float]) -> dict[int, float]:
        """A number of each run, by seed."""
        return {seed: of(run.score) for seed, run in self.runs.items()}

    def interval(self, of: Callable[[Score], float]) -> Interval:
        """The number's mean over the seeds, with its 95 % interval."""
        return Interval.of(list(self.values(of).values()))

    @property
    def name(self) -> str:
        """All that tells it from other cells of its stream.

        >>> Cell("SM", "sm", 4, 5, "w = 5", True, {}).name
        'SM-4, w = 5, replay'
        """
        return ", ".join([sized(self), self.when, *["replay"] * self.replay])


def sized(cell: Cell) -> str:
    """Method and width, as ``SM-4`` or ``Ens-4, members=2``."""
    name, comma, others = cell.method.partition(",")
    return (name if cell.width is None else f"{name}-{cell.width}") + comma + others


def streams(runs: Iterable[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Runs by the stream that they answered; its name is the environment's id, and what else tells it from others."""
    found: dict[str, list[FinishedRun]] = {}
    for run in runs:
        protocol = {k: v for k, v in run.config["protocol"].items() if k not in (*_BUDGETS, "evaluation_batch_size")}
        found.setdefault(json.dumps([run.config["env"], protocol], sort_keys=True), []).append(run)
    keys = [json.loads(key) for key in found]
    names = []
    for env, protocol in keys:
        others = [dict(by_path(other)) for id, other in keys if id == env]
        own = dict(by_path(protocol))
        differing = [path for path in own if len({other.get(path) for other in others}) > 1]
        names.append(", ".join([env, *(f"{path}={own[path]}" for path in differing)]))
    return dict(zip(names, found.values(), strict=True))


def cells_of(runs: Sequence[FinishedRun]) -> tuple[list[Cell], list[str]]:
    """The cells of one stream, by method, width, waiting time and replay; and what was counted once, in words."""
    found: dict[str, dict[int, FinishedRun]] = {}
    notes = []
    lots = _lots(runs)
    for run in runs:
        alike = found.setdefault(json.dumps(_setting(run) | lots.get(id(run), {}), sort_keys=True), {})
        if run.seed in alike:
            notes.append(
                f"{run.folder}: the run of {alike[run.seed].folder} with other rounding (engine, device, threads, "
                "versions or machine); counted once"
            )
        else:
            alike[run.seed] = run
    settings = [json.loads(key) for key in found]
    methods = _methods(settings)
    cells = [_cell(method, dict(sorted(alike.items()))) for method, alike in zip(methods, found.values(), strict=True)]
    return sorted(_told_apart(cells, settings), key=_order), notes


def _lots(runs: Sequence[FinishedRun]) -> dict[int, dict[str, str]]:
    """By the identity of a run the seed of its random schedule, where runs of one seed have several of them.

    Where each run has its own, they are drawn like the stream and the weights; else they are so many settings.
    """
    of: dict[tuple[str, int], set[str]] = {}
    drawn = {}
    for run in runs:
        seed = dict(by_path({"agent": run.config["agent"]})).get(_SCHEDULE)
        if seed is not None:
            key = json.dumps(_setting(run), sort_keys=True)
            of.setdefault((key, run.seed), set()).add(seed)
            drawn[id(run)] = key, seed
    several = {key for (key, _), seeds in of.items() if len(seeds) > 1}
    return {run: {_SCHEDULE: seed} for run, (key, seed) in drawn.items() if key in several}


def _told_apart(cells: Sequence[Cell], settings: Sequence[Mapping[str, str]]) -> Iterator[Cell]:
    """The cells, those of one name with all that they differ in."""
    alike: dict[str, list[Mapping[str, str]]] = {}
    for cell, setting in zip(cells, settings, strict=True):
        alike.setdefault(cell.name, []).append(setting)
    for cell, setting in zip(cells, settings, strict=True):
        others = alike[cell.name]
        paths = sorted(path for path in setting if len({other.get(path) for other in others}) > 1)
        yield replace(cell, method=", ".join([cell.method, *(f"{path}={setting[path]}" for path in paths)]))


def _setting(run: FinishedRun) -> dict[str, Any]:
    """All that a cell's numbers depend on, but stream, seeds and rounding: text by dotted path."""
    agent = {path: value for path, value in by_path({"agent": run.config["agent"]}) if path not in _ROUNDING}
    budgets = {name: json.dumps(run.config["protocol"].get(name)) for name in _BUDGETS}
    return {**agent, **{name: value for name, value in budgets.items() if value != "null"}}


def _methods(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The name of each method, with the settings that are not the same in all of its cells."""
    by_id: dict[str, list[Mapping[str, str]]] = {}
    for setting in settings:
        by_id.setdefault(setting.get("agent.id", "agent"), []).append(setting)
    differing = {id: _differing(alike) for id, alike in by_id.items()}
    out = []
    for setting in settings:
        id = setting.get("agent.id", "agent")
        own = [f"{path.rpartition('.')[2]}={setting[path]}" for path in differing[id] if path in setting]
        out.append(", ".join([NAMES.get(id, id), *own]))
    return out


def _differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    paths = sorted({path for setting in settings for path in setting})
    # Width and schedule have places of their own in a figure.
    paths = [path for path in paths if path != "agent.width" and not path.startswith("agent.policy")]
    paths = [path for path in paths if len({setting.get(path) for setting in settings}) > 1]
    growth = {setting["agent.policy.growth"] for setting in settings if "agent.policy.growth" in setting}
    return paths + ["agent.policy.growth"] * (len(growth) > 1)


def _cell(method: str, runs: Mapping[int, FinishedRun]) -> Cell:
    run = next(iter(runs.values()))
    agent = run.config["agent"]
    policy = agent.get("policy")
    fixed = isinstance(policy, Mapping) and "name" not in policy and "wait" in policy
    replay = bool(policy.get("replay")) if isinstance(policy, Mapping) else False
    wait = policy["wait"] if fixed and isinstance(policy, Mapping) else None
    lots = dict(policy) if isinstance(policy, Mapping) else policy
    if isinstance(lots, dict):
        lots.pop("seed", None)  # the lots of a random schedule
    words = schedule({"agent": {"policy": lots}}) if lots else "at every tick"
    when = f"w = {wait}" if wait is not None else words.removesuffix(", replay")
    return Cell(method, agent.get("id", "agent"), agent.get("width"), wait, when, replay, runs)


def _order(cell: Cell) -> tuple[Any, ...]:
    place = list(NAMES).index(cell.agent) if cell.agent in NAMES else len(NAMES)
    wait = (cell.wait is None, cell.wait or 0, cell.when)
    return place, cell.method, cell.width or 0, wait, cell.replay


def headline(stream: str, cells: Sequence[Cell]) -> str:
    """A stream, and what all cells have in common: method, width, schedule and replay."""
    methods, widths = {cell.method for cell in cells}, {cell.width for cell in cells}
    parts = [stream]
    if len(methods) == 1:
        parts.append(sized(cells[0]) if len(widths) == 1 else cells[0].method)
    elif len(widths) == 1 and cells[0].width is not None:
        parts.append(f"width {cells[0].width}")
    if len({cell.when for cell in cells}) == 1:
        parts.append(cells[0].when)
    return ", ".join([*parts, *["replay"] * all(cell.replay for cell in cells)])


def within(cells: Sequence[Cell], *, width: bool = True, when: bool = True) -> list[str]:
    """What each cell is called beside the others: all that they do not have in common, or else the method.

    Args:
        cells: that are drawn or listed together.
        width: whether the widths are to be told.
        when: whether the schedules are to be told.
    """
    several = {of: len({getattr(cell, of) for cell in cells}) > 1 for of in ("method", "width", "when", "replay")}
    out = []
    for cell in cells:
        parts = []
        if several["method"]:
            parts.append(sized(cell) if width and several["width"] else cell.method)
        elif width and several["width"] and cell.width is not None:
            parts.append(f"width {cell.width}")
        parts += [cell.when] * (when and several["when"]) + ["replay"] * (several["replay"] and cell.replay)
        out.append(", ".join(parts) or ("no replay" if several["replay"] else cell.method))
    return out


def seeds_in_words(cells: Iterable[Cell], what: str = "bars") -> str:
    """What the bars or bands of a figure are, for its caption."""
    numbers = sorted({len(cell.runs) for cell in cells})
    if numbers[-1] == 1:
        return "one seed each: no intervals"
    several = [number for number in numbers if number > 1]
    seeds = f"{several[0]} seeds" if len(several) == 1 else f"{several[0]} to {several[-1]} seeds"
    return f"{what}: 95 % interval over {seeds}" + ("; none where there is one seed" if numbers[0] == 1 else "")
