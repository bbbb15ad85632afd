"""What a command says of its runs while they go on: error so far, FLOPs and time left; and where their picture is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agents import figures
from agents.report import ERROR_RATE, Measure, engineering
from alma_env import Ledger

if TYPE_CHECKING:
    from types import TracebackType

    from agents.anytime import AnytimeAgent
    from alma_env import Row


class RunProgress:
    """One bar per run; it advances with the training examples, so that the time left is honest for any wait."""

    def __init__(self, console: Console, measure: Measure = ERROR_RATE) -> None:
        self._console = console
        self._measure = measure
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("tick {task.fields[tick]}/{task.fields[ticks]}"),
            TextColumn(
                f"{measure.name} {{task.fields[error]:.3f}}  {measure.heading} {{task.fields[sum]:.2f}}  "
                "{task.fields[comp]}FLOPs"
            ),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._drawn = 0.0
        self._advanced = 0  # training examples of the running agent so far
        self._agent: AnytimeAgent | None = None
        self._description = ""

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, description: str, agent: AnytimeAgent, examples: Callable[..., int]) -> Callable[[Row], None]:
        """A new bar; what it returns is told every tick's row.

        Args:
            description: name of the run.
            agent: the agent that runs.
            examples: training examples that the run processes up to a tick, ``examples(until=tick)``.
        """
        measure = self._measure
        self._agent = agent
        self._description = description
        ledger = Ledger()
        task = self._progress.add_task(
            description,
            total=None,  # known when the stream is; making that of a text may take a while
            tick=0,
            ticks=agent.ticks,
            error=math.nan,
            sum=math.nan,
            comp="",
        )
        self._task = task

        def on_tick(row: Row) -> None:
            ledger.append(row)
            self._advanced = examples(until=row.tick)
            self._progress.update(
                task,
                total=max(examples(until=agent.ticks), 1),
                completed=self._advanced,
                tick=row.tick,
                error=row.error,
                sum=measure.sum(ledger.score()),
                comp=engineering(ledger.comp) + " ",
            )

        return on_tick

    def on_epoch(self, epoch: int) -> None:
        """Told after every epoch of the running agent; an epoch may take less time than moving the bar."""
        if self._agent is None:
            return
        self._advanced += self._agent.training_on
        if time.monotonic() - self._drawn > 0.1:
            self._progress.update(self._task, completed=self._advanced)
            self._drawn = time.monotonic()

    def end(self, ledger: Ledger) -> None:
        """The run is over."""
        if not self._console.is_terminal:  # no live bar there
            line = f"{self._description}: {summary(ledger, self._measure)}"
            self._console.print(line, markup=False, highlight=False)


def say(console: Console, message: str) -> None:
    """Print a message as it stands: nothing in it is markup, and no line is broken."""
    console.print(message, markup=False, emoji=False, highlight=False, soft_wrap=True)


def draw_curves(
    console: Console, groups: Mapping[str, Sequence[Ledger]], folder: Path, title: str, measure: Measure
) -> None:
    """Draw the errors of labelled runs into a folder, and say where."""
    (picture,) = figures.save(figures.error_curves(groups, title, measure), folder / measure.plural)
    say(console, f"{measure.name.capitalize()} curves: {picture.resolve()}")


def summary(ledger: Ledger, measure: Measure) -> str:
    """What came out of a run, in one line."""
    score = ledger.score()
    return (
        f"{measure.heading} {measure.sum(score):.2f}, final {measure.name} {score.final_error:.4f}, "
        f"Comp {engineering(score.comp)} FLOPs, {score.seconds:.1f} s"
    )
