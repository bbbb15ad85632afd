"""CER against what it costs, over widths and waiting times (figure 2 of the ALMA paper)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.cells import Cell
from agents.figures.costs import draw_costs
from agents.figures.drawing import Drawing


def draw(cells: Sequence[Cell], title: str) -> Drawing:
    """CER against FLOPs in training, and against parameters: the mean over the ticks, Mem / (B + 1)."""
    return draw_costs(
        cells,
        title,
        ("CER", lambda score: score.cer),
        {
            "training_flops": ("FLOPs in training", lambda score: float(score.comp_by_phase.get("training", 0))),
            "parameters": ("parameters, mean over ticks", lambda score: score.mem / (score.ticks + 1)),
        },
    )
