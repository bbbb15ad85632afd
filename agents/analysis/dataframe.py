"""Finished runs as a pandas DataFrame, a line for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents import finished
from agents.finished import FinishedRun
from agents.report import schedule

if TYPE_CHECKING:
    import pandas


def load_runs(*paths: str | Path) -> pandas.DataFrame:
    """The finished runs in or below folders, and in packed files, each configuration once.

    Args:
        paths: folders of runs, or files that ``alma pack`` wrote.

    Returns:
        A DataFrame with a line for each run: ``env``, ``agent``, ``width``, ``wait`` (missing where a policy decides),
        ``when`` (the schedule in words), ``replay``, ``seed``; all of its `alma_env.Score`, with FLOPs by phase as
        ``comp_<phase>``; the number of its ``trainings``; every other value of the configuration that is not the same
        in all runs, by its name, or by its dotted path where the name is taken; and its ``folder``.

    Raises:
        ImportError: pandas is not installed.
        ValueError: there is no run in one of the paths, or one cannot be read.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("load_runs makes a pandas DataFrame: pip install 'alma-env[pandas]'") from error
    runs, _ = finished.find(*paths)
    usual = [_usual(run) for run in runs]
    settings = differing([run.config for run in runs], {name for line in usual for name in line})
    return pandas.DataFrame.from_records([{**line, **own} for line, own in zip(usual, settings, strict=True)])


def _usual(run: FinishedRun) -> dict[str, Any]:
    agent, score = run.config["agent"], run.score
    policy = agent.get("policy")
    fixed = isinstance(policy, Mapping) and "name" not in policy
    return {
        "env": run.config["env"],
        "agent": agent.get("id"),
        "width": agent.get("width"),
        "wait": policy["wait"] if fixed and isinstance(policy, Mapping) else None,
        "when": schedule(run.config),
        "replay": policy.get("replay") if isinstance(policy, Mapping) else None,
        "seed": run.seed,
        "ticks": score.ticks,
        "cer": score.cer,
        "cer_from_1": score.cer_from_1,
        "mean_error": score.mean_error,
        "mean_error_from_1": score.mean_error_from_1,
        "final_error": score.final_error,
        "mem": score.mem,
        "comp": score.comp,
        **{f"comp_{phase}": flops for phase, flops in sorted(score.comp_by_phase.items())},
        "paper_flops": score.paper_flops,
        "declared": score.declared,
        "seconds": score.seconds,
        "truncated": score.truncated,
        "trainings": len(run.stages),
        "folder": str(run.folder),
    }


_SHOWN = {"env", "seed", "agent.seed", "agent.id", "agent.width", "protocol.ticks"} | {
    f"agent.policy.{name}" for name in ("wait", "replay")
}


def differing(configs: list[dict[str, Any]], taken: Set[str]) -> list[dict[str, Any]]:
    """Of each configuration what is not the same in all of them, but seeds and what `load_runs` says anyway.

    What has a name that is taken is called by its dotted path.
    """
    flat = [dict(_leaves(config)) for config in configs]
    paths = sorted({path for one in flat for path in one} - _SHOWN)
    # As text, since lists are not hashable.
    paths = [path for path in paths if len({json.dumps(one.get(path)) for one in flat}) > 1]
    bare = [path.rpartition(".")[2] for path in paths]
    taken = {*taken, "data", "name"}
    names = [
        name if bare.count(name) == 1 and name not in taken else path for path, name in zip(paths, bare, strict=True)
    ]
    return [{name: one.get(path) for name, path in zip(names, paths, strict=True)} for one in flat]


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
