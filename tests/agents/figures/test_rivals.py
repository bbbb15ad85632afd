"""The picture of rivals at each price has a panel for each learner."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from agents.analysis.schedules.priced_comparison import Rivalry
from agents.analysis.statistics import Interval
from agents.figures import rivals

LONG = "FashionMNIST, gmoe 32 of run "


@pytest.mark.parametrize(
    ("name", "learners", "rows", "columns"),
    [("Digits, sm ", 1, 1, 1), ("Digits, sm ", 6, 1, 6), (LONG, 7, 2, 4), ("Digits, sm ", 18, 3, 6)],
)
def test_many_learners_take_several_rows_and_a_long_name_two_lines(
    name, learners, rows, columns, tmp_path, monkeypatch
):
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **more: drawn.append(self) or save(self, *args, **more))
    cost, less = Interval(10.0, 1.0, 5), Interval(-5.0, 1.0, 5)
    rest = {
        "p": 0.01,
        "worst": 12.0,
        "rival_worst": 20.0,
        "passes": 1.0,
        "rival_passes": 1.0,
        "size": 1.0,
        "rival_size": 1.0,
    }
    rivalries = [
        Rivalry(f"{name}{width}", price, 0.0, "doubling", "doubling", cost, Interval(15.0, 1.0, 5), less, **rest)
        for width in range(1, learners + 1)
        for price in (0.0, 10.0)
    ]
    assert rivals.draw(rivalries, tmp_path / "rivals.png").stat().st_size > 0
    (figure,) = drawn
    grid = figure.axes[0].get_gridspec()
    assert (len(figure.axes), grid.nrows, grid.ncols) == (learners, rows, columns)
    for number, axes in enumerate(figure.axes, 1):
        assert axes.get_title(loc="left") == f"{name}{number}".replace(", ", "\n" if name == LONG else ", ")
        (points,) = axes.containers
        assert points.lines[0].get_ydata() == pytest.approx([1.5, 1.5])  # the rival's cost in costs of the subject
