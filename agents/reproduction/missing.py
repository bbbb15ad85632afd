"""The runs that are missing for a finding: settings that were requested at no scale, or not run yet."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, resolve
from agents.reproduction.claims.findings import JudgedFinding, family
from agents.reproduction.claims.setups import read_setup
from agents.reproduction.plans import NAMES, Request, read, that_decide

_PAPER = "gpu"  # the scale of the paper


def missing_runs(judged: JudgedFinding, request: Request) -> list[RunSpec]:
    """Return the runs of all settings of a finding that have no run, each once.

    The runs of a setting are those of the finding's plans at the scale of the request; if these plans leave the setting
    out, those of another plan; and if no plan has the setting at this scale, those at the scale of the paper. A setting
    in no plan, as Firefly on the digits, has no runs.
    """
    runs = [spec for values in judged.missing for spec in _runs_of(values, judged.finding.id, request.scale)]
    return request.applied_to(runs)


def _runs_of(values: Mapping[str, Any], finding: str, scale: str) -> list[RunSpec]:
    """Return the runs of one setting of a finding."""
    own = that_decide(finding)
    at_paper_scale = _at_paper_scale(values, finding, scale)
    for one, setting in ((scale, values), (_PAPER, at_paper_scale)):
        env = read_setup(family(finding), one).env
        for names in (own, NAMES):
            runs = [run for name in names for run in _runs(name, one, env)]
            found = [spec for spec, config in runs if _has(config, setting)]
            if found:
                return found
    return []


def _at_paper_scale(values: Mapping[str, Any], finding: str, scale: str) -> Mapping[str, Any]:
    """Return a setting with the paper's number of updates, if the setting has a number of updates."""
    if "updates" not in values:
        return values
    here, paper = (read_setup(family(finding), one).updates for one in (scale, _PAPER))
    return {**values, "updates": values["updates"] // here * paper}


def _has(config: RunConfig, values: Mapping[str, Any]) -> bool:
    return all(config.get(name, None) == value for name, value in values.items())


@cache
def _runs(plan: str, scale: str, env: str) -> list[tuple[RunSpec, RunConfig]]:
    """Return the runs of a plan on one environment, with their configurations."""
    specs = [spec for spec in read(plan).specs(scale) if spec.env == env]
    return [(spec, resolve(spec, spec.known_facts())) for spec in specs]
