"""The subcommands of ``alma``, and the options of most of them.

`listing_parser` and `decision_parser` have the options of the others. A subcommand names the function that carries it
out as ``room.module:function`` of `agents.cli`; the module is imported when the command runs. Names that other rooms
define are repeated here, so that help loads none of these rooms; a test compares them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import alma_env
from agents.cli.options.decision_parser import add_policy, add_surrogate
from agents.cli.options.listing_parser import add_beginnings, add_listings
from agents.cli.options.shared_options import (
    DRY_RUN,
    add_execution,
    add_folder_options,
    add_pull,
    add_push,
    add_set,
    stream_id,
)
from agents.cli.options.subcommands import Parser, add_command, add_json

ALL_PLANS = "all"
PLANS = (
    *("fig7", "fig7-fashion", "fig2", "fig8", "ablation", "fig4", "fig1", "fig3", "fig3-mnist", "tab1", "tab2", "fig5"),
    *("emnist", "cifar100"),
)
SCALES = ("smoke", "cpu", "gpu")
PARTS = ("summary", "headlines", "findings", "scores", "comparisons", "costs", "hours")
ENGINES = ("auto", "plain", "native", "graphs")
PICTURE_FORMATS = ("png", "svg", "pdf", "csv")
TABLE_FORMATS = ("markdown", "latex", "csv", "json")
TABLE_KEYS = ("env", "agent", "width", "when", "replay")
PACKED_SUFFIX = ".jsonl.xz"
FIGURES = {
    "errors": "the error over time (figures 1, 3, 7 of the paper)",
    "tradeoff": "CER against training FLOPs and against parameters (figure 2)",
    "replay": "CER and Comp with and without replay (figures 4, 8)",
    "perplexity": "text: average perplexity against parameters, FLOPs, time",
    "trajectories": "error after each quarter of the stream against FLOPs, parameters, experts (figure 5)",
    "radar": "all measures of each method (first version of the paper)",
    "gating": "the gates of a mixture over a map of the digits (first version)",
    "pareto": "CER against Comp with the Pareto front, and against price",
    "regret": "the error minus the error of the oracle, or of the best run in hindsight, at every tick",
    "best-wait": "the best waiting time, by width and length of the stream",
    "best-wait-by-width": "the best waiting time by width, data set and replay, and those that are not excluded",
    "savings": "CER against training FLOPs at the best waiting time, and what a doubling of the FLOPs saves",
    "equal-flops": "the order of methods at equal FLOPs, as the paper counts and by Comp",
}
_RECORD = (
    "also score on the validation parts of the whole stream; `alma surrogate fit` needs these scores for policies that "
    "are not tuned on the test set"
)
DEFAULT_ENV = "Digits-ALMA-v0"
_AGENT = "agent id (see `alma agents`), or a function of your own, FILE.py:FUNCTION; default sm"


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``alma``."""
    parser = Parser(prog="alma", description="Anytime learning at macroscale.")
    parser.add_argument("--version", action="version", version=f"alma-env {alma_env.__version__}")
    commands = parser.add_subparsers(dest="name", required=True)
    _add_run(commands)
    _add_sweep(commands)
    _add_reproduce(commands)
    add_listings(commands)
    add_surrogate(commands)
    add_policy(commands)
    _add_runs(commands)
    _add_arena(commands)
    _add_plot(commands)
    _add_table(commands)
    summary = "put finished runs into one small file, without their checkpoints"
    add = add_command(commands, "pack", "runs.finished_runs:pack", summary).add_argument
    add("paths", type=Path, nargs="+", metavar="PATH", help="folders of runs, or packed files to join")
    add("--out", type=Path, required=True, help=f"file to write, *{PACKED_SUFFIX}")
    show = add_command(commands, "show", "runs.finished_runs:show", "table and picture of all runs in a folder")
    show.add_argument("folder", type=Path, help="a run folder, a folder that holds several, or a packed file")
    add_json(show)
    add_beginnings(commands)
    return parser


def _add_run(commands: Any) -> None:
    run = add_command(
        commands, "run", "runs.run_sweep:run", "take an agent through a stream, for several waits and seeds"
    )
    add = run.add_argument
    add("env", type=stream_id, nargs="?", help=f"environment id, default {DEFAULT_ENV}")
    add("--agent", default="sm", help=_AGENT)
    _add_combinations(run)
    add("--seeds", type=int, nargs="+", default=[0], help="run seeds, default 0")
    add("--replay", action="store_true", help="train on all mega-batches so far")
    add("--engine", default="auto", choices=ENGINES, help="how to train, default auto")
    add("--device", default="auto", help="cpu, cuda, …; default auto")
    add("--threads", type=int, help="PyTorch threads; default: 1 for an MLP, else all cores")
    add("--record", action="store_true", help=_RECORD)
    add_folder_options(run)


