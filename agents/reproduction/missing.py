"""The cost of runs that are missing for a finding: settings that were requested at no scale, or not run yet."""

from __future__ import annotations

from functools import cache

from agents.catalogue.run_config import RunConfig
from agents.catalogue.spec import RunSpec, resolve
from agents.reproduction.claims.findings import JudgedFinding
from agents.reproduction.cost import Cost, cost_of
from agents.reproduction.plans import NAMES, read


def missing_cost(judged: JudgedFinding, scale: str) -> Cost:
    """Return the cost of the runs of all settings of a finding that have no run.

    The runs are those of the finding's plans at this scale, and at the scale of the paper. If no plan has a setting, as
    for networks that a small scale replaces by others, the cost is that of the first plan at the scale of the paper.
    """
    if not judged.missing:
        return Cost()
    wanted = [spec for spec, config in _runs_for(judged.finding.id, scale) if _is_missing(config, judged)]
    if not wanted:
        first = next(name for name in NAMES if judged.finding.id in read(name).findings)
        wanted = read(first).specs("gpu")
    return cost_of(wanted)


def _is_missing(config: RunConfig, judged: JudgedFinding) -> bool:
    return any(all(config.get(name, None) == value for name, value in values.items()) for values in judged.missing)


@cache
def _runs_for(finding: str, scale: str) -> list[tuple[RunSpec, RunConfig]]:
    """Return the runs that can decide a finding, each once, with their configurations."""
    scales = (scale, "gpu") if scale == "cpu" else (scale,)
    plans = [read(name) for name in NAMES if finding in read(name).findings]
    specs = {spec.digest(): spec for one in scales for plan in plans for spec in plan.specs(one)}
    return [(spec, resolve(spec, spec.known_facts())) for spec in specs.values()]
