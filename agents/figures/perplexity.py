"""Average perplexity of text against what it costs (figure 5 of the ALMA paper)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.cells import Cell
from agents.figures.costs import draw_costs
from agents.figures.drawing import Drawing
from agents.report import PERPLEXITY


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """Average perplexity over ticks 1..B against parameters (mean over the ticks), FLOPs in training, and seconds.

    The seconds are those of the machines that ran.
    """
    return draw_costs(
        cells,
        title,
        (PERPLEXITY.heading, PERPLEXITY.sum),
        {
            "parameters": ("parameters, mean over ticks", lambda score: score.mem / (score.ticks + 1)),
            "training_flops": ("FLOPs in training", lambda score: float(score.comp_by_phase.get("training", 0))),
            "seconds": ("seconds, evaluation included", lambda score: score.seconds),
        },
    )
