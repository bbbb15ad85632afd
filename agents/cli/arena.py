"""``alma arena``: a tournament of agents, and its standings."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import alma_env
from agents import figures, process, report
from agents.catalogue import split_keywords
from agents.contestants import key_values, read_contestants
from agents.recipes import recipe_for
from alma_env import Ledger

if TYPE_CHECKING:
    from agents.tournament import Place
    from alma_env.arena import Arena


def add_to(commands: Any) -> None:
    """Add ``arena`` to the subcommands of ``alma``."""
    arena = commands.add_parser("arena", help="let several agents play on the same streams, and rank them")
    arena.set_defaults(command=run)
    arena.add_argument("env", help="environment id (see `alma envs`)")
    arena.add_argument(
        "--agents",
        nargs="+",
        required=True,
        metavar="ID:KEY=VALUE,…",
        help="agents (see `alma agents`), each with its hyper-parameters: sm:width=4 ens:width=4,members=3 gens:wait=5",
    )
    arena.add_argument("--seeds", type=int, nargs="+", default=[0], help="one stream for each, default 0")
    arena.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="any keyword of the environment, or hyper-parameter of all agents, e.g. ticks=20 epochs=5",
    )
    arena.add_argument("--flops-budget", type=float, help="most FLOPs that each agent may spend")
    arena.add_argument("--shared-budget", type=float, help="FLOPs that all have together, divided by bids")
    arena.add_argument("--seats", type=int, help="with --shared-budget: how many may train at each tick, default 1")
    arena.add_argument("--threads", type=int, help="PyTorch threads; default: 1 for an MLP, else all cores")
    arena.add_argument("--out", type=Path, default=Path("tournaments"), help="folder, default tournaments/")


def run(options: argparse.Namespace, console: Console) -> int:
    """Play, print and write; the exit status."""
    # Here, since the arena needs a package that the other commands do without.
    from agents import tournament
    from alma_env.arena import Arena

    if options.seats is not None and options.shared_budget is None:
        raise ValueError(f"--seats {options.seats} without --shared-budget: seats are bid for; give a budget, too")
    protocol, common = _split(options.env, options.set)
    contestants = read_contestants(options.agents, common)
    for seed in options.seeds:
        if options.seeds.count(seed) > 1:
            raise ValueError(f"--seeds: {seed} stands there twice, but a stream is played once; give each seed once")
    env = alma_env.make(options.env, **protocol)
    process.prepare(options.threads, recipe_for(env.data.name).backbone)
    arena = Arena(
        env,
        [contestant.name for contestant in contestants],
        flops_budget=options.flops_budget,
        shared_flops_budget=options.shared_budget,
        seats=1 if options.seats is None else options.seats,
    )
    config = tournament.describe(arena, env, contestants, options.seeds)
    folder = tournament.begin(options.out / options.env, config)
    measure = report.measure_of(env.protocol())
    groups: dict[str, list[Ledger]] = {contestant.name: [] for contestant in contestants}
    with _Bars(console, measure) as bars:
        for seed in options.seeds:
            ledgers = tournament.play_or_read(arena, env, contestants, seed, folder, bars.begin(seed, env.ticks))
            bars.end(seed, ledgers)
            for name, ledger in ledgers.items():
                groups[name].append(ledger)
    places = tournament.standings(groups, measure)
    console.print(table(places, options.env, env.ticks, options.seeds, measure))
    file = tournament.write_standings(folder, config, places, groups)
    curves = figures.error_curves(groups, f"{options.env}: {measure.name} at every tick", measure)
    (picture,) = figures.save(curves, folder / measure.plural)
    for words, path in (("Standings, with the full configuration", file), ("Curves", picture)):
        console.print(f"{words}: {path}", markup=False, highlight=False, soft_wrap=True)
    return 0


def table(
    places: Sequence[Place], env: str, ticks: int, seeds: Sequence[int], measure: report.Measure = report.ERROR_RATE
) -> Table:
    """The standings, mean with 95 % interval over seeds."""
    number = f"{len(seeds)} streams" if len(seeds) > 1 else f"seed {seeds[0]}"
    out = Table(
        title=escape(f"Arena {env}, {ticks} mega-batches, {number}"),
        title_justify="left",
        caption=f"Ranked by {measure.heading}: {measure.meaning}. Mem: sum of parameters. Comp: FLOPs executed. "
        f"ticks: answered before a budget was broken, of {ticks}. ±: 95 % interval over seeds.",
        caption_justify="left",
        box=SIMPLE_HEAD,
        collapse_padding=True,  # 80 columns suffice
        pad_edge=False,
    )
    out.add_column("", justify="right")
    out.add_column("agent", overflow="fold")  # a name is never cut: its end may be what differs
    for heading in (measure.heading, f"final {measure.name}", "Mem", "Comp", "ticks"):
        out.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for place in places:
        out.add_row(
            str(place.rank),
            escape(place.agent),
            place.total.text(f".{measure.digits[0]}f"),
            place.final_error.text(f".{measure.digits[1]}f"),
            report.engineering(place.mem.mean),
            report.engineering(place.comp.mean),
            f"{place.survived.mean:.3g}",
        )
    return out


def _split(env: str, pairs: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``--set`` words into the environment's keywords and the hyper-parameters of all agents."""
    values: dict[str, Any] = {}
    for pair in pairs:
        values |= key_values(f"--set {pair}", [pair])
    for name in ("flops_budget", "shared_flops_budget", "seats", "threads"):
        if name in values:
            option = name.replace("shared_flops", "shared").replace("_", "-")
            raise ValueError(f"--set {name}={values[name]}: {name} has an option of its own; write --{option}")
    return split_keywords(env, values)


class _Bars:
    """One bar per stream, with who leads and who is still in; one line per stream where there is no terminal."""

    def __init__(self, console: Console, measure: report.Measure) -> None:
        self._console = console
        self._measure = measure
        self._progress = Progress(
            TextColumn("seed {task.fields[seed]}"),
            BarColumn(),
            TextColumn("tick {task.completed:.0f}/{task.total:.0f}  {task.fields[news]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, seed: int, ticks: int) -> Callable[[Arena], None] | None:
        """What is to be told after every tick; nothing where nobody sees it."""
        if self._progress.disable:
            return None
        task = self._progress.add_task("", total=ticks, seed=seed, news="")

        def on_tick(arena: Arena) -> None:
            # Of those who are out the ledgers are longer; the lead is that of the ticks played.
            sums = {
                name: self._measure.sum(Ledger(ledger.rows[: arena.tick + 1]).score())
                for name, ledger in arena.ledgers.items()
            }
            out = len(arena.possible_agents) - len(arena.agents) if arena.tick < arena.ticks else 0
            leader = min(sums, key=lambda name: sums[name])
            news = f"{leader} leads with {self._measure.heading} {sums[leader]:.2f}" + (f", {out} out" if out else "")
            self._progress.update(task, completed=arena.tick, news=news)

        return on_tick

    def end(self, seed: int, ledgers: dict[str, Ledger]) -> None:
        """A stream has been played."""
        if not self._console.is_terminal:  # no live bar there
            sums = {name: self._measure.sum(ledger.score()) for name, ledger in ledgers.items()}
            best = min(sums, key=lambda name: sums[name])
            words = f"seed {seed}: {best} is first with {self._measure.heading} {sums[best]:.2f}"
            self._console.print(words, markup=False, highlight=False, soft_wrap=True)
