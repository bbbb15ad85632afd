"""``alma surrogate`` and ``alma policy``: record, fit, compare; learn a policy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.waiting import fidelity, recordings
from agents.waiting.curve import fit
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

    policy = commands.add_parser("policy", help="learn when to wait")
    training = policy.add_subparsers(dest="kind", required=True).add_parser("train", help="PPO, A2C or DQN")
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
    console.print(f"{options.out}: give it as recorded={options.out}", markup=False, highlight=False, soft_wrap=True)
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
    console.print(
        f"{options.dataset}: {data.total_episodes} episodes, {data.total_steps:,} steps; "
        f"minari.load_dataset({options.dataset!r}) reads it",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 0


def _train(options: argparse.Namespace, console: Console) -> int:
    if options.out.suffix != ".zip":
        raise ValueError(f"--out {options.out}: Stable-Baselines3 writes an archive; let the file end in .zip")
    model = train_policy(
        options.env,
        algorithm=options.algorithm,
        steps=int(options.steps),
        seed=options.seed,
        progress=console.is_terminal,
        tensorboard=options.tensorboard,
        **key_values(options.set),
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    model.save(options.out)
    console.print(f"{options.out}: alma run … --policy {options.out}", markup=False, highlight=False, soft_wrap=True)
    return 0
