"""``alma surrogate`` and ``alma policy``: record, fit, compare; learn a policy, compare schedules."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import alma_env
from agents import catalogue, finished, report
from agents.report import engineering
from agents.waiting import comparison, fidelity, recordings
from agents.waiting.curve import fit
from agents.waiting.prices import Prices
from agents.waiting.shipped import shipped
from agents.waiting.train import ALGORITHMS, train_policy
from agents.words import key_values


def add_to(commands: Any) -> None:
    """Add the two commands to a parser's subcommands."""
    surrogate = commands.add_parser("surrogate", help="record runs, fit surrogates to them, compare the two")
    kinds = surrogate.add_subparsers(dest="kind", required=True)
    fitting = kinds.add_parser("fit", help="gather finished runs into one file, as recorded=FILE takes it")
    fitting.set_defaults(command=_fit)
    fitting.add_argument("runs", type=Path, nargs="+", help="folders of runs, such as runs/MNIST-ALMA-v0")
    fitting.add_argument("--out", type=Path, required=True, help="file to write, .npz")
    checking = kinds.add_parser("validate", help="does it rank schedules that it was not fitted to as real runs do?")
    checking.set_defaults(command=_validate)
    checking.add_argument("recorded", help="file that `fit` made, or the id of a stream whose runs are shipped")
    checking.add_argument("--episodes", type=int, default=64, help="of the surrogate for each run, default 64")
    exporting = kinds.add_parser("export", help="write recorded runs as a Minari data set")
    exporting.set_defaults(command=_export)
    exporting.add_argument("recorded", help="file that `fit` made, or the id of a stream whose runs are shipped")
    exporting.add_argument("dataset", help="Minari's id, such as alma/mnist-waiting-v0")
    exporting.add_argument("--actions", default="train", choices=["train", "multi"], help="how decisions are written")

    policy = commands.add_parser("policy", help="learn when to wait, and compare schedules")
    tasks = policy.add_subparsers(dest="kind", required=True)
    training = tasks.add_parser("train", help="PPO, A2C or DQN")
    training.set_defaults(command=_train)
    training.add_argument("env", help="a decision environment, such as MNIST-ALMA-Wait-Surrogate-v0")
    training.add_argument("--algorithm", default="ppo", choices=ALGORITHMS)
    training.add_argument("--steps", type=float, default=2e6, help="decisions to learn from, default 2e6")
    training.add_argument("--seed", type=int, default=0)
    training.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keywords of the environment, e.g. width=4,64 flops_price=0.1 reward_on=validation",
    )
    training.add_argument("--out", type=Path, required=True, help="file to write, .zip; alma run --policy takes it")
    training.add_argument("--tensorboard", type=Path, help="folder for TensorBoard's event files")
    training.add_argument("--evaluate", type=int, nargs="+", metavar="SEED", help="then play the real streams of these")
    training.add_argument("--runs", type=Path, default=Path("runs"), help="folder of those runs, default runs/")

    comparing = tasks.add_parser("compare", help="finished runs, paired by seed, against the best fixed waiting time")
    comparing.set_defaults(command=_compare)
    comparing.add_argument("folder", type=Path, help="folder of runs, such as runs/MNIST-ALMA-v0")
    comparing.add_argument("--flops-price", type=float, default=0.0, help="of one teraFLOP, in errors; default 0")
    comparing.add_argument("--parameter-price", type=float, default=0.0, help="of a million parameters at each tick")
    comparing.add_argument("--picture", type=Path, help="file to draw, default waiting.png in the folder")


def _recordings(given: str) -> list[recordings.Recording]:
    return recordings.load(Path(given) if Path(given).is_file() else shipped(given))


def _fit(options: argparse.Namespace, console: Console) -> int:
    if options.out.suffix != ".npz":
        raise ValueError(f"--out {options.out}: the file is an archive of arrays; let it end in .npz")
    made = [recording for folder in options.runs for recording in recordings.read_runs(folder)]
    table = Table("env", "learner", "width", "runs", "schedules", "trainings", title="Recorded runs", box=None)
    for (env, learner, width, _), runs in recordings.groups(made).items():
        fit(runs)  # what cannot be fitted is told before anything is written
        schedules = {run.schedule for run in runs}
        trainings = sum(len(run.trainings) for run in runs)
        table.add_row(env, learner, str(width), str(len(runs)), str(len(schedules)), f"{trainings:,}")
    recordings.save(made, options.out)
    console.print(table)
    _say(console, f"{options.out}: give it as recorded={options.out}")
    return 0


def _validate(options: argparse.Namespace, console: Console) -> int:
    if options.episodes < 1:
        raise ValueError(f"--episodes {options.episodes}: at least 1 is needed")
    for (env, learner, width, _), runs in recordings.groups(_recordings(options.recorded)).items():
        compared = fidelity.held_out(runs, options.episodes)
        table = Table("schedule, not fitted to", "runs", "CER, real", "CER, surrogate", box=None)
        table.title = f"{env}, {learner} {width}"
        for one in sorted(compared, key=lambda one: one.real):
            table.add_row(escape(one.schedule), str(one.runs), f"{one.real:.2f}", f"{one.surrogate:.2f}")
        console.print(table)
        rank = fidelity.rank_correlation(compared)
        console.print(f"rank correlation of {len(compared)} schedules: {rank:.3f}\n", highlight=False)
    return 0


