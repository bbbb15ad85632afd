"""The way of each learner through the stream: its error after each quarter against its costs.

This is figure 5 of the ALMA paper, also for images. The costs are the training FLOPs so far, the parameters, and the
experts of the predictor. If a method and width was run with several waiting times, the figure shows the one with the
lowest CER, for text the lowest average perplexity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D

from agents.analysis.schedules.best_waits import best_waits
from agents.analysis.seed_groups import SeedGroup, headline, seeds_caption
from agents.analysis.trajectories import quarters
from agents.figures import style
from agents.figures.files import Drawing

COSTS = {
    "training_flops": "training FLOPs so far, as the paper counts",
    "parameters": "parameters of the predictor",
    "experts": "experts per layer, all members together",
}
FEW = 6  # numbers of experts that have a tick each


def draw(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Draw one panel per cost, with one line per method, policy and width through its quarters of the stream.

    Raises:
        ValueError: no learner has trained before the end of its stream.
    """
    shown = [one.best for one in best_waits(groups, several=False)] + [group for group in groups if group.wait is None]
    error = groups[0].measure.name
    rows: list[dict[str, Any]] = []
    for group in shown:
        setting = {"method": group.method, "width": group.width, "when": group.when, "replay": group.replay}
        setting = {"name": _line_name(group, shown), **setting}
        for quarter in quarters(group):
            costs = {cost: getattr(quarter, cost) for cost in COSTS}
            measured = {error: quarter.error.mean, f"{error}_half": quarter.error.half, "seeds": quarter.error.n}
            rows.append({**setting, "tick": quarter.tick, **costs, **measured})
    if not rows:
        raise ValueError(f"trajectories of {len(groups)} settings on {title}: no run has a training; train a learner")
    figure = style.blank(11.4, 4.2)
    grid = figure.subplots(1, len(COSTS), sharey=True)
    strokes = style.strokes(row["name"] for row in rows)
    several = len({row["replay"] for row in rows}) > 1
    widths = sorted({row["width"] for row in rows}, key=lambda width: width or 0)
    sizes = {width: 3.0 + 1.3 * place if len(widths) > 1 else 4.5 for place, width in enumerate(widths)}
    lines: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["name"], row["width"], row["when"], row["replay"]), []).append(row)
    for axes, (cost, label) in zip(grid, COSTS.items(), strict=True):
        style.plain(axes)
        for (name, width, _, replay), line in lines.items():
            known = [row for row in line if row[cost] is not None]
            axes.errorbar(
                [row[cost] for row in known],
                [row[error] for row in known],
                [row[f"{error}_half"] or 0.0 for row in known],
                **style.by_replay(strokes[name], replay if several else None),
                markersize=sizes[width],
                linewidth=1.1,
                elinewidth=0.6,
                alpha=0.9,
            )
        values = {row[cost] for row in rows if row[cost] is not None}
        style.log_axis(axes.xaxis, values, letters=True)
        if cost == "experts" and len(values) <= FEW:
            style.places_axis(axes, values)
        axes.set_xlabel(label)
    style.log_axis(grid[0].yaxis, [row[error] for row in rows])
    grid[0].set_ylabel(f"test {error}")
    style.title(figure, headline(title, shown))
    handles = style.handles(strokes, markers=True, lines=not several) | (style.replay_handles() if several else {})
    if len(widths) > 1:
        dot: dict[str, Any] = {"color": style.GREY, "linestyle": "", "marker": "o"}
        handles |= {
            f"width {style.width_text(width)}": Line2D([], [], **dot, markersize=size) for width, size in sizes.items()
        }
    ticks = ", ".join(map(str, sorted({row["tick"] for row in rows})))
    best = "; of several w the best one" * (len(shown) < len(groups))
    caption = f"points: after mega-batches {ticks}{best}; {seeds_caption(shown)}"
    style.legend(figure, handles, caption)
    return Drawing(figure, rows)


def _line_name(group: SeedGroup, shown: Sequence[SeedGroup]) -> str:
    """Return the method of a line, with its policy if lines of the method differ in this."""
    policies = {None if one.wait is not None else one.when for one in shown if one.method == group.method}
    return f"{group.method}, {group.when}" if group.wait is None and len(policies) > 1 else group.method
