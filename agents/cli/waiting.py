"""``alma surrogate`` and ``alma policy``: fit and validate surrogates; learn policies and compare schedules."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import alma_env
from agents.analysis.labels import differing_paths
from agents.catalogue.data_facts import facts_of
from agents.catalogue.spec import RunSpec, resolve
from agents.cli.run_sweep import OPTIONS, compute, run_in_turn
from agents.cli.shared_options import prepare_file, price_word, require_settings
from agents.policies.priced_features import PRICES
from agents.policies.validation import key_values
from agents.rl.environments import export as minari_export
from agents.rl.environments.price_range import PriceRange
from agents.rl.learning.saving import save_policy
from agents.rl.learning.train import train_policy
from agents.rl.models import recordings, selection
from agents.rl.models.learning_curve import fit as fit_curve
from agents.rl.models.recording_plan import SEEDS, recording_specs
from agents.rl.models.selection import without_growth
from agents.rl.models.training_fit import fit_trainings
from agents.rl.registration import OF_RECORDED_RUNS, require_trainable
from agents.rl.surrogates import decision_fidelity, fidelity
from agents.sweeps import grid
from agents.sweeps.progress import say
from alma_env.registration import ARRAYS_ID

_SHOWN = 10  # of the runs that are left out
# Keys that --set must not give, and what to write instead.
_RECORDING_OPTIONS = {
    **dict.fromkeys(("learner", "agent", "id"), "--learner {}"),
    **dict.fromkeys(("env", "stream"), "{} right after `alma surrogate record`"),
    **dict.fromkeys(("width", "widths"), "--width {}"),
    **dict.fromkeys(("seed", "seeds"), "--seeds {}"),
    "exploring": "--exploring {}",
    "threads": "--threads {}",
}
_OF_THE_PLAN = dict.fromkeys(
    ("policy", "wait", "replay", "growth", "engine", "device"),
    "the command sets it for each of its runs; leave it out, or compute runs of your own with `alma sweep --record`",
)
_TRAINING_OPTIONS = {
    "env_id": "{} right after `alma policy train`",
    **{name: f"--{name} {{}}" for name in ("algorithm", "steps", "seed", "tensorboard")},
}
_OF_PYTHON = {
    "settings": "keywords of the algorithm can be given in Python only; call `agents.rl.train_policy`",
    "progress": "a terminal shows the progress; leave it out",
}


def _recordings(given: str, *, decisions: bool = False) -> list[recordings.Recording]:
    if (file := selection.named_file(given)) is not None:
        return recordings.load(file)
    return selection.shipped_runs(given, decisions=decisions)


def record(options: argparse.Namespace, console: Console) -> int:
    """Compute the runs from which a surrogate learns; with --dry-run list them."""
    settings = key_values(options.set)
    require_settings(settings, _RECORDING_OPTIONS, _OF_THE_PLAN)
    specs = recording_specs(
        options.env,
        options.learner,
        options.width or (None,),
        seeds=options.seeds or SEEDS,
        exploring=options.exploring,
        **settings,
    )
    return compute(specs, options, console)


def fit(options: argparse.Namespace, console: Console) -> int:
    """Gather finished runs into one file."""
    prepare_file(options.out, ".npz", "NumPy writes an archive; let its name end in .npz")
    recorded = recordings.read_runs(*options.runs)
    table = Table("env", "learner", "width", "runs", "schedules", "trainings", title="Recorded runs", box=None)
    for (env, learner, width, _), runs in recordings.groups(recorded).items():
        # They raise before anything is written if the runs cannot be fitted.
        (fit_trainings if any(run.explores for run in runs) else fit_curve)(runs)
        schedules = {run.schedule for run in runs}
        trainings = sum(len(run.trainings) for run in runs)
        table.add_row(env, learner, str(width), str(len(runs)), str(len(schedules)), f"{trainings:,}")
    recordings.save(recorded, options.out)
    console.print(table)
    say(console, f"{options.out}: use it as recorded={options.out}, for example with {OF_RECORDED_RUNS}-v0 or v1")
    if exploring := sum(run.explores for run in recorded):
        say(console, f"{exploring} of {len(recorded)} runs replay a part of the data, or restart: only v1 uses them")
    return 0


def validate(options: argparse.Namespace, console: Console) -> int:
    """Compare the ranks of schedules in a surrogate with their ranks in real runs."""
    if options.episodes is not None and options.episodes < 1:
        raise ValueError(f"--episodes {options.episodes}: must be at least 1; leave it out for the default")
    known = _recordings(options.recorded, decisions=options.decisions)
    for width in options.width or []:
        if width not in (widths := {one.width for one in known}):
            has = ", ".join(map(str, sorted(widths, key=lambda one: one or 0)))
            raise ValueError(f"--width {width}: {options.recorded} has the widths {has}; name some, or leave it out")
    chosen = [one for one in known if options.width is None or one.width in options.width]
    for (env, learner, width, _), runs in recordings.groups(chosen).items():
        if options.decisions or any(run.explores for run in runs):
            runs = [*runs, *without_growth(runs, [one for one in known if one.env == env])]
            episodes = options.episodes or decision_fidelity.EPISODES
            _validate_decisions(f"{env}, {learner} {width}", runs, episodes, console)
            continue
        possible = [run for run in runs if run.inexpressible is None]
        compared = fidelity.held_out(possible, options.episodes or fidelity.EPISODES)
        _name_left_out(runs, console)
        table = Table("schedule, held out", "runs", "CER, real", "CER, surrogate", box=None)
        table.title = f"{env}, {learner} {width}"
        for one in sorted(compared, key=lambda one: one.real):
            table.add_row(escape(one.schedule), str(one.runs), f"{one.real:.2f}", f"{one.surrogate:.2f}")
        console.print(table)
        rank = fidelity.rank_correlation(compared)
        console.print(f"rank correlation of {len(compared)} schedules: {rank:.3f}\n", highlight=False)
    return 0


def _validate_decisions(title: str, runs: list[recordings.Recording], episodes: int, console: Console) -> None:
    compared = decision_fidelity.held_out(runs, episodes)
    table = Table("schedule, held out", "runs", "CER, real", "±", "CER, surrogate", "±", box=None, title=title)
    ranked = [one for one in compared if len(one.real) > 1]
    for one in sorted(ranked, key=lambda one: float(one.real.mean())):
        numbers = (one.real.mean(), one.real.std(ddof=1), one.simulated.mean(), one.simulated.std(ddof=1))
        table.add_row(escape(one.schedule), str(len(one.real)), *(f"{number:.2f}" for number in numbers))
    if ranked:
        console.print(table)
    else:
        console.print(title, highlight=False)
    found = decision_fidelity.fidelity(compared)
    runs_of_all = sum(len(one.real) for one in compared)
    of_runs = (
        f"rank correlation of {runs_of_all} runs: {found.run_ranks:.3f}; {found.coverage:.1%} of them in the 90 % band"
    )
    if not found.schedules:
        console.print(f"no schedule has two runs; {of_runs}\n", highlight=False)
        return
    console.print(
        f"rank correlation of {found.schedules} schedules: {found.ranks:.3f}; of {found.near} near the best: "
        f"{found.near_ranks:.3f}; quotient of the CER: {found.level:.3f}, of the spread: {found.spread:.2f}; "
        f"{of_runs}; correlation of two schedules over seeds: {found.luck:.2f}; ±: standard deviation\n",
        highlight=False,
    )


def _name_left_out(runs: Sequence[recordings.Recording], console: Console) -> None:
    """Name the runs that no action of Wait-v0 expresses."""
    left_out = [f"{one.schedule}, seed {one.seed}: {why}" for one in runs if (why := one.inexpressible)]
    if left_out:
        more = [f"… and {len(left_out) - _SHOWN} more"] * (len(left_out) > _SHOWN)
        say(console, "\n".join([f"{len(left_out)} of {len(runs)} runs are left out:", *left_out[:_SHOWN], *more]))


def export(options: argparse.Namespace, console: Console) -> int:
    """Write recorded runs as a Minari data set."""
    known = _recordings(options.recorded)
    runs = [one for one in known if one.inexpressible is None]
    if not runs:
        raise ValueError(
            f"{options.recorded}: no action of Wait-v0 can express a decision of each of its {len(known)} runs; record "
            "runs with `alma surrogate record … --exploring 0`"
        )
    data = minari_export.to_minari(runs, options.dataset, kind=options.actions)
    _name_left_out(known, console)
    how = f"minari.load_dataset({options.dataset!r}) reads it"
    say(console, f"{options.dataset}: {data.total_episodes} episodes, {data.total_steps:,} steps; {how}")
    return 0


def train(options: argparse.Namespace, console: Console) -> int:
    """Learn a policy; with --evaluate run it afterwards on the real streams."""
    if not math.isfinite(options.steps):
        raise ValueError(f"--steps {options.steps}: must be a finite number of decisions; the default is 2e6")
    keywords = key_values(options.set)
    require_settings(keywords, _TRAINING_OPTIONS, _OF_PYTHON)
    evaluation = None if options.evaluate is None else _evaluation(options, keywords)
    specs = [] if evaluation is None else grid.expand(evaluation)  # reports a wrong keyword before training starts
    prepare_file(options.out, ".zip", "Stable-Baselines3 writes an archive; let the file name end in .zip")
    model = train_policy(
        options.decision_env,
        algorithm=options.algorithm,
        steps=int(options.steps),
        seed=options.seed,
        progress=console.is_terminal,
        tensorboard=options.tensorboard,
        **keywords,
    )
    save_policy(model, options.out)
    if evaluation is None:
        words = [_policy_word(options.out, {**keywords, **prices}) for prices in _ends(keywords)]
        say(console, f"{options.out}: alma run … --policy {' '.join(words)}")
        return 0
    say(console, _words(evaluation, options.runs))
    return run_in_turn(specs, options.runs, console)


def _evaluation(options: argparse.Namespace, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The grid that runs the policy on the real streams of its problem, as a table for `grid.expand`."""
    spec = gym.spec(require_trainable(options.decision_env))
    stream = spec.kwargs["stream"] or selection.stream_of(keywords.get("recorded"))
    if stream == ARRAYS_ID:
        raise ValueError(
            f"--evaluate with {stream}: real runs need the data; leave --evaluate out, and run the policy with "
            "`alma run --data PATH --policy FILE`"
        )
    learner, width = str(keywords.get("learner", "sm")), keywords.get("width")
    widths = [] if width is None else list(width) if isinstance(width, list | tuple) else [width]
    if "-Surrogate" in options.decision_env:
        given = str(keywords.get("recorded", stream))
        found = [
            made
            for made in _recordings(given, decisions=options.decision_env.endswith("-v1"))
            if (made.env, made.learner) == (stream, learner)
        ]
        widths = widths or sorted({made.width for made in found})
        _require_recipe([made for made in found if made.width in widths], stream, learner)
    others = {key: value for key, value in keywords.items() if key not in _DECISIONS}
    require_settings(others, OPTIONS)
    return {
        "env": stream,
        "agent": learner,
        **({"width": widths} if widths else {}),
        "set": {key: [value] for key, value in others.items()},
        "seeds": options.evaluate,
        "policy": [_policy_word(options.out, {**keywords, **prices}) for prices in _ends(keywords)],
    }


