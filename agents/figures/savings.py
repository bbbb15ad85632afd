"""What training FLOPs buy: CER against training FLOPs at the best waiting time, and the CER that a doubling saves.

On the left, a line joins the widths of a method, each at its best waiting time. On the right is the CER that a doubling
of the training FLOPs saves, from one width to the next: see `agents.analysis.savings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from agents.analysis.markdown import signed, table
from agents.analysis.measures import engineering
from agents.analysis.savings import Savings, Step, savings, training_flops
from agents.analysis.seed_groups import SeedGroup, headline, seeds_caption
from agents.figures import style
from agents.figures.files import Drawing


def draw(groups: Sequence[SeedGroup], title: str) -> Drawing:
    """Draw the CER of each method against its training FLOPs, and the CER that a doubling of the FLOPs saves.

    Raises:
        ValueError: no run with a fixed waiting time spent training FLOPs.
    """
    found = savings(groups)
    if not found:
        raise ValueError(
            f"savings of {len(groups)} settings on {title}: none has a fixed waiting time and training FLOPs; run a "
            "learner that trains, for example --agent sm --width 4 16 --wait 10"
        )
    heading = groups[0].measure.heading
    points = [group for one in found for group in one.points]
    strokes = style.strokes(one.method for one in found)
    figure = style.blank(10.4, 4.4)
    left, right = figure.subplots(1, 2)
    _curves(left, found, strokes, heading)
    _steps(right, found, strokes, heading)
    style.title(figure, headline(title, points))
    handles = style.handles(strokes, markers=True, lines=not _several(found))
    handles |= style.replay_handles() if _several(found) else {}
    style.legend(figure, handles, f"each width at its best w; {seeds_caption(points)}")
    return Drawing(figure, [row for one in found for row in _rows(one)], (), _table(found, heading))


def _curves(axes: Axes, found: Sequence[Savings], strokes: Mapping[str, style.Stroke], heading: str) -> None:
    style.plain(axes)
    totals, several = [], _several(found)
    for one in found:
        own = [group.interval(group.measure.sum) for group in one.points]
        axes.errorbar(
            [training_flops(group) for group in one.points],
            [total.mean for total in own],
            [total.half or 0.0 for total in own],
            **style.by_replay(strokes[one.method], one.replay if several else None),
            markersize=5,
            linewidth=1.3,
            elinewidth=0.8,
            capsize=2,
        )
        totals += [total.mean for total in own]
    style.log_axis(axes.xaxis, [training_flops(group) for one in found for group in one.points], letters=True)
    style.log_axis(axes.yaxis, totals)
    axes.set(xlabel="training FLOPs, as the paper counts", ylabel=heading)


def _several(found: Sequence[Savings]) -> bool:
    """Return whether there are runs with replay and without."""
    return len({one.replay for one in found}) > 1


def _steps(axes: Axes, found: Sequence[Savings], strokes: Mapping[str, style.Stroke], heading: str) -> None:
    style.plain(axes)
    known = [(step.flops, step.saved) for one in found for step in one.steps if step.saved is not None]
    for one in found:
        own = [(step.flops, step.saved) for step in one.steps if step.saved is not None]
        if own:
            axes.errorbar(
                [flops for flops, _ in own],
                [saved.mean for _, saved in own],
                [saved.half or 0.0 for _, saved in own],
                **style.by_replay(strokes[one.method], one.replay if _several(found) else None),
                markersize=5,
                linewidth=1.0,
                elinewidth=0.8,
                capsize=2,
            )
    axes.axhline(0, color=style.GREY, linewidth=0.8)
    if known:
        style.log_axis(axes.xaxis, [flops for flops, _ in known], letters=True)
        means = [saved.mean for _, saved in known]
        lowest = min(saved.mean - (saved.half or 0.0) for _, saved in known)
        if lowest > 0:
            style.log_axis(axes.yaxis, means)
        else:  # a logarithm would hide that a saving may be 0
            axes.set_yscale("symlog", linthresh=1, linscale=0.5)
            axes.set_ylim(max(lowest, -max(map(abs, means))) - 1, 3 * max(1.0, *means))
            axes.yaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="training FLOPs between two widths", ylabel=f"{heading} saved per doubling of the FLOPs")


def _rows(one: Savings) -> list[dict[str, Any]]:
    """Return a row for each point, with the saving of the step that leads to it and the slope of the method."""
    into = {step.end: step.saved for step in one.steps}
    rows = []
    for group in one.points:
        total, step = group.interval(group.measure.sum), into.get(group.width or 0)
        column = group.measure.heading.lower().replace(" ", "_")
        row: dict[str, Any] = {"method": one.method, "replay": one.replay, "width": group.width, "wait": group.wait}
        row |= {"training_flops": training_flops(group), column: total.mean, f"{column}_half": total.half}
        row["seeds"] = total.n
        beyond = next((step.saved for step in one.from_single if step.end == (group.width or 0)), None)
        slopes = {"from_single": beyond, "step": step, "saved": one.saved, "part_saved": one.part_saved}
        for name, one_slope in slopes.items():
            for field in ("mean", "half", "n"):
                row[f"{name}_{field}"] = None if one_slope is None else getattr(one_slope, field)
        rows.append(row)
    return rows


def _steps_text(steps: Sequence[Step]) -> str:
    """Return the savings of steps: ``4→8: 51.00 ± 20.27``, or ``64: 2.42`` within a width."""
    texts = []
    for step in steps:
        if step.saved is not None:
            widths = str(step.end) if step.start == step.end else f"{step.start}→{step.end}"
            texts.append(f"{widths}: {signed(step.saved.text('.2f'))}")
    return "; ".join(texts) or "–"


def _widths(points: Sequence[SeedGroup]) -> str:
    """Return the widths of a method, by their best waiting time: ``w = 10: 4, 8; w = 1: 64``."""
    by_wait: dict[int, list[str]] = {}
    for group in points:
        by_wait.setdefault(group.wait or 0, []).append(style.width_text(group.width))
    return "; ".join(f"w = {wait}: {', '.join(widths)}" for wait, widths in by_wait.items())


def _table(found: Sequence[Savings], heading: str) -> str:
    """Return a Markdown table with a line for each method."""
    rows = []
    for one in found:
        first, last = one.points[0], one.points[-1]
        ends = "" if len(one.points) == 1 else f" to {engineering(training_flops(last))}"
        part = "–"
        if one.part_saved is not None:
            half = "" if one.part_saved.half is None else f" ± {100 * one.part_saved.half:.1f}"
            part = signed(f"{100 * one.part_saved.mean:.1f}{half} %")
        rows.append(
            (
                one.method + ", replay" * one.replay,
                _widths(one.points),
                engineering(training_flops(first)) + ends,
                "–" if one.saved is None else signed(one.saved.text(".2f")),
                part,
                _steps_text(one.steps),
                _steps_text(one.from_single),
                "–" if one.saved is None else str(one.saved.n),
            )
        )
    headings = (
        "method", "best w: widths", "training FLOPs", f"{heading} saved per doubling", "part saved per doubling",
        "from width to width", "from SM of the same width", "seeds",
    )  # fmt: skip
    caption = (
        f"A line fitted to {heading} (and to its logarithm) against log2 of the training FLOPs, seed by seed: mean ± "
        "95 % interval over seeds. FLOPs as the paper counts them. All steps are per doubling; SM is without replay."
    )
    return f"{table(headings, rows, right=(2, 3, 4, 7))}\n{caption}\n"
