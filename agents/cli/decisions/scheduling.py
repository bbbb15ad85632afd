"""The command ``alma policy train-schedule``: one learned schedule for several streams, widths and prices."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from agents.analysis.labels import natural_key
from agents.cli.decisions.tuning import named_runs
from agents.cli.options.shared_options import prepare_file, price_word, stopped_file
from agents.policies.learned.schedule import ScheduleNetwork
from agents.rl.learning.real_runs import RealRuns
from agents.rl.learning.real_training_env import RealStream
from agents.rl.learning.train_schedule import train_schedule as learn
from agents.rl.models.training_fit import fit_trainings
from agents.rl.recorded.selection import recorded_groups, recorded_widths
from agents.rl.surrogates.checks import checked_probability
from agents.sweeps.local import worker_variables
from agents.sweeps.progress import say


def train_schedule(options: argparse.Namespace, console: Console) -> int:
    """Learn a schedule on the surrogates of recorded runs, and write it to a file."""
    if not 1 <= options.steps < math.inf:
        raise ValueError(f"--steps {options.steps}: must be a finite number of trainings from 1 on; the default is 8e6")
    if options.units < 1:
        raise ValueError(f"--units {options.units}: must be a number of units from 1 on; the default is 32")
    checked_probability("--dead", options.dead)
    prices: dict[str, tuple[float, float]] = {}
    for name, example in (("pass_price", "0 100"), ("memory_price", "0 0.1")):
        low, high = prices[name] = tuple(getattr(options, name))
        if not 0 <= low <= high < math.inf:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} {low:g} {high:g}: must be two ascending prices from 0 on, such as {example}")
    if options.real < 0:
        raise ValueError(f"--real {options.real}: must be a number of real runs from 0 on, such as --real 2000")
    if options.workers is not None and not options.real:
        raise ValueError(f"--workers {options.workers}: only real runs use processes; give --real 2000, too")
    if options.real_on is not None and not options.real:
        raise ValueError(f"--real-on {options.real_on[0]}: it chooses real runs; give --real 2000, too")
    workers = len(worker_variables(options.workers, per_gpu=0, threads=1))
    prepare_file(options.out, ".npz", "NumPy writes an archive; let its name end in .npz")
    models, learned_on, streams, names = [], [], [], []
    sources = [named_runs(given, None) for given in options.env]
    recorded = {source: recorded_widths(*source) for source in sources}
    _require_recorded(recorded, options.learner, options.width)
    for stream, file in sources:
        for learner in [name for name in options.learner if name in recorded[stream, file]]:
            widths = options.width and [width for width in options.width if width in recorded[stream, file][learner]]
            if widths == []:
                continue
            for runs in recorded_groups(stream, learner, widths, file, decisions=True):
                models.append(fit_trainings(runs, options.reward_on))
                names += [stream, f"{stream}:{runs[0].width}"]
                if options.real and (options.real_on is None or {*names[-2:]} & {*options.real_on}):
                    streams.append(RealStream.of(runs[0], models[-1], options.reward_on))
                    streams[-1].require_same(runs[0])
                learned_on.append(f"{stream}: {learner} {runs[0].width}")
    if other := [name for name in options.real_on or [] if name not in names]:
        known = ", ".join(dict.fromkeys(names))
        raise ValueError(f"--real-on {other[0]}: no surrogate has this stream and width; give some of {known}")
    about = {"learned_on": learned_on, "reward_on": options.reward_on}
    network = learn(
        models,
        **prices,
        steps=int(options.steps),
        seed=options.seed,
        units=options.units,
        dead=options.dead,
        progress=console.is_terminal,
        about=about,
        real=RealRuns(streams, options.real, workers, partial(_report, console, options.real)) if streams else None,
        keep=partial(_keep, console, options.out),
    )
    network.save(options.out)
    afterwards = f", then on {options.real} real runs" * bool(options.real)
    say(console, f"{options.out}: learned on {'; '.join(learned_on)}{afterwards}")
    high = {name: price[1] for name, price in prices.items()}
    fields = ",".join(f"{name}={price_word(price)}" for name, price in high.items() if price or name == "pass_price")
    say(console, f"{options.out}: alma run … --agent {options.learner[0]} --policy {options.out}:{fields}")
    return 0


def _require_recorded(
    recorded: Mapping[tuple[str, Path | None], Mapping[str, set[int | None]]],
    learners: Sequence[str],
    widths: Sequence[int] | None,
) -> None:
    """Raise ValueError if no stream has runs of a learner or of a width, or a stream has none that is wanted."""
    known = "; ".join(
        f"{stream}: " + ", ".join(f"{learner} {_listed(found)}" for learner, found in sorted(of.items()))
        for (stream, _), of in recorded.items()
    )
    for learner in learners:
        if not any(learner in of for of in recorded.values()):
            raise ValueError(f"--learner {learner}: no given stream has runs of it; recorded are {known}")
    wanted = {source: [of[learner] for learner in learners if learner in of] for source, of in recorded.items()}
    for width in widths or []:
        if not any(width in found for of in wanted.values() for found in of):
            raise ValueError(f"--width {width}: no given stream has runs of it; recorded are {known}")
    for (stream, _), of in wanted.items():
        if widths and not any({*widths} & found for found in of):
            raise ValueError(f"{stream}: none of --width {' '.join(map(str, widths))}; recorded are {known}")


def _listed(widths: set[int | None]) -> str:
    return "/".join(sorted(map(str, widths), key=natural_key))


def _keep(console: Console, out: Path, network: ScheduleNetwork) -> None:
    if "stopped_after" in network.about:
        file = stopped_file(out)
        network.save(file)
        say(console, f"{file}: the network so far, stopped after {network.about['stopped_after']:,} trainings")
        return
    network.save(out)
    if "real_runs" not in network.about:
        say(console, f"{out}: learned on the surrogates; the real runs follow, and each update replaces this file")


def _report(console: Console, count: int, done: int, runs: int, cost: float) -> None:
    say(
        console,
        f"{done} of {count} real runs; the mean cost of the newest {runs} is {cost:.3f} times that of the best of some "
        "simple schedules, simulated",
    )
