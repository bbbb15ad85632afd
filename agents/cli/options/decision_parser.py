"""The options of ``alma surrogate`` and ``alma policy``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agents.cli.options.recorded_comparisons import ABOUT
from agents.cli.options.shared_options import DRY_RUN, add_execution, add_pull, add_push, add_set, stream_id
from agents.cli.options.subcommands import add_command, add_json

ALGORITHMS = ("ppo", "a2c", "dqn")
_RECORDED = "file written by `fit`, or id of a stream whose recorded runs are shipped"
_WIDTH = "units or channels; default: all widths of the file, or of the package"


def add_surrogate(commands: Any) -> None:
    """Add ``alma surrogate`` and its kinds."""
    surrogate = commands.add_parser("surrogate", help="fit surrogates to recorded runs, and compare them with the runs")
    kinds = surrogate.add_subparsers(dest="kind", required=True)
    record = add_command(
        kinds, "record", "decisions.surrogates:record", "compute the runs from which a surrogate learns"
    )
    add = record.add_argument
    add("env", type=stream_id, help="id of a stream, such as MNIST-ALMA-v0")
    add("--learner", default="sm", help="agent id, default sm")
    add("--width", type=int, nargs="+", help="units or channels; default: the recipe's")
    add("--seeds", type=int, nargs="+", help="seeds of the streams, default 100 to 119")
    add("--exploring", type=int, default=4, help="exploring runs of each width and seed, default 4")
    add_set(record, "hyper-parameters of the agent and keywords of the environment, e.g. epochs=20")
    add("--dry-run", action="store_true", help=DRY_RUN)
    add_execution(record)
    fit = add_command(kinds, "fit", "decisions.surrogates:fit", "gather finished runs into one file, for recorded=FILE")
    fit.add_argument(
        "runs", type=Path, nargs="+", help="folders of runs, such as runs/MNIST-ALMA-v0, or files of an earlier fit"
    )
    fit.add_argument("--out", type=Path, required=True, help="file to write, .npz")
    summary = "compare the ranks of schedules in a surrogate and in real runs"
    validate = add_command(kinds, "validate", "decisions.surrogates:validate", summary)
    validate.add_argument("recorded", help=_RECORDED)
    validate.add_argument("--width", type=int, nargs="+", help=_WIDTH)
    episodes = "episodes of the surrogate per run, default 64, and 256 with all decisions"
    validate.add_argument("--episodes", type=int, help=episodes)
    second = "the second surrogate, which also replays parts of the data and restarts"
    validate.add_argument("--decisions", action="store_true", help=second)
    tune = add_command(kinds, "tune", "decisions.tuning:tune", "find the schedules that cost least at given prices")
    _add_recorded(tune)
    tune.add_argument("env", help=_RECORDED)
    add = tune.add_argument
    _add_memory(tune)
    add("--episodes", type=int, default=2048, help="simulated episodes of each schedule, default 2048")
    on = "error that counts: on the test set (default), or on the validation parts of the whole stream"
    add("--reward-on", default="test", choices=["test", "validation"], help=on)
    add_json(tune)
    real = add_command(
        kinds, "schedules", "decisions.tuning:schedules", "compare the costs of schedules in recorded runs"
    )
    _add_recorded(real)
    real.add_argument("env", nargs="+", help=_RECORDED)
    real.add_argument("--picture", type=Path, help="file to draw: CER against FLOPs")
    add_json(real)
    summary = "compare a learned schedule with decisions that see the exact error"
    best = add_command(kinds, "ceiling", "decisions.ceiling:ceiling", summary)
    _add_recorded(best)
    _add_memory(best)
    best.add_argument("env", nargs="+", help=_RECORDED)
    best.add_argument("--policy", default="learned", help="learned, or a file .npz; default learned")
    best.add_argument("--episodes", type=int, default=512, help="simulated episodes, default 512")
    add_json(best)
    export = add_command(kinds, "export", "decisions.surrogates:export", "write recorded runs as a Minari data set")
    export.add_argument("recorded", help=_RECORDED)
    export.add_argument("dataset", help="Minari's id, such as alma/mnist-waiting-v0")
    export.add_argument("--actions", default="train", choices=["train", "multi"], help="action space, default train")


def _add_recorded(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--learner", default="sm", help="agent id, default sm")
    add("--width", type=int, nargs="+", help=_WIDTH)
    add("--recorded", type=Path, help="file of recorded runs; default: the file of the package")
    add("--pass-price", type=float, nargs="+", default=[0.0], help="prices of a full pass in errors, default 0")


def _add_memory(command: argparse.ArgumentParser) -> None:
    text = "prices of the untrained size in errors per tick, default 0"
    command.add_argument("--memory-price", type=float, nargs="+", default=[0.0], help=text)


def add_policy(commands: Any) -> None:
    """Add ``alma policy`` and its kinds."""
    policy = commands.add_parser("policy", help="learn when to wait, and compare schedules")
    kinds = policy.add_subparsers(dest="kind", required=True)
    train = add_command(kinds, "train", "decisions.policies:train", "learn a policy with PPO, A2C or DQN")
    add = train.add_argument
    add("decision_env", metavar="env", help="a decision environment, such as MNIST-ALMA-Wait-Surrogate-v0")
    add("--algorithm", default="ppo", choices=ALGORITHMS, help="default ppo")
    add("--steps", type=float, default=2e6, help="decisions to learn from, default 2e6")
    add("--seed", type=int, default=0, help="default 0")
    add_set(train, "keywords of the environment, e.g. width=4,64 flops_price=0.1 reward_on=validation")
    add(
        "--out",
        type=Path,
        required=True,
        help="file to write, .zip; after Ctrl-C, the policy so far is in NAME-stopped.zip",
    )
    add("--tensorboard", type=Path, help="folder for TensorBoard's event files")
    afterwards = "run the policy afterwards on the real streams of seeds"
    add("--evaluate", type=int, nargs="+", metavar="SEED", help=afterwards)
    add("--runs", type=Path, default=Path("runs"), help="folder of these runs, default runs/")

    summary = "learn a schedule for several streams, widths and prices: a decision after each training"
    of_trainings = add_command(kinds, "train-schedule", "decisions.scheduling:train_schedule", summary)
    add = of_trainings.add_argument
    add("env", nargs="+", help=_RECORDED)
    text = "agent ids; a stream without runs of one takes the others; default sm"
    add("--learner", nargs="+", default=["sm"], help=text)
    text = "units or channels; a stream without runs of one takes the others; default: all recorded widths"
    add("--width", type=int, nargs="+", help=text)
    text = "lowest and highest price of a full pass in errors, default 0 100"
    add("--pass-price", type=float, nargs=2, metavar=("LOW", "HIGH"), default=[0.0, 100.0], help=text)
    text = "lowest and highest price of the untrained size in errors per tick, default 0 0"
    add("--memory-price", type=float, nargs=2, metavar=("LOW", "HIGH"), default=[0.0, 0.0], help=text)
    add("--steps", type=float, default=8e6, help="trainings to learn from, default 8e6")
    add("--units", type=int, default=32, help="units of each of the two hidden layers, default 32")
    text = "probability that a simulated initialisation leaves a network which never learns, default 0"
    add("--dead", type=float, default=0.0, metavar="SHARE", help=text)
    add("--seed", type=int, default=0, help="default 0")
    real = "real runs to learn from afterwards, all streams and widths together, default 0"
    of_trainings.add_argument("--real", type=int, default=0, metavar="N", help=real)
    text = "streams of the real runs, such as Digits-ALMA-v0, or MNIST-ALMA-v0:4 for one width; default: all"
    of_trainings.add_argument("--real-on", nargs="+", metavar="STREAM[:WIDTH]", help=text)
    text = "processes for the real runs; default: as many as fill the cores of this machine"
    of_trainings.add_argument("--workers", type=int, help=text)
    on = "error to learn from: on the validation parts of the whole stream (default), or on the test set"
    add("--reward-on", default="validation", choices=["validation", "test"], help=on)
    add(
        "--out",
        type=Path,
        required=True,
        help="file to write, .npz; after Ctrl-C, the policy so far is in NAME-stopped.npz",
    )

    summary = "compare finished runs, paired by seed, with the best fixed waiting time"
    compare = add_command(kinds, "compare", "runs.comparing:compare", summary)
    add = compare.add_argument
    add("folder", type=Path, help="folder of runs, such as runs/MNIST-ALMA-v0")
    add("--flops-price", type=float, default=0.0, help="price of one teraFLOP in errors, default 0")
    price = "price of a million parameters at each tick in errors, default 0"
    add("--parameter-price", type=float, default=0.0, help=price)
    add("--picture", type=Path, help="file to draw, default waiting.png in the folder")
    add_json(compare)

    summary = "compare learned schedules with their rivals, at the prices of their runs"
    judge = add_command(kinds, "judge", "decisions.judging:judge", summary)
    judge.add_argument("folder", type=Path, nargs="*", help="folders of runs, such as runs/MNIST-ALMA-v0")
    own = f"runs of the package, default schedules; {'; '.join(f'{name}: {about}' for name, about in ABOUT.items())}"
    judge.add_argument("--recorded", nargs="?", const="schedules", choices=tuple(ABOUT), help=own)
    add = judge.add_argument
    add("--subject", help="schedule to compare in the place of the learned ones, in the form of alma run --policy")
    add("--pass-price", type=float, nargs="+", help="prices of a full pass in errors, for --subject")
    text = "prices of the untrained size in errors per tick, for --subject, default 0"
    add("--memory-price", type=float, nargs="+", help=text)
    add("--rival", nargs="+", default=[], metavar="SCHEDULE", help="further rivals, in the form of alma run --policy")
    add("--picture", type=Path, help="file to draw: costs relative to those of the subject")
    add_json(judge)

    push = add_command(
        kinds, "push", "runs.hub:push_policy", "put a learned policy on the Hugging Face Hub, or into a folder"
    )
    push.add_argument("file", type=Path, help="file that `alma policy train` wrote, .zip")
    add_push(push)
    summary = "fetch a learned policy from the Hugging Face Hub; to use the file runs code of its author"
    add_pull(add_command(kinds, "pull", "runs.hub:pull_policy", summary), "file to write, .zip")
