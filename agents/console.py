"""Live progress of runs: error so far, FLOPs and time left."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agents.report import engineering

if TYPE_CHECKING:
    from types import TracebackType

    from torch import Tensor

    from agents.anytime import AnytimeAgent
    from alma_env import AlmaEnv, Ledger, Row


class RunProgress:
    """One bar per run; it advances with the training examples processed, so that the time left is honest for any wait."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("tick {task.fields[tick]}/{task.fields[ticks]}"),
            TextColumn("error {task.fields[error]:.3f}  CER {task.fields[cer]:.2f}  {task.fields[comp]}FLOPs"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._agent: AnytimeAgent | None = None
        self._description = ""

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(
        self, description: str, agent: AnytimeAgent, examples: Callable[..., int]
    ) -> Callable[[Row], None]:
        """A new bar; what it returns is told every tick's row.

        Args:
            description: name of the run.
            agent: the agent that runs.
            examples: training examples that the run processes up to a tick, ``examples(until=tick)``.
        """
        self._agent = agent
        self._description = description
        cer, comp = 0.0, 0
        task = self._progress.add_task(
            description, total=max(examples(until=agent.ticks), 1), tick=0, ticks=agent.ticks, error=1.0, cer=0.0, comp=""
        )
        self._task = task

        def on_tick(row: Row) -> None:
            nonlocal cer, comp
            cer += row.error
            comp += row.comp
            self._progress.update(
                task,
                completed=examples(until=row.tick),
                tick=row.tick,
                error=row.error,
                cer=cer,
                comp=engineering(comp) + " ",
            )

        return on_tick

    def on_epoch(self, epoch: int, loss: Tensor) -> None:
        """Told after every epoch of the running agent; does not look at the loss, which may still be on its way."""
        if self._agent is not None:
            self._progress.advance(self._task, self._agent.training_on)

    def end(self, ledger: Ledger) -> None:
        """The run is over."""
        self._progress.update(self._task, completed=self._progress.tasks[self._task].total)
        if not self._console.is_terminal:  # no live bar there
            score = ledger.score()
            self._console.print(
                f"{self._description}: CER {score.cer:.2f}, final error {score.final_error:.4f}, "
                f"Comp {engineering(score.comp)} FLOPs, {score.seconds:.1f} s",
                highlight=False,
            )
