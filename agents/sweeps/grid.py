"""A grid of runs as data: lists are gone through, some combinations left out.

    env = "Digits-ALMA-v0"
    agent = ["sm", "ens"]
    wait = [5, 20]              # left out, as width: the recipe's
    seeds = [0, 1]

    [set]                       # hyper-parameters of the agent, keywords of the environment
    epochs = [5, 10]            # gone through, too; one value that is a tuple is text: "(2, 2, 4)"

    [[leave_out]]               # runs to which all of this applies
    agent = "ens"
    wait = 20

Each ``[[grid]]``, where there are any, is the rest of the table with some of it replaced.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import alma_env
from agents import catalogue
from agents.checks import check_types
from agents.experiments.spec import RunSpec
from agents.methods import METHODS, method_for
from agents.recipes import Recipe, recipe_for
from agents.words import literal
from alma_env.data import TEXT
from alma_env.registration import PROTOCOLS, TEXT_ID

_TYPES: dict[str, Any] = {
    "env": str,
    "agent": str,
    "width": int,
    "wait": int,
    "policy": str,
    "replay": bool,
    "seeds": int,
    "engine": str,
    "device": str,
    "threads": int,
    "record": bool,
}
_EXAMPLES = {"env": "Digits-ALMA-v0", "agent": "sm", "width": 32, "wait": 5, "policy": "doubling", "threads": 1}
_EXAMPLES |= {"replay": True, "seeds": 0, "record": True}
_TABLES = ("set", "grid", "leave_out")
_TICKS = 4  # of a text


def read(file: Path) -> list[RunSpec]:
    """The runs of a TOML file.

    Raises:
        ValueError: it is not there or not TOML, or describes no grid; the file is named.
    """
    try:
        return expand(tomllib.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file; give one that describes a grid, or options such as --env") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


def expand(table: Mapping[str, Any]) -> list[RunSpec]:
    """The runs of a grid, in the order of its lists.

    Args:
        table: as the module says; keys are env, agent, width, wait, policy, replay, seeds, engine, device, threads,
            record, and the tables set, grid, leave_out.

    Raises:
        ValueError: a key is unknown, a value has the wrong type or stands there twice, there is no such agent or
            environment, two grids have a run in common, a ``leave_out`` applies to no run, or nothing is left.

    >>> [str(run) for run in expand({"env": "Digits-ALMA-v0", "width": [4, 8], "wait": 5})]
    ['Digits-ALMA-v0: sm 4, wait 5, seed 0', 'Digits-ALMA-v0: sm 8, wait 5, seed 0']
    """
    _require_known(table, "", (*_TYPES, *_TABLES))
    _require_settings(table, "")
    base = {key: value for key, value in table.items() if key not in ("grid", "leave_out")}
    parts = _tables_of(table, "grid", (*_TYPES, "set"))
    rules = [_rule(rule) for rule in _tables_of(table, "leave_out", (*_TYPES, "set"))]
    found: dict[str, RunSpec] = {}
    applied: set[int] = set()
    for grid in [_replaced(base, part) for part in parts] or [base]:
        for spec in _runs_of(grid):
            applying = [number for number, rule in enumerate(rules) if _applies(rule, spec)]
            applied.update(applying)
            if applying:
                continue
            if spec.digest() in found:
                raise ValueError(f"{spec}: stands there twice, but a run counts once; leave it out of one [[grid]]")
            found[spec.digest()] = spec
    for number, rule in enumerate(rules):
        if number not in applied:
            words = ", ".join(f"{key} = {' '.join(map(str, values))}" for key, values in rule.items())
            raise ValueError(f"leave_out: {words}: applies to no run; correct it, or take it out")
    if not found:
        raise ValueError("no run is left: every one is left out by a [[leave_out]]; narrow these")
    return list(found.values())


def _runs_of(grid: Mapping[str, Any]) -> Iterator[RunSpec]:
    if "env" not in grid:
        raise ValueError(f"env: missing; name an environment, one of {', '.join((*PROTOCOLS, TEXT_ID))}")
    values = {key: _several(key, grid[key]) for key in grid if key != "set"}
    if values.get("policy") and ("wait" in values or any(values.get("replay", []))):
        raise ValueError(
            "policy beside wait or replay: a policy says when to train, and on what; give each a [[grid]] of its own, "
            'with replay as policy = "doubling:replay=true"'
        )
    agents = values.get("agent", ["sm"])
    others = {key: values[key] for key in ("engine", "device", "threads", "record") if key in values}
    for env, agent, settings in itertools.product(values["env"], agents, _settings_of(grid.get("set", {}))):
        recipe, ticks = _recipe_and_ticks(env, settings)
        method_for(agent, recipe.backbone)
        widths = values.get("width", [recipe.width])
        # Its one way to train takes part once beside other agents; alone, it says that there is no choice.
        if METHODS[agent].always and not (len(agents) == 1 and ("wait" in values or "policy" in values)):
            when: list[dict[str, Any]] = [{}]
        elif values.get("policy"):
            when = [{"policy": policy} for policy in values["policy"]]
        else:
            waits = values.get("wait") or [wait for wait in recipe.waits if wait <= ticks] or [1]
            replays = values.get("replay", [False])
            when = [{"wait": wait, "replay": replay} for wait, replay in itertools.product(waits, replays)]
        for width, how, seed in itertools.product(widths, when, values.get("seeds", [0])):
            for other in itertools.product(*others.values()):
                chosen = dict(zip(others, other, strict=True))
                yield RunSpec(env, agent, width, seed=seed, settings=settings, **how, **chosen)


def _recipe_and_ticks(env: str, settings: Mapping[str, Any]) -> tuple[Recipe, int]:
    """Without making the environment where it is one of the paper's, since data may have to be loaded for that."""
    if env in PROTOCOLS:
        data, ticks = PROTOCOLS[env]["data"], PROTOCOLS[env]["ticks"]
    elif env == TEXT_ID:
        data, ticks = TEXT, _TICKS
    else:
        made = alma_env.make(env, **catalogue.split_keywords(env, settings)[0])
        data, ticks = made.data.name, made.ticks
    given = settings.get("ticks", ticks)
    return recipe_for(data), given if isinstance(given, int) else ticks  # the environment says what is wrong with it


