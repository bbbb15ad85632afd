"""The plans of a reproduction: for each figure and table of the paper its sweep at each scale, and its findings.

A plan is a TOML file of this package:

    title = "…"
    paper = "figure 2"
    findings = ["cifar-a"]            # findings that its runs can decide
    varies = ["tree"]                 # hyper-parameters in which the compared runs differ
    by = ["width", "when"]            # values that the compared lines of its table share, as for `alma table --by`
    figures = ["tradeoff"]            # kinds of `alma plot`

    [sweep]                           # the grid of all scales, as `alma sweep` reads it

    [cpu]                             # one table for each scale
    description = "…"                 # the differences from the paper
    needs = ["train"]                 # keywords that --set must give, because no default is right
    [cpu.sweep]                       # keys of the grid that are added or replaced at this scale

A plan whose runs are a part of another plan's names that plan, and the runs. Other keys are added, or replace those of
the other plan:

    part_of = "fig7"

    [[sweep.only]]                    # a selection of runs, as in a grid
    agent = ["sm", "ens"]

The runs of a plan are computed in the order of its grids, and plans in the order of `NAMES`, so that the most useful
runs come first.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from agents.catalogue.spec import RunSpec, distinct
from agents.sweeps import grid

SCALES = ("smoke", "cpu", "gpu")
# Plans whose data are large or rarely at hand: they are run by name, and `all` leaves them out.
BY_NAME = ("emnist", "cifar100")
NAMES = (
    *("fig7", "fig7-fashion", "fig2", "fig8", "ablation", "fig4", "fig1", "fig3", "fig3-mnist", "tab1", "tab2", "fig5"),
    *BY_NAME,
)


@dataclass(frozen=True)
class Request:
    """What a reproduction asks of plans: their runs at a scale, with other seeds and settings if these are given."""

    scale: str
    seeds: Sequence[int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> str:
        """The options of `alma reproduce`."""
        return " ".join([f"--scale {self.scale}", *self.changes])

    @property
    def changes(self) -> list[str]:
        """The options that replace the seeds and settings of the plans."""
        seeds = f"--seeds {' '.join(map(str, self.seeds))}" if self.seeds else ""
        pairs = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return list(filter(None, [seeds, pairs and f"--set {pairs}"]))

    def applied_to(self, specs: Sequence[RunSpec]) -> list[RunSpec]:
        """Return runs of a plan with the given seeds and settings, each once."""
        changed = [
            dataclasses.replace(spec, seed=seed, settings={**spec.settings, **self.settings})
            for spec in specs
            for seed in ([spec.seed] if self.seeds is None else self.seeds)
        ]
        return distinct(changed)


@dataclass(frozen=True)
class Scale:
    """One scale of a plan: the values of its TOML table, with the complete grid."""

    description: str
    sweep: Mapping[str, Any]
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The plan of one figure or table; its fields are the values of its TOML file."""

    name: str  # in `alma reproduce`
    title: str
    paper: str
    findings: tuple[str, ...]
    varies: tuple[str, ...]
    by: tuple[str, ...]
    figures: tuple[str, ...]
    text: bool  # whether its table is a table of perplexities by tick
    scales: Mapping[str, Scale]

    def specs(
        self, scale: str, seeds: Sequence[int] | None = None, settings: Mapping[str, Any] | None = None
    ) -> list[RunSpec]:
        """Return the runs of a scale.

        Seeds replace the seeds of the plan. Settings, which are hyper-parameters and keywords of the environment, are
        added to the plan or replace its values.

        Raises:
            ValueError: the compared runs differ in one of the settings.
        """
        given = dict(settings or {})
        for name in self.varies:
            if name in given:
                raise ValueError(
                    f"--set {name}={given[name]}: {self.name} compares runs that differ in {name}; leave it out, or "
                    "run your own grid with `alma sweep`"
                )
        table = dict(self.scales[scale].sweep)
        if seeds is not None:
            table["seeds"] = list(seeds)
            parts = table.get("grid", [])
            table["grid"] = [{key: value for key, value in part.items() if key != "seeds"} for part in parts]
        runs = grid.expand(table)
        return [dataclasses.replace(spec, settings={**spec.settings, **given}) for spec in runs]


@cache
def read(name: str) -> Plan:
    """Read a plan by its name.

    Raises:
        ValueError: there is no such plan.
    """
    if name not in NAMES:
        raise ValueError(f"plan={name!r}: there is no such plan; choose one of {', '.join(NAMES)}")
    table = _table(name)
    parts = {scale: table[scale] for scale in SCALES}
    return Plan(
        name,
        table["title"],
        table["paper"],
        findings=tuple(table["findings"]),
        varies=tuple(table.get("varies", ())),
        by=("env", *table.get("by", ())),
        figures=tuple(table["figures"]),
        text=table.get("text", False),
        scales={
            scale: Scale(part["description"], {**table["sweep"], **part.get("sweep", {})}, tuple(part.get("needs", ())))
            for scale, part in parts.items()
        },
    )


def _table(name: str) -> dict[str, Any]:
    table = tomllib.loads((files(__package__) / "plans" / f"{name}.toml").read_text(encoding="utf-8"))
    whole = _table(table["part_of"]) if "part_of" in table else {}
    joined = {key: {**whole.get(key, {}), **table.get(key, {})} for key in ("sweep", *SCALES)}
    return {**whole, **table, **joined}


def that_decide(finding: str) -> list[str]:
    """Return the names of the plans whose runs can decide a finding, in the order of `NAMES`."""
    return [name for name in NAMES if finding in read(name).findings]
