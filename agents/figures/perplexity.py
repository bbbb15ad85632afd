"""Average perplexity of text against what it costs (figure 5 of the ALMA paper)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.cells import Cell
from agents.figures.costs import draw_costs
from agents.figures.drawing import Drawing
from agents.report import PERPLEXITY


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """Average perplexity over ticks 1..B against parameters (mean over the ticks), training FLOPs, and seconds.

    FLOPs are the paper's, as in `agents.figures.tradeoff`. The seconds are those of the machines that ran.
    """
    return draw_costs(
        cells,
        title,
        (PERPLEXITY.heading, PERPLEXITY.sum),
        {
            "parameters": ("parameters, mean over ticks", lambda score: score.mem / (score.ticks + 1)),
            "training_flops": ("training FLOPs, as the paper counts", lambda score: float(score.paper_flops)),
            "seconds": ("seconds, evaluation included", lambda score: score.seconds),
        },
    )
