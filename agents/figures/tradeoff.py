"""CER against what it costs, over widths and waiting times (figure 2 of the ALMA paper)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.cells import Cell
from agents.figures.costs import draw_costs
from agents.figures.drawing import Drawing


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """CER against training FLOPs, and against parameters: the mean over the ticks, Mem / (B + 1).

    FLOPs are the paper's: 6 per forward multiply-add of a training example, and what growing took; validation is not
    among them.
    """
    return draw_costs(
        cells,
        title,
        ("CER", lambda score: score.cer),
        {
            "training_flops": ("training FLOPs, as the paper counts", lambda score: float(score.paper_flops)),
            "parameters": ("parameters, mean over ticks", lambda score: score.mem / (score.ticks + 1)),
        },
    )