def _words(table: Mapping[str, Any], out: Path) -> str:
    """The command line that runs a grid of `_evaluation`."""
    words = ["alma", "run", table["env"], "--agent", table["agent"], "--out", str(out)]
    words += ["--width", *map(str, table["width"])] if "width" in table else []
    words += ["--set", *(f"{key}={value}" for key, (value,) in table["set"].items())] if table["set"] else []
    return shlex.join([*words, "--seeds", *map(str, table["seeds"]), "--policy", *table["policy"]])


def _ends(keywords: Mapping[str, Any]) -> list[dict[str, float]]:
    """The lowest and the highest prices of a policy that learns at prices."""
    ranges = {name: PriceRange.of(name, keywords[name]) for name in PRICES if name in keywords}
    ends = [{name: getattr(price, end) for name, price in ranges.items()} for end in ("low", "high")]
    return ends[: 1 if ends[0] == ends[1] else 2]


def _policy_word(path: Path, keywords: Mapping[str, Any]) -> str:
    """The value of ``--policy`` for a learned policy, with its prices, or with replay and growth if it decides when."""
    fields = [f"{name}={price_word(keywords[name])}" for name in PRICES if name in keywords]
    if keywords.get("actions", "train") == "train":
        fields += ["replay=true"] * bool(keywords.get("replay")) + ["growth=every"] * bool(keywords.get("grow"))
    return f"{path}:{','.join(fields)}" if fields else str(path)


def _require_recipe(recorded: Sequence[recordings.Recording], stream: str, learner: str) -> None:
    usual = resolve(RunSpec(stream, learner), facts_of(alma_env.make(stream))).learner
    for made in recorded:
        theirs = made.run_config.learner
        paths = [path for path in differing_paths([theirs, usual]) if path != "agent.width"]
        if paths:
            differs = ", ".join(f"{path}={theirs.get(path)}" for path in paths)
            raise ValueError(
                f"--evaluate: the recorded runs have {differs}; leave --evaluate out, and run the real stream with "
                f"alma run {stream} --agent {learner} --policy {{FILE}} --set …"
            )


# Keywords of the decision environment and of `train_policy` that are no keywords of the stream or the agent.
_DECISIONS = (
    "episodes_at_once",
    "render_mode",
    "reward",
    "learner",
    "width",
    "recorded",
    "actions",
    "replay",
    "grow",
    "flops_price",
    "parameter_price",
    "pass_price",
    "memory_price",
    "reward_on",
)
