"""Finished runs as a pandas DataFrame, one row per run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.catalogue.run_config import leaves
from agents.runs import load
from agents.runs.load import FinishedRun
from alma_env.errors import how_to_install

if TYPE_CHECKING:
    import pandas


def load_runs(*paths: str | Path) -> pandas.DataFrame:
    """Read the finished runs in or below folders and in packed files, one for each configuration.

    Args:
        paths: folders of runs, or packed files.

    A warning names each run that is left out because it is unfinished, read before, or impossible to read.

    Returns:
        A DataFrame with a row for each run and the columns ``env``, ``agent``, ``width``, ``wait`` (missing for another
        policy than a fixed waiting time), ``when`` (the policy as text), ``replay``, ``seed``; the fields of
        `alma_env.Score` except regret, with FLOPs by phase as ``comp_<phase>``; ``trainings`` (their number);
        ``folder``; and every other value of the configuration that is not equal in all runs, under its name, or under
        its dotted path if another column has this name.

    Raises:
        ImportError: pandas is not installed.
        ValueError: there is no path, a path holds no run, or no run can be read.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"load_runs needs the package pandas: {how_to_install('pandas')}") from error
    if not paths:
        raise ValueError("load_runs() without a path: give folders of runs or files of `alma pack`, such as 'runs'")
    runs, left_out = load.find(*paths)
    if left_out:
        warnings.warn(f"{len(left_out)} runs are left out: {'; '.join(left_out)}", stacklevel=2)
    standard = [standard_columns(run) for run in runs]
    others = _differing_values([run.config for run in runs], {name for row in standard for name in row})
    return pandas.DataFrame.from_records([{**row, **other} for row, other in zip(standard, others, strict=True)])


def standard_columns(run: FinishedRun) -> dict[str, Any]:
    """Return the columns of a run that do not depend on other runs, by name, see `load_runs`."""
    config, score = run.run_config, dict(vars(run.score))
    del score["regret"]
    phases = sorted(score.pop("comp_by_phase").items())
    return {
        "env": config.env,
        "agent": config.agent.record.get("id"),
        "width": config.agent.width,
        "wait": config.agent.wait,
        "when": config.agent.policy_text,
        "replay": config.agent.replay,
        "seed": run.seed,
        **score,
        **{f"comp_{phase}": flops for phase, flops in phases},
        "trainings": len(run.stages),
        "folder": str(run.folder),
    }


# Values of the configuration that are standard columns or seeds.
_STANDARD_PATHS = {"env", "seed", "agent.seed", "agent.id", "agent.width", "protocol.ticks"}
_STANDARD_PATHS |= {"agent.policy.wait", "agent.policy.replay"}


def _differing_values(configs: list[dict[str, Any]], taken: Set[str]) -> list[dict[str, Any]]:
    """Return, for each configuration, the other values that are not equal in all configurations.

    The key of a value is its name, or its dotted path if the name is not unique or is in `taken`.
    """
    values = [dict(leaves(config)) for config in configs]
    paths = sorted({path for one in values for path in one} - _STANDARD_PATHS)
    # As text, because lists are not hashable.
    paths = [path for path in paths if len({json.dumps(one.get(path)) for one in values}) > 1]
    names = [path.rpartition(".")[2] for path in paths]
    taken = {*taken, "data", "name"}
    keys = [path if names.count(name) > 1 or name in taken else name for path, name in zip(paths, names, strict=True)]
    return [{key: one.get(path) for key, path in zip(keys, paths, strict=True)} for one in values]
