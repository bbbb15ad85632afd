"""Figures of finished runs: those of the ALMA paper, and more.

Each kind of figure is a function that `KINDS` names; `style` holds what all figures share. Drawing a figure imports
Matplotlib.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.analysis.measures import ERROR_RATE, PERPLEXITY, Measure, measure_of
from agents.analysis.seed_groups import SeedGroup, find_seed_groups, streams
from agents.figures.files import FORMATS, Drawing, save
from agents.runs.load import FinishedRun
from alma_env import Ledger

__all__ = ["FORMATS", "KINDS", "Drawing", "Kind", "draw", "draw_error_curves", "save"]


@dataclass(frozen=True)
class Kind:
    """A kind of figure: the function that draws it, the measures that it can show, and its options."""

    function: str  # as module.function of this package
    measures: tuple[Measure, ...] = (ERROR_RATE,)
    options: tuple[str, ...] = ()
    several_streams: bool = False  # whether one figure shows all streams
    has_table: bool = False  # whether the drawing has a table, see `Drawing`


_BOTH = (ERROR_RATE, PERPLEXITY)

KINDS: dict[str, Kind] = {
    "errors": Kind("error_curves.draw", _BOTH, ("panels",)),
    "tradeoff": Kind("costs.draw_tradeoff"),
    "replay": Kind("replay.draw"),
    "perplexity": Kind("costs.draw_perplexity", (PERPLEXITY,)),
    "trajectories": Kind("trajectories.draw", _BOTH),
    "radar": Kind("radar.draw", _BOTH),
    "gating": Kind("gating.draw", options=("layer",)),
    "pareto": Kind("pareto.draw", options=("flops_price", "parameter_price")),
    "regret": Kind("regret.draw", _BOTH),
    "best-wait": Kind("best_wait.draw"),
    "best-wait-by-width": Kind("best_wait_by_width.draw", several_streams=True, has_table=True),
    "savings": Kind("savings.draw", has_table=True),
    "equal-flops": Kind("equal_flops.draw", has_table=True),
}


def draw(kind: str, runs: Sequence[FinishedRun], **options: Any) -> Drawing:
    """Draw finished runs of one stream; some kinds draw several streams.

    Args:
        kind: one of `KINDS`.
        runs: finished runs, as `agents.runs.load.find` returns them.
        options: ``panels`` of the kind ``errors``; ``flops_price`` and ``parameter_price`` of ``pareto``; ``layer`` of
            ``gating``.

    Raises:
        ValueError: the kind is unknown, there is no run, the runs are on several streams, or the kind cannot show them.
        TypeError: the kind has no such option.
    """
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r}: unknown; the kinds of figures are {', '.join(KINDS)}")
    found, by_stream = KINDS[kind], streams(runs)
    if not runs:
        raise ValueError(f"{kind} of 0 runs: there is nothing to draw; finish a run first")
    if len(by_stream) > 1 and not found.several_streams:
        raise ValueError(
            f"{kind} of runs on {len(by_stream)} streams ({'; '.join(by_stream)}): a figure shows one stream; "
            "draw one stream at a time, as `alma plot` does"
        )
    for name in options:
        if name not in found.options:
            raise TypeError(
                f"{name}={options[name]!r}: {kind} has no such option; its options are {list(found.options) or 'none'}"
            )
    groups: dict[str, list[SeedGroup]] = {}
    notes: list[str] = []
    for title, own in by_stream.items():
        require_measure(kind, title, own[0])
        groups[title], duplicates = find_seed_groups(own)
        notes += duplicates
    module, _, name = found.function.partition(".")
    function = getattr(importlib.import_module(f"agents.figures.{module}"), name)
    ((title, of_one),) = list(groups.items())[:1]
    drawing: Drawing = function(groups) if found.several_streams else function(of_one, title, **options)
    return replace(drawing, notes=(*notes, *drawing.notes))


def draw_error_curves(groups: Mapping[str, Sequence[Ledger]], title: str, measure: Measure = ERROR_RATE) -> Drawing:
    """Draw the error at every tick in one panel, one curve with its band per label, as ``alma run`` does.

    ``groups`` maps each label to the ledgers of its seeds; the streams of two labels may differ in length.
    """
    from agents.figures.error_curves import of_groups

    return of_groups(groups, title, measure)


def require_measure(kind: str, stream: str, run: FinishedRun) -> None:
    """Raise ValueError if a kind cannot show the measure of a stream."""
    measure = measure_of(run.run_config.protocol)
    if measure not in KINDS[kind].measures:
        others = ", ".join(name for name, other in KINDS.items() if measure in other.measures)
        raise ValueError(f"{kind} of {stream}: {kind} cannot show {measure.heading}; draw one of {others}")