def _add_sweep(commands: Any) -> None:
    summary = "run a grid on all cores or a cluster; finished runs are skipped"
    sweep = add_command(commands, "sweep", "runs.run_sweep:run_grid", summary)
    sweep.add_argument("file", nargs="?", type=Path, help="a grid as TOML, instead of the options that describe one")
    grid = sweep.add_argument_group("the grid: every combination")
    add = grid.add_argument
    add("--env", type=stream_id, nargs="+", help="environment ids")
    add("--agent", nargs="+", help=_AGENT)
    _add_combinations(grid)
    add("--seeds", type=int, nargs="+", help="run seeds, default 0")
    both = "train on all mega-batches so far; with --no-replay: both"
    add("--replay", action="append_const", const=True, help=both)
    add("--no-replay", dest="replay", action="append_const", const=False, help="the default")
    add("--engine", nargs="+", choices=ENGINES, help="how to train")
    add("--device", nargs="+", help="cpu, cuda, …; default auto")
    add("--record", action="store_const", const=True, help=_RECORD)
    sweep.add_argument("--dry-run", action="store_true", help=DRY_RUN)
    add_execution(sweep)


def _add_combinations(parser: argparse._ActionsContainer) -> None:
    data = (
        "data of your own, for the environment Arrays-ALMA-v0: an .npz file or a folder of .npy files with train_x, "
        "train_y, test_x, test_y; images as train/CLASS/*.png, test/CLASS/*.png; or a folder of save_to_disk"
    )
    parser.add_argument("--data", metavar="PATH", help=data)
    parser.add_argument("--width", type=int, nargs="+", help="units or channels; default: the recipe's")
    parser.add_argument("--wait", type=int, nargs="+", help="waiting times in mega-batches; default: the recipe's")
    parser.add_argument(
        "--policy",
        nargs="+",
        default=[],
        help="when to train, instead of --wait: fixed, geometric, doubling, validation, random, budget, learned, "
        "exploring, or NAME:field=value,… to change defaults; or a file PATH.zip or PATH.npz that was learned",
    )
    add_set(
        parser,
        "any hyper-parameter of the agent or keyword of the environment, e.g. epochs=20 ticks=50; files of a text: "
        "train=FOLDER valid=FILE test=FILE vocabulary_size=8000 sequence_length=128; `alma sweep` runs every value of "
        "a list, epochs=[5,20]",
    )


def _add_reproduce(commands: Any) -> None:
    summary = "run, draw and judge a figure or table of the paper"
    parser = add_command(commands, "reproduce", "reproduce:reproduce", summary)
    add = parser.add_argument
    names = (*PLANS, ALL_PLANS)
    add("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    scales = (
        "smoke: tries the command in a minute; cpu: the paper's epochs on two cores; gpu: the paper's grid. Default cpu"
    )
    add("--scale", choices=SCALES, default="cpu", help=scales)
    add("--seeds", type=int, nargs="+", help="instead of the plan's")
    add_set(parser, "any hyper-parameter or keyword of the environment, instead of the plan's")
    dry_run = "print the cost, and end; with --recorded, --runs or --missing also the cost of the rest"
    add("--dry-run", action="store_true", help=dry_run)
    calibrate = "with --dry-run: measure this machine, and print its hours instead of those of the rates of the package"
    add("--calibrate", action="store_true", help=calibrate)
    recorded = parser.add_mutually_exclusive_group()
    reads = "draw and judge the runs that come with the package; run nothing"
    recorded.add_argument("--recorded", action="store_true", help=reads)
    missing = "compute only the runs that neither come with the package nor lie in --runs; draw and judge all of them"
    recorded.add_argument("--missing", action="store_true", help=missing)
    finished = "draw and judge the finished runs in these folders or packed files; without --missing, run nothing"
    add("--runs", type=Path, nargs="+", metavar="PATH", help=finished)
    part = "print this part of the finished runs, or the costs at each scale, as Markdown, and end; write nothing"
    add("--print", choices=PARTS, help=part)
    formats = "formats of the figures, default png csv"
    add("--format", nargs="+", choices=PICTURE_FORMATS, default=["png", "csv"], help=formats)
    add_execution(parser)
    parser.set_defaults(out=Path("reproduction"))


