"""The command ``alma policy train-schedule``: one learned schedule for several streams, widths and prices."""

from __future__ import annotations

import argparse
import math

from rich.console import Console

from agents.cli.tuning import named_runs
from agents.rl.learning_curve import recorded_groups
from agents.rl.train_schedule import train_schedule as learn
from agents.rl.training_fit import fit_trainings
from agents.sweeps.progress import say


def train_schedule(options: argparse.Namespace, console: Console) -> int:
    """Learn a schedule on the surrogates of recorded runs, and write it to a file."""
    if options.out.suffix != ".npz":
        raise ValueError(f"--out {options.out}: NumPy writes an archive; let its name end in .npz")
    if not 1 <= options.steps < math.inf:
        raise ValueError(f"--steps {options.steps}: must be a finite number of trainings from 1 on; the default is 8e6")
    low, high = options.pass_price
    if not 0 <= low <= high < math.inf:
        raise ValueError(f"--pass-price {low:g} {high:g}: must be two ascending prices from 0 on, such as 0 100")
    models, learned_on = [], []
    for stream, file in (named_runs(given, None) for given in options.env):
        for runs in recorded_groups(stream, options.learner, options.width, file, decisions=True):
            models.append(fit_trainings(runs, options.reward_on))
            learned_on.append(f"{stream}: {runs[0].learner} {runs[0].width}")
    about = {"learned_on": learned_on, "reward_on": options.reward_on}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    network = learn(
        models,
        pass_price=(low, high),
        steps=int(options.steps),
        seed=options.seed,
        progress=console.is_terminal,
        about=about,
    )
    network.save(options.out)
    say(console, f"{options.out}: learned on {'; '.join(learned_on)}")
    say(console, f"{options.out}: alma run … --policy {options.out}:pass_price={high:g}")
    return 0
