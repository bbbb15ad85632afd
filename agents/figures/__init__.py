"""The paper's figures from finished runs, and some that it lacks.

A kind of figure is one file here; what all have in common is in `look`. Matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.cells import cells_of, streams
from agents.figures.drawing import FORMATS, Drawing, save
from agents.finished import FinishedRun
from agents.report import ERROR_RATE, PERPLEXITY, Measure, measure_of
from alma_env import Ledger

__all__ = ["FORMATS", "KINDS", "Drawing", "Kind", "draw", "error_curves", "save"]


@dataclass(frozen=True)
class Kind:
    """A kind of figure.

    Attributes:
        module: where it is drawn.
        shows: what, for the help.
        measures: the errors that it is for.
        options: the options that it takes.
    """

    module: str
    shows: str
    measures: tuple[Measure, ...] = (ERROR_RATE,)
    options: tuple[str, ...] = ()


_BOTH = (ERROR_RATE, PERPLEXITY)

KINDS: dict[str, Kind] = {
    "errors": Kind("errors", "the error over time (figures 1, 3, 7 of the paper)", _BOTH, ("panels",)),
    "tradeoff": Kind("tradeoff", "CER against training FLOPs and against parameters (figure 2)"),
    "replay": Kind("replay", "CER and Comp with replay and without (figures 4, 8)"),
    "perplexity": Kind("perplexity", "of text: average perplexity against parameters, FLOPs, time (5)", (PERPLEXITY,)),
    "radar": Kind("radar", "all measures of each method side by side (first version of the paper)", _BOTH),
    "gating": Kind("gating", "the gates of a mixture over a map of the digits (first version)", options=("layer",)),
    "pareto": Kind(
        "pareto",
        "CER against Comp with the Pareto front, and against price",
        options=("flops_price", "parameter_price"),
    ),
    "regret": Kind("regret", "the error above the oracle's, or the best in hindsight, tick by tick", _BOTH),
    "best-wait": Kind("best_wait", "the best waiting time, by width and horizon"),
}


def draw(kind: str, runs: Sequence[FinishedRun], **options: Any) -> Drawing:
    """Draw finished runs of one stream.

    Args:
        kind: one of `KINDS`.
        runs: finished runs, as `agents.finished.find` gives them.
        options: those of the kind: ``panels`` of ``errors``; ``flops_price`` and ``parameter_price`` of ``pareto``;
            ``layer`` of ``gating``.

    Raises:
        ValueError: there is no such kind, no run, or runs that the kind cannot show.
        TypeError: the kind has no such option.
    """
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r}: unknown; the kinds of figures are {', '.join(KINDS)}")
    found, of = KINDS[kind], streams(runs)
    if not runs:
        raise ValueError(f"{kind} of 0 runs: there is nothing to draw; let a run end first")
    if len(of) > 1:
        raise ValueError(
            f"{kind} of runs on {len(of)} streams ({'; '.join(of)}): a figure is of one stream; "
            "draw them one by one, as `alma plot` does"
        )
    for name in options:
        if name not in found.options:
            raise TypeError(
                f"{name}={options[name]!r}: {kind} has no such option; it has {list(found.options) or 'none'}"
            )
    ((title, _),) = of.items()
    require_measure(kind, title, runs[0])
    cells, notes = cells_of(runs)
    module = importlib.import_module(f"agents.figures.{found.module}")
    drawing: Drawing = module.draw(cells, title, **options)
    return Drawing(drawing.figure, drawing.rows, (*notes, *drawing.notes))


def error_curves(groups: Mapping[str, Sequence[Ledger]], title: str, measure: Measure = ERROR_RATE) -> Drawing:
    """The error at every tick in one panel, a curve with its band for each label: what ``alma run`` draws.

    Args:
        groups: label → the ledgers of its seeds; the lengths of their streams may differ from label to label.
        title: headline.
        measure: what the errors are.
    """
    from agents.figures import errors

    return errors.of_groups(groups, title, measure)


def require_measure(kind: str, stream: str, run: FinishedRun) -> None:
    """Raise ValueError where a kind is not for the errors of a stream."""
    measure = measure_of(run.config["protocol"])
    if measure not in KINDS[kind].measures:
        others = ", ".join(name for name, other in KINDS.items() if measure in other.measures)
        raise ValueError(f"{kind} of {stream}: a stream whose measure is the {measure.heading}; draw one of {others}")