def _add_runs(commands: Any) -> None:
    kinds = commands.add_parser("runs", help="exchange finished runs with others").add_subparsers(
        dest="kind", required=True
    )
    summary = "put finished runs on the Hugging Face Hub as a data set (Parquet), or into a folder"
    push = add_command(kinds, "push", "runs.hub:push_runs", summary)
    push.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="folders of runs, or packed files")
    add_push(push)
    summary = "fetch finished runs from the Hugging Face Hub, for `alma show`, `table` and `plot`"
    add_pull(add_command(kinds, "pull", "runs.hub:pull_runs", summary), f"file to write, *{PACKED_SUFFIX}")


def _add_arena(commands: Any) -> None:
    arena = add_command(commands, "arena", "arena:play", "let several agents play on the same streams, and rank them")
    add = arena.add_argument
    add("env", type=stream_id, help="environment id (see `alma envs`)")
    agents = (
        "agents (see `alma agents`) and functions of your own, each with its hyper-parameters: sm:width=4 "
        "ens:width=4,members=3 FILE.py:FUNCTION:wait=5"
    )
    add("--agents", nargs="+", required=True, metavar="ID:KEY=VALUE,…", help=agents)
    add("--seeds", type=int, nargs="+", default=[0], help="one stream per seed, default 0")
    add_set(arena, "any keyword of the environment, or hyper-parameter of all agents, e.g. ticks=20 epochs=5")
    add("--flops-budget", type=float, help="FLOPs that each agent may spend")
    add("--shared-budget", type=float, help="FLOPs that all agents may spend together, divided by bids")
    add("--seats", type=int, help="with --shared-budget: agents that train at one tick, default 1")
    add("--threads", type=int, help="PyTorch threads; default: 1 for an MLP, else all cores")
    add("--out", type=Path, default=Path("tournaments"), help="folder, default tournaments/")


def _add_plot(commands: Any) -> None:
    plot = add_command(
        commands,
        "plot",
        "runs.plot:plot",
        "draw figures of finished runs",
        formatter_class=_HelpWithOptionalPaths,
        epilog="kinds:\n" + "".join(f"  {kind:20}{shows}\n" for kind, shows in FIGURES.items()),
    )
    add = plot.add_argument
    add("kind", metavar="KIND", help="kind of figure, see below")
    _add_choice_of_runs(plot)
    add("--out", type=Path, default=Path("figures"), help="folder to write to, default figures/")
    formats = "png, svg, pdf, or csv for the numbers; default png"
    add("--format", nargs="+", default=["png"], metavar="FORMAT", help=formats)
    add("--print", action="store_true", help="print the table of the figure as Markdown, and end; write nothing")
    add("--panels", help="errors: one panel per width, wait, both or none; default auto")
    add("--flops-price", type=float, help="pareto: price of one teraFLOP, in errors")
    add("--parameter-price", type=float, help="pareto: price of a million parameters at each tick, in errors")
    add("--layer", type=int, help="gating: number of the mixture layer from 1, default 1")


def _add_table(commands: Any) -> None:
    summary = "compare finished runs in a table, with intervals and tests"
    table = add_command(commands, "table", "runs.finished_runs:table", summary, formatter_class=_HelpWithOptionalPaths)
    add = table.add_argument
    _add_choice_of_runs(table)
    add("--format", default="markdown", choices=TABLE_FORMATS, help="default markdown")
    keys = f"keys that the compared lines have in common: {', '.join(TABLE_KEYS)}; default env"
    add("--by", nargs="+", default=["env"], metavar="KEY", help=keys)
    add("--against", metavar="LINE", help="agent or line to compare with; default the best of each column")
    add("--out", type=Path, help="file to write; the ending of the format is added if it is missing")
    table.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")


class _HelpWithOptionalPaths(argparse.RawDescriptionHelpFormatter):
    """Help whose usage has the paths of `_add_choice_of_runs` as ``[PATH ...]``: none, or several."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        text = super()._format_args(action, default_metavar)
        if action.option_strings or action.required or action.nargs != argparse.ONE_OR_MORE:
            return text
        return text.partition(" ")[2]  # of "PATH [PATH ...]"


def _add_choice_of_runs(parser: argparse.ArgumentParser) -> None:
    """Add the options that `finished_runs.chosen_runs` reads; the parser has `_HelpWithOptionalPaths`."""
    paths = "folders of runs, or files written by `alma pack`; may be left out with --recorded"
    given = parser.add_argument("paths", type=Path, nargs="+", default=(), metavar="PATH", help=paths)
    given.required = False  # nargs="*" has a right usage line, but argparse would refuse paths after an option
    parser.add_argument("--recorded", action="store_true", help="also the runs that come with the package")
    where = (
        "only runs with these values of env, agent, width, wait, replay, seed, a hyper-parameter such as epochs, or a "
        "dotted name of config.json such as protocol.ticks; several values as width=4,16"
    )
    parser.add_argument("--where", nargs="+", default=[], metavar="KEY=VALUE", help=where)
