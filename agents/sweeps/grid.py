"""A grid of runs as data: every combination of the values in its lists, or a part of these combinations.

    env = "Digits-ALMA-v0"
    agent = ["sm", "ens"]
    wait = [5, 20]              # default: the recipe's; also for width
    seeds = [0, 1]

    [set]                       # hyper-parameters of the agent, keywords of the environment
    epochs = [5, 10]            # a list gives several runs; write a tuple as text: "(2, 2, 4)"

    [[leave_out]]               # leaves out the runs with all of these values
    agent = "ens"
    wait = 20

    [[only]]                    # keeps only the runs with all of these values; of several tables, one must apply
    wait = [5, 20]

A ``[[grid]]`` replaces values of the rest of the table. With several of them, each gives its own runs.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.catalogue.data_facts import facts_for, split_keywords
from agents.catalogue.methods import METHODS, method_for
from agents.catalogue.own_code import is_own
from agents.catalogue.spec import EXAMPLES, RunSpec
from agents.policies.validation import check_types, literal
from alma_env.errors import did_you_mean
from alma_env.registration import NAMESPACE, PROTOCOLS, TEXT_ID

_EXAMPLES = {"seeds" if key == "seed" else key: example for key, example in EXAMPLES.items()}
_TYPES = {key: type(example) for key, example in _EXAMPLES.items()}
_SELECTIONS = ("only", "leave_out")


def read(file: Path) -> list[RunSpec]:
    """Read the runs of a TOML file.

    Raises:
        ValueError: the file is missing, not TOML, or not a grid. The message names the file.
    """
    try:
        return expand(tomllib.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(f"{file}: no such file; give a TOML file with a grid, or options such as --env") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


def expand(table: Mapping[str, Any]) -> list[RunSpec]:
    """Return the runs of a grid, in the order of its lists.

    Args:
        table: a grid as in the docstring of this module. Its keys are env, agent, width, wait, policy, replay, seeds,
            engine, device, threads, record, and the tables set, grid, only, leave_out.

    Raises:
        ValueError: a key, an agent or an environment is unknown; a value has the wrong type or occurs twice; a seed is
            negative; two grids share a run; an ``only`` or ``leave_out`` applies to no run; or no run is left.

    >>> [str(run) for run in expand({"env": "Digits-ALMA-v0", "width": [4, 8], "wait": 5})]
    ['Digits-ALMA-v0: sm 4, wait 5, seed 0', 'Digits-ALMA-v0: sm 8, wait 5, seed 0']
    """
    _require_keys(table, "", (*_TYPES, "set", "grid", *_SELECTIONS))
    base = {key: value for key, value in table.items() if key not in ("grid", *_SELECTIONS)}
    parts = _tables_of(table, "grid")
    grids = [_merge(base, part) for part in parts] or [base]
    runs = [spec for one in grids for spec in _runs_of(one)]
    only, left_out = [_applying(runs, name, _tables_of(table, name)) for name in _SELECTIONS]
    found: dict[str, RunSpec] = {}
    for number, spec in enumerate(runs):
        if number in left_out or (table.get("only") and number not in only):
            continue
        if spec.digest() in found:
            raise ValueError(f"{spec}: occurs twice, but each run counts once; leave it out of one [[grid]]")
        found[spec.digest()] = spec
    if not found:
        raise ValueError("no run is left: [[leave_out]] applies to all of them; make it narrower")
    return list(found.values())


def _runs_of(grid: Mapping[str, Any]) -> Iterator[RunSpec]:
    if "env" not in grid:
        raise ValueError(f"env: missing; give an environment, one of {', '.join((*PROTOCOLS, TEXT_ID))}")
    values = {key: _values(key, grid[key]) for key in grid if key != "set"}
    if values.get("policy") and ("wait" in values or any(values.get("replay", []))):
        raise ValueError(
            "policy with wait or replay: a policy decides when to train and on what; use one [[grid]] for each, and "
            'replay as policy = "doubling:replay=true"'
        )
    agents = values.get("agent", ["sm"])
    others: dict[str, list[Any]] = {
        key: values[key] for key in ("engine", "device", "threads", "record") if key in values
    }
    for env, agent, settings in itertools.product(values["env"], agents, _settings_of(grid.get("set", {}))):
        if is_own(agent):
            yield from _runs_of_own_code(env, agent, settings, values, others)
            continue
        facts = facts_for(env, split_keywords(env, settings)[0])
        recipe = facts.recipe
        method_for(agent, recipe.backbone)
        widths = values.get("width", [recipe.width])
        # An agent that trains at every tick has one run among other agents; alone, a waiting time is an error.
        if METHODS[agent].always and not (len(agents) == 1 and ("wait" in values or "policy" in values)):
            when: list[dict[str, Any]] = [{}]
        elif values.get("policy"):
            when = [{"policy": policy} for policy in values["policy"]]
        else:
            waits = values.get("wait") or [wait for wait in recipe.waits if wait <= facts.ticks] or [1]
            replays = values.get("replay", [False])
            when = [{"wait": wait, "replay": replay} for wait, replay in itertools.product(waits, replays)]
        for width, how, seed in itertools.product(widths, when, values.get("seeds", [0])):
            for other in itertools.product(*others.values()):
                chosen = dict(zip(others, other, strict=True))
                yield RunSpec(env, agent, width, seed=seed, settings=settings, **how, **chosen)


def _runs_of_own_code(
    env: str, agent: str, settings: Mapping[str, Any], values: Mapping[str, list[Any]], others: Mapping[str, list[Any]]
) -> Iterator[RunSpec]:
    """Yield the runs of an agent of the user, for which a recipe gives no width and no waiting time."""
    when = {key: values[key] for key in ("width", "wait", "policy", "replay") if values.get(key)}
    for chosen in itertools.product(*when.values()):
        for seed in values.get("seeds", [0]):
            for other in itertools.product(*others.values()):
                options = {**dict(zip(when, chosen, strict=True)), **dict(zip(others, other, strict=True))}
                yield RunSpec(env, agent, seed=seed, settings=settings, **options)


def _settings_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the lists in ``[set]``."""
    for key in table:
        if key in _TYPES or key == "seed":
            raise ValueError(f"set.{key}: {key} is not a hyper-parameter; write it outside of [set]")
    lists = [[_tuple_or_plain(value) for value in _values(f"set.{key}", value)] for key, value in table.items()]
    return [dict(zip(table, values, strict=True)) for values in itertools.product(*lists)]


