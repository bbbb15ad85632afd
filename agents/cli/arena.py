"""``alma arena``: a tournament of agents and its standings."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import alma_env
from agents import figures
from agents.analysis import measures
from agents.arena import tournament
from agents.arena.contestants import read_contestants, read_keywords
from agents.arena.tournament import Place
from agents.catalogue.data_facts import split_keywords
from agents.catalogue.recipes import recipe_for
from agents.cli.options.shared_options import require_settings
from agents.sweeps import process_setup
from agents.sweeps.progress import say
from alma_env import Ledger
from alma_env.arena.arena import Arena


def play(options: argparse.Namespace, console: Console) -> int:
    """Play a tournament, print its standings, and write them with the ledgers and a picture."""
    if options.seats is not None and options.shared_budget is None:
        raise ValueError(
            f"--seats {options.seats} without --shared-budget: agents bid FLOPs of a shared budget for seats; give "
            "--shared-budget"
        )
    protocol, common = _split(options.env, options.set)
    contestants = read_contestants(options.agents, common)
    for seed in options.seeds:
        if options.seeds.count(seed) > 1:
            raise ValueError(f"--seeds: {seed} is given twice; give each seed once")
    env = alma_env.make(options.env, **protocol)
    process_setup.prepare(options.threads, recipe_for(env.data.name).backbone)
    arena = Arena(
        env,
        [contestant.name for contestant in contestants],
        flops_budget=options.flops_budget,
        shared_flops_budget=options.shared_budget,
        seats=1 if options.seats is None else options.seats,
    )
    config = tournament.describe(arena, env, contestants, options.seeds)
    folder = tournament.begin(options.out / options.env, config)
    measure = measures.measure_of(env.protocol())
    groups: dict[str, list[Ledger]] = {contestant.name: [] for contestant in contestants}
    with _Bars(console, measure) as bars:
        for seed in options.seeds:
            ledgers = tournament.play_or_read(arena, env, contestants, seed, folder, bars.begin(seed, env.ticks))
            bars.end(seed, ledgers)
            for name, ledger in ledgers.items():
                groups[name].append(ledger)
    places = tournament.standings(groups, measure)
    console.print(_table(places, options.env, env.ticks, options.seeds, measure))
    file = tournament.write_standings(folder, config, places, groups)
    curves = figures.draw_error_curves(groups, f"{options.env}: {measure.name} at every tick", measure)
    (picture,) = figures.save(curves, folder / measure.plural)
    say(console, f"Standings, with the full configuration: {file}")
    say(console, f"Curves: {picture}")
    return 0


def _table(places: Sequence[Place], env: str, ticks: int, seeds: Sequence[int], measure: measures.Measure) -> Table:
    """Return the standings as a table: means with 95 % intervals over seeds."""
    number = f"{len(seeds)} streams" if len(seeds) > 1 else f"seed {seeds[0]}"
    out = Table(
        title=escape(f"Arena {env}, {ticks} mega-batches, {number}"),
        title_justify="left",
        caption=f"Ranked by {measure.heading}: {measure.meaning}. Mem: sum of parameters. Comp: FLOPs executed. "
        f"ticks: answered within the budget, of {ticks}. ±: 95 % interval over seeds.",
        caption_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,  # 80 columns suffice
        pad_edge=False,
    )
    out.add_column("", justify="right")
    out.add_column("agent", overflow="fold")  # names are folded, not cut, because they may differ only at the end
    for heading in (measure.heading, f"final {measure.name}", "Mem", "Comp", "ticks"):
        out.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for place in places:
        out.add_row(
            str(place.rank),
            escape(place.agent),
            place.total.text(f".{measure.digits[0]}f"),
            place.final_error.text(f".{measure.digits[1]}f"),
            measures.engineering(place.mem.mean),
            measures.engineering(place.comp.mean),
            f"{place.survived.mean:.3g}",
        )
    return out


def _split(env: str, pairs: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the words of ``--set`` into keywords of the environment and hyper-parameters of all agents."""
    values = read_keywords("--set", pairs)
    require_settings(values, _OPTIONS)
    return split_keywords(env, values)


_OPTIONS = {
    "flops_budget": "--flops-budget {}",
    "shared_flops_budget": "--shared-budget {}",
    "seats": "--seats {}",
    "threads": "--threads {}",
}


class _Bars(Progress):
    """One bar per stream with the leading agent and the eliminated agents; without a terminal one line per stream."""

    def __init__(self, console: Console, measure: measures.Measure) -> None:
        super().__init__(
            TextColumn("seed {task.fields[seed]}"),
            BarColumn(),
            TextColumn("tick {task.completed:.0f}/{task.total:.0f}  {task.fields[news]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._measure = measure

    def begin(self, seed: int, ticks: int) -> Callable[[Arena], None] | None:
        """Add the bar of a stream and return the function that updates it after a tick; None without a terminal."""
        if self.disable:
            return None
        task = self.add_task("", total=ticks, seed=seed, news="")

        def on_tick(arena: Arena) -> None:
            # The ledger of an eliminated agent is complete; only the ticks played so far count.
            sums = {
                name: self._measure.sum(Ledger(ledger.rows[: arena.tick + 1]).score())
                for name, ledger in arena.ledgers.items()
            }
            out = len(arena.possible_agents) - len(arena.agents) if arena.tick < arena.ticks else 0
            leader = min(sums, key=lambda name: sums[name])
            news = f"{leader} leads with {self._measure.heading} {sums[leader]:.2f}" + (f", {out} out" if out else "")
            self.update(task, completed=arena.tick, news=news)

        return on_tick

    def end(self, seed: int, ledgers: dict[str, Ledger]) -> None:
        """Print the best agent of a finished stream where no bar is shown."""
        if self.disable:
            sums = {name: self._measure.sum(ledger.score()) for name, ledger in ledgers.items()}
            best = min(sums, key=lambda name: sums[name])
            say(self.console, f"seed {seed}: {best} is first with {self._measure.heading} {sums[best]:.2f}")