def _settings_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the lists in ``[set]``."""
    for key in table:
        if key in _TYPES or key == "seed":
            raise ValueError(f"set.{key}: {key} has a place of its own; write it outside of [set]")
    lists = [[_plain(value) for value in _several(f"set.{key}", value)] for key, value in table.items()]
    return [dict(zip(table, values, strict=True)) for values in itertools.product(*lists)]


def _plain(value: Any) -> Any:
    """A tuple in the guise of text, which TOML does not have otherwise, is one."""
    return literal(value) if isinstance(value, str) and value.startswith("(") else value


def _several(key: str, value: Any) -> list[Any]:
    """What a key goes through, each of its type and each once."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError(f"{key} = []: nothing to go through; leave {key} out, or give a value")
    values = [check_types({key: one}, _TYPES, _EXAMPLES)[key] for one in values]
    require_distinct(f"{key} =", values)
    return values


def require_distinct(where: str, values: Sequence[Any]) -> None:
    """See that each value stands there once.

    Raises:
        ValueError: one does not; `where` is named.
    """
    for value in values:
        # True and 1 are equal to Python, but not to a hyper-parameter.
        if [(type(other), other) for other in values].count((type(value), value)) > 1:
            words = " ".join(map(str, values))
            raise ValueError(
                f"{where} {words}: {value} stands there twice, but a run counts once; give each value once"
            )


def _replaced(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """The rest of the table with one ``[[grid]]``. Waiting times and policies stand for each other."""
    dropped = {"wait", "replay"} if "policy" in part else {"policy"} if "wait" in part else set()
    rest = {key: value for key, value in base.items() if key not in dropped}
    return {**rest, **part, "set": {**base.get("set", {}), **part.get("set", {})}}


def _rule(table: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A ``[[leave_out]]`` as attribute of a run, or ``set.NAME``, to the values that it applies to."""
    names = {"seeds": "seed"}
    of_run = {names.get(key, key): _several(key, value) for key, value in table.items() if key != "set"}
    of_set = {f"set.{key}": [_plain(one) for one in _several(key, v)] for key, v in table.get("set", {}).items()}
    if not of_run and not of_set:
        raise ValueError("leave_out: an empty one applies to every run; say to which")
    return {**of_run, **of_set}


def _applies(rule: Mapping[str, Sequence[Any]], spec: RunSpec) -> bool:
    values = {**spec.as_dict(), **{f"set.{key}": value for key, value in spec.settings.items()}}
    return all(key in values and values[key] in accepted for key, accepted in rule.items())


def _tables_of(table: Mapping[str, Any], name: str, known: Sequence[str]) -> list[Mapping[str, Any]]:
    tables = table.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
        raise ValueError(f"{name}: must be tables, each headed by [[{name}]]")
    for one in tables:
        _require_known(one, f"{name}.", known)
        _require_settings(one, f"{name}.")
    return tables


def _require_settings(table: Mapping[str, Any], prefix: str) -> None:
    if not isinstance(table.get("set", {}), Mapping):
        raise ValueError(f"{prefix}set={table['set']!r}: must be a table, [{prefix}set], of hyper-parameters")


def _require_known(table: Mapping[str, Any], prefix: str, known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            hint = "write seeds" if key == "seed" else f"hyper-parameters stand in [{prefix}set]"
            raise ValueError(f"{prefix}{key}: unknown; the keys are {', '.join(known)}; {hint}")