def _tuple_or_plain(value: Any) -> Any:
    """Read a tuple that is written as text, because TOML has no tuples; return other values unchanged."""
    return literal(value) if isinstance(value, str) and value.startswith("(") else value


def _values(key: str, value: Any) -> list[Any]:
    """Return the values of a key, after checking that their type is right and that each occurs once."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError(f"{key} = []: an empty list; leave {key} out, or give a value")
    values = [check_types({key: one}, _TYPES, _EXAMPLES)[key] for one in values]
    if key == "env":
        values = [env.removeprefix(NAMESPACE) for env in values]
    if key == "seeds" and min(values) < 0:
        raise ValueError(f"seed={min(values)}: must be 0 or more; use seed=0")
    require_distinct(f"{key} =", values)
    return values


def require_distinct(where: str, values: Sequence[Any]) -> None:
    """Raise ValueError if a value occurs twice; the message starts with `where`."""
    for value in values:
        # True and 1 are equal in Python, but they are different hyper-parameters; 1 and 1.0 are the same one.
        if [(isinstance(other, bool), other) for other in values].count((isinstance(value, bool), value)) > 1:
            text = " ".join(map(str, values))
            raise ValueError(f"{where} {text}: {value} occurs twice, but each run counts once; give each value once")


def _merge(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the values of one ``[[grid]]``; its policy replaces a waiting time, and the reverse."""
    replaced = {"wait", "replay"} if "policy" in part else {"policy"} if "wait" in part else set()
    rest = {key: value for key, value in base.items() if key not in replaced}
    return {**rest, **part, "set": {**base.get("set", {}), **part.get("set", {})}}


def _applying(runs: Sequence[RunSpec], name: str, tables: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the indices of the runs to which one of the ``[[only]]`` or ``[[leave_out]]`` tables applies."""
    found: set[int] = set()
    for table in tables:
        rule = _rule(name, table)
        applying = {number for number, spec in enumerate(runs) if _applies(rule, spec)}
        if not applying:
            values = ", ".join(f"{key} = {' '.join(map(str, accepted))}" for key, accepted in rule.items())
            raise ValueError(f"{name}: {values}: applies to no run; correct it, or remove it")
        found |= applying
    return found


def _rule(name: str, table: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return a table as a mapping from an attribute of a run, or ``set.NAME``, to accepted values."""
    rule = {"seed" if key == "seeds" else key: _values(key, value) for key, value in table.items() if key != "set"}
    for key, value in table.get("set", {}).items():
        rule[f"set.{key}"] = [_tuple_or_plain(one) for one in _values(key, value)]
    if not rule:
        raise ValueError(f"{name}: an empty table applies to every run; give values of runs")
    return rule


def _applies(rule: Mapping[str, Sequence[Any]], spec: RunSpec) -> bool:
    values = {**spec.as_dict(), **{f"set.{key}": value for key, value in spec.settings.items()}}
    return all(key in values and values[key] in accepted for key, accepted in rule.items())


def _tables_of(table: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    tables = table.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(one, Mapping) for one in tables):
        raise ValueError(f"{name}: must be tables, each with the header [[{name}]]")
    for one in tables:
        _require_keys(one, f"{name}.", (*_TYPES, "set"))
    return tables


def _require_keys(table: Mapping[str, Any], prefix: str, known: Sequence[str]) -> None:
    """Raise ValueError if a key is unknown or ``set`` is not a table."""
    for key in table:
        if key not in known:
            hint = "write seeds" if key == "seed" else f"write hyper-parameters in [{prefix}set]"
            raise ValueError(
                f"{prefix}{key}: unknown; the keys are {', '.join(known)}; {hint}{did_you_mean(key, known)}"
            )
    if not isinstance(table.get("set", {}), Mapping):
        raise ValueError(f"{prefix}set={table['set']!r}: must be a table [{prefix}set] of hyper-parameters")
