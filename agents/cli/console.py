"""Output of commands: tables that are never cut; of runs, a progress bar for each and a picture of the errors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from agents import figures
from agents.analysis.measures import Measure, engineering
from agents.sweeps.progress import say
from alma_env import Ledger

if TYPE_CHECKING:
    from agents.learners.anytime import AnytimeAgent
    from alma_env import Row


def number_text(number: float, form: str = ".3f") -> str:
    """Return a number in a format, and a dash for NaN: what the runs do not determine."""
    return "–" if math.isnan(number) else f"{number:{form}}"


def print_uncut(console: Console, table: Table) -> None:
    """Print a table with columns that hold their longest words: a narrow terminal breaks lines, and cuts no number."""
    wide = console.options.update(width=1_000)
    for column in table.columns:
        longest = max(Measurement.get(console, wide, text).minimum for text in (column.header, *column.cells))
        column.min_width = max(column.min_width or 0, longest)
    console.print(table, crop=False)


class RunProgress(Progress):
    """One bar per run. It advances with the training examples, so its time left is right for every waiting time."""

    def __init__(self, console: Console, measure: Measure) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("tick {task.fields[tick]}/{task.fields[ticks]}"),
            TextColumn("{task.fields[scores]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._measure = measure

    def begin(self, description: str, agent: AnytimeAgent, examples: Callable[..., int]) -> Callable[[Row], None]:
        """Add the bar of a run; call the result with the row of each tick.

        ``examples(until=tick)`` returns the training examples of the run up to a tick.
        """
        self._agent, self._description, self._examples = agent, description, examples
        self._ledger = Ledger()
        self._advanced = 0  # training examples of the agent so far
        self._drawn = 0.0  # when the bar was drawn last
        self._task = self.add_task(
            description,
            total=None,  # known after the stream is built, which may take a while for text
            tick=0,
            ticks=agent.ticks,
            scores="",
        )
        return self._on_tick

    def _on_tick(self, row: Row) -> None:
        self._ledger.append(row)
        if not self.disable:
            self._advanced = self._examples(until=row.tick)
            self._draw(force=row.tick == self._agent.ticks)

    def on_epoch(self, epoch: int) -> None:
        """Advance the bar after an epoch of the running agent."""
        self._advanced += self._agent.training_on
        self._draw()

    def _draw(self, *, force: bool = False) -> None:
        """Draw the bar, at most ten times per second: the sums take longer with every row."""
        if self.disable or not (force or time.monotonic() - self._drawn > 0.1):
            return
        self._drawn, last, measure = time.monotonic(), self._ledger[-1], self._measure
        self.update(
            self._task,
            total=max(self._examples(until=self._agent.ticks), 1),
            completed=self._advanced,
            tick=last.tick,
            scores=f"{measure.name} {last.error:.3f}  {measure.heading} {measure.sum(self._ledger.score()):.2f}  "
            f"{engineering(self._ledger.comp)} FLOPs",
        )

    def end(self, ledger: Ledger) -> None:
        """Print a line for a finished run where no bar is shown."""
        if self.disable:
            say(self.console, f"{self._description}: {self._measure.summary(ledger.score())}")


def draw_curves(
    console: Console, groups: Mapping[str, Sequence[Ledger]], folder: Path, title: str, measure: Measure
) -> None:
    """Draw the errors of labelled runs into a folder, and print the name of the picture, or why there is none."""
    try:
        (picture,) = figures.save(figures.draw_error_curves(groups, title, measure), folder / measure.plural)
    except OSError as error:  # such as a read-only folder; the table is printed all the same
        say(console, f"No picture of the errors: {error}")
        return
    say(console, f"{measure.name.capitalize()} curves: {picture}")
