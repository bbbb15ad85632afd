"""The plans: for each figure and table of the paper its sweep at each scale, what it draws, what it can judge.

A plan is a TOML file of this package:

    title = "…"
    paper = "figure 2"
    findings = ["cifar-a"]            # that its runs can decide about
    compares = ["tree"]               # hyper-parameters in which the runs that are compared differ

    by = ["width", "when"]            # what the lines that its table compares have in common
    [[draw]]                          # a figure: a kind of `alma plot`, with its options
    kind = "tradeoff"

    [cpu]                             # one table for each scale
    says = "…"                        # in what it differs from the paper, and why
    needs = ["train"]                 # keywords that --set must give
    [cpu.sweep]                       # what `alma sweep` reads
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from agents.experiments import grid
from agents.experiments.spec import RunSpec

SCALES = ("smoke", "cpu", "gpu")
NAMES = ("fig2", "fig3", "fig4", "fig7", "fig8", "tab1", "tab2", "ablation")


@dataclass(frozen=True)
class Scale:
    """How much of a plan is run.

    Attributes:
        says: in what it differs from the paper, and why.
        sweep: the grid, as `agents.experiments.grid` reads it.
        needs: settings that the user must give, since no default could be right.
    """

    says: str
    sweep: Mapping[str, Any]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """A figure of a plan: a kind of `alma plot`, and its options."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """A figure or table of the paper.

    Attributes:
        name: as `alma reproduce` has it.
        title: what it shows.
        paper: where it stands there.
        findings: ids of those that its runs can decide about.
        compares: hyper-parameters in which the runs that are compared differ.
        by: what the lines that its table compares have in common, as ``alma table --by`` has it.
        draws: its figures.
        text: whether it is a table of perplexities by tick.
        scales: by name.
    """

    name: str
    title: str
    paper: str
    findings: tuple[str, ...]
    compares: tuple[str, ...]
    by: tuple[str, ...]
    draws: tuple[Drawn, ...]
    text: bool
    scales: Mapping[str, Scale]

    def specs(
        self, scale: str, seeds: Sequence[int] | None = None, settings: Mapping[str, Any] | None = None
    ) -> list[RunSpec]:
        """The runs of a scale.

        Args:
            scale: smoke, cpu or gpu.
            seeds: in place of the plan's.
            settings: hyper-parameters and keywords of the environment, beside the plan's or in their place.

        Raises:
            ValueError: a setting is one in which the plan's runs differ, or it leaves none of them.
        """
        given = dict(settings or {})
        for name in self.compares:
            if name in given:
                raise ValueError(
                    f"--set {name}={given[name]}: {self.name} compares runs that differ in it; leave it out, or make a "
                    "grid of your own with `alma sweep`"
                )
        runs = grid.expand({**self.scales[scale].sweep, **({} if seeds is None else {"seeds": list(seeds)})})
        return [dataclasses.replace(spec, settings={**spec.settings, **given}) for spec in runs]


def read(name: str) -> Plan:
    """A plan by its name.

    Raises:
        ValueError: there is none.
    """
    if name not in NAMES:
        raise ValueError(f"{name}: there is no such plan; choose one of {', '.join(NAMES)}")
    table = tomllib.loads((files(__package__) / "plans" / f"{name}.toml").read_text(encoding="utf-8"))
    scales = {
        scale: Scale(table[scale]["says"], table[scale]["sweep"], tuple(table[scale].get("needs", ())))
        for scale in SCALES
    }
    draws = [Drawn(draw["kind"], {k: v for k, v in draw.items() if k != "kind"}) for draw in table.get("draw", ())]
    return Plan(
        name,
        table["title"],
        table["paper"],
        tuple(table["findings"]),
        tuple(table.get("compares", ())),
        ("env", *table.get("by", ())),
        tuple(draws),
        table.get("text", False),
        scales,
    )
