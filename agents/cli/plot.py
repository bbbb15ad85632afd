"""``alma plot``: figures of finished runs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from rich.console import Console

from agents import figures, finished
from agents.cells import streams
from agents.console import say
from agents.figures.drawing import require_formats
from agents.finished import FinishedRun
from agents.words import key_values


def add_to(commands: Any) -> None:
    """Add ``plot`` to the subcommands of ``alma``."""
    plot = commands.add_parser(
        "plot",
        help="draw figures of finished runs",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="kinds:\n" + "".join(f"  {name:12}{kind.shows}\n" for name, kind in figures.KINDS.items()),
    )
    plot.set_defaults(command=_plot)
    plot.add_argument("kind", metavar="KIND", help="what to draw; the kinds are below")
    add_runs_to(plot)
    plot.add_argument("--out", type=Path, default=Path("figures"), help="folder to write to, default figures/")
    plot.add_argument(
        "--format", nargs="+", default=["png"], metavar="FORMAT", help="png, svg, pdf; csv: the numbers; default png"
    )
    plot.add_argument("--panels", help="errors: what tells panels apart: width, wait, both, none; default auto")
    plot.add_argument("--flops-price", type=float, help="pareto: of one teraFLOP, in errors")
    plot.add_argument("--parameter-price", type=float, help="pareto: of a million parameters at each tick, in errors")
    plot.add_argument("--layer", type=int, help="gating: the mixture layer, 1 the first; default 1")


def add_runs_to(parser: argparse.ArgumentParser) -> None:
    """Options that choose finished runs."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="folders of runs, or files that `alma pack` wrote"
    )
    parser.add_argument(
        "--where",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with these values of env, agent, width, wait, replay, seed or a dotted name of config.json; "
        "several values as width=4,16",
    )


def chosen_runs(options: argparse.Namespace, console: Console) -> list[FinishedRun]:
    """The finished runs of these options; what is left out is said.

    Raises:
        ValueError: no run is left.
    """
    runs, left_out = finished.find(*options.paths)
    for message in left_out:
        say(console, message)
    where = {key: _several(value) for key, value in key_values(options.where, "--where", "width=4,16").items()}
    for key, value in where.items():
        if runs and not any(_known(run, key) for run in runs):
            raise ValueError(
                f"--where {key}={value}: no run has such a value; the keys are {', '.join(_KEYS)}, and the dotted "
                "names of a config.json, such as agent.stage.epochs"
            )
    kept = [run for run in runs if all(_has(run, key, value) for key, value in where.items())]
    if not kept:
        what = f"none of {len(runs)} finished runs with {' '.join(options.where)}" if where else "no finished run"
        raise ValueError(f"{' '.join(map(str, options.paths))}: {what}; let one end first, or choose others")
    return kept


def _several(value: Any) -> Any:
    """``sm,ens``, of which Python makes no tuple, as one."""
    return tuple(value.split(",")) if isinstance(value, str) and "," in value else value


_KEYS = ("env", "agent", "width", "wait", "replay", "seed")


def _has(run: FinishedRun, key: str, value: Any) -> bool:
    return any(found in value if isinstance(value, tuple | list) else found == value for found in _known(run, key))


def _known(run: FinishedRun, key: str) -> list[Any]:
    """The run's value of this name, in a list; [] where it has none."""
    agent, policy = run.config["agent"], run.config["agent"].get("policy")
    if key in _KEYS:
        of_policy = policy if isinstance(policy, dict) else {}
        own = {"env": run.config["env"], "seed": run.seed, "agent": agent.get("id"), "width": agent.get("width")}
        return [own[key] if key in own else of_policy.get(key)]
    found: Any = run.config
    for name in key.split("."):
        if not isinstance(found, dict) or name not in found:
            return []
        found = found[name]
    return [found]


def _plot(options: argparse.Namespace, console: Console) -> int:
    require_formats(options.format)
    if options.out.suffix.removeprefix(".") in figures.FORMATS:
        raise ValueError(
            f"--out {options.out}: a folder is meant, in which the files are named after the kind; leave the name out, "
            f"and choose with --format {options.out.suffix[1:]}"
        )
    kind = options.kind
    if kind not in figures.KINDS:
        raise ValueError(f"kind {kind!r}: unknown; the kinds of figures are {', '.join(figures.KINDS)}")
    given = {name: getattr(options, name) for name in ("panels", "flops_price", "parameter_price", "layer")}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in figures.KINDS[kind].options:
            owner = next(other for other, its in figures.KINDS.items() if name in its.options)
            raise ValueError(f"--{name.replace('_', '-')} with {kind}: it is an option of {owner}; leave it out")
    of = streams(chosen_runs(options, console))
    fitting = {name: runs for name, runs in of.items() if _fits(kind, name, runs[0])}
    if not fitting:
        name, runs = next(iter(of.items()))
        figures.require_measure(kind, name, runs[0])
    for name in of:
        if name not in fitting:
            say(console, f"{name}: left out, since {kind} is not for its errors")
    for name, runs in fitting.items():
        drawing = figures.draw(kind, runs, **given)
        stem = kind if len(fitting) == 1 else "-".join([kind, re.sub(r"[^\w.=-]+", "-", name)])
        for message in drawing.notes:
            say(console, message)
        for file in figures.save(drawing, options.out / stem, options.format):
            say(console, f"{file}: {kind} of {len(runs)} runs on {name}")
    return 0


def _fits(kind: str, stream: str, run: FinishedRun) -> bool:
    try:
        figures.require_measure(kind, stream, run)
    except ValueError:
        return False
    return True