def _export(options: argparse.Namespace, console: Console) -> int:
    from agents.waiting.export import to_minari

    data = to_minari(_recordings(options.recorded), options.dataset, kind=options.actions)
    _say(
        console,
        f"{options.dataset}: {data.total_episodes} episodes, {data.total_steps:,} steps; "
        f"minari.load_dataset({options.dataset!r}) reads it",
    )
    return 0


def _train(options: argparse.Namespace, console: Console) -> int:
    if options.out.suffix != ".zip":
        raise ValueError(f"--out {options.out}: Stable-Baselines3 writes an archive; let the file end in .zip")
    keywords = key_values(options.set)
    evaluation = None if options.evaluate is None else _evaluation(options, keywords)
    model = train_policy(
        options.env,
        algorithm=options.algorithm,
        steps=int(options.steps),
        seed=options.seed,
        progress=console.is_terminal,
        tensorboard=options.tensorboard,
        **keywords,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    model.save(options.out)
    if evaluation is None:
        _say(console, f"{options.out}: alma run … --policy {_played(options.out, keywords)}")
        return 0
    _say(console, " ".join(["alma", *evaluation]))
    from agents.cli import main  # the same command, which is made of this module, too

    return main(evaluation)


def _evaluation(options: argparse.Namespace, keywords: dict[str, Any]) -> list[str]:
    """The words of ``alma`` that play the policy on the real streams it is trained for.

    Raises:
        ValueError: a surrogate's runs were recorded with other settings than those words have.
    """
    stream = options.env.removeprefix("alma_env:").replace("-Wait-Surrogate", "").replace("-Wait", "")
    learner, width = str(keywords.get("learner", "sm")), keywords.get("width")
    widths = [] if width is None else list(width) if isinstance(width, list | tuple) else [width]
    if "-Surrogate" in options.env:
        given = str(keywords.get("recorded", stream))
        found = [key for key in recordings.groups(_recordings(given)) if key[:2] == (stream, learner)]
        widths = widths or sorted({key[2] for key in found})
        _require_recipe([key[3] for key in found if key[2] in widths], stream, learner)
    words = ["run", stream, "--agent", learner, "--out", str(options.runs)]
    words += ["--width", *map(str, widths)] if widths else []
    others = [f"{key}={value}" for key, value in keywords.items() if key not in _DECISIONS]
    words += ["--set", *others] if others else []
    return [*words, "--seeds", *map(str, options.evaluate), "--policy", _played(options.out, keywords)]


def _played(path: Path, keywords: Mapping[str, Any]) -> str:
    """The word for the policy with how it trains, which is not its own to decide where it only says when."""
    fields = []
    if keywords.get("actions", "train") == "train":
        fields += ["replay=true"] * bool(keywords.get("replay")) + ["growth=every"] * bool(keywords.get("grow"))
    return f"{path}:{','.join(fields)}" if fields else str(path)


def _require_recipe(recorded: list[str], stream: str, learner: str) -> None:
    env = alma_env.make(stream)
    usual = recordings.settings_of({"protocol": env.protocol(), "agent": catalogue.make(learner, env).config})
    for settings in recorded:
        if settings != usual:
            there, here = (dict(report.by_path(json.loads(text))) for text in (settings, usual))
            differs = ", ".join(f"{key}={there.get(key)}" for key in sorted(there) if there.get(key) != here.get(key))
            raise ValueError(
                f"--evaluate: the recorded runs were made with {differs}; leave it out, and play the real stream with "
                f"alma run {stream} --policy {{FILE}} --set …"
            )


# Keywords of the decision problem, which a stream does not have.
_DECISIONS = (
    "learner",
    "width",
    "recorded",
    "actions",
    "replay",
    "grow",
    "flops_price",
    "parameter_price",
    "reward_on",
)


def _compare(options: argparse.Namespace, console: Console) -> int:
    prices = Prices(options.flops_price, options.parameter_price)
    found, left_out = finished.find(options.folder)
    for message in left_out:
        _say(console, message)
    if not found:
        raise ValueError(f"{options.folder}: no finished run; let one end first")
    heading = "CER" if not any((prices.flops, prices.parameters)) else "CER, FLOPs and parameters at their prices"
    comparisons = comparison.compare(found, prices)
    for one in comparisons:
        table = Table("when", "n", heading, "Comp", "minus that of the best fixed wait", box=None, title=one.title)
        for schedule in one.schedules:
            difference = one.against_best_fixed(schedule)
            table.add_row(
                escape(schedule.name),
                str(schedule.cost.n),
                schedule.cost.text(),
                engineering(mean(schedule.comps.values())),
                "best fixed" if schedule is one.best_fixed else "" if difference is None else difference.text("+.2f"),
            )
        console.print(table)
        console.print()
    console.print("n: seeds; ±: 95 % interval over them (Student's t), of differences paired by seed.", highlight=False)
    from agents.waiting import comparison_figure  # with matplotlib, which the other commands do without

    picture = comparison_figure.draw(comparisons, options.picture or options.folder / "waiting.png", heading=heading)
    _say(console, f"Picture: {picture.resolve()}")
    return 0


def _say(console: Console, message: str) -> None:
    console.print(message, markup=False, highlight=False, soft_wrap=True)
