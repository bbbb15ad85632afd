"""``alma surrogate record``, ``fit``, ``validate`` and ``export``: surrogates, and the runs that they are fitted to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.analysis.schedules.names import schedule_name
from agents.cli.console import number_text, print_uncut
from agents.cli.options.shared_options import prepare_file, require_settings
from agents.cli.runs.run_sweep import compute
from agents.policies.validation import key_values
from agents.rl.environments import export as minari_export
from agents.rl.models.learning_curve import fit as fit_curve
from agents.rl.models.training_fit import fit_trainings
from agents.rl.recorded import recordings
from agents.rl.recorded.plan import SEEDS, recording_specs
from agents.rl.recorded.recording import Recording
from agents.rl.recorded.selection import named_recordings, without_growth
from agents.rl.registration import OF_RECORDED_RUNS
from agents.rl.surrogates import decision_fidelity, fidelity
from agents.sweeps.progress import say

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
    """Gather finished runs, and files of them, into one file."""
    prepare_file(options.out, ".npz", "NumPy writes an archive; let its name end in .npz")
    recorded = recordings.gathered(*options.runs)
    table = Table("env", "learner", "width", "runs", "schedules", "trainings", title="Recorded runs", box=None)
    for (env, learner, width, _), runs in recordings.groups(recorded).items():
        # They raise before anything is written if the runs cannot be fitted.
        (fit_trainings if any(run.explores for run in runs) else fit_curve)(runs)
        schedules = {run.schedule for run in runs}
        trainings = sum(len(run.trainings) for run in runs)
        table.add_row(env, learner, str(width), str(len(runs)), str(len(schedules)), f"{trainings:,}")
    recordings.save(recorded, options.out)
    print_uncut(console, table)
    say(console, f"{options.out}: use it as recorded={options.out}, for example with {OF_RECORDED_RUNS}-v0 or v1")
    if exploring := sum(run.explores for run in recorded):
        say(console, f"{exploring} of {len(recorded)} runs replay a part of the data, or restart: only v1 uses them")
    return 0


def validate(options: argparse.Namespace, console: Console) -> int:
    """Compare the ranks of schedules in a surrogate with their ranks in real runs."""
    if options.episodes is not None and options.episodes < 1:
        raise ValueError(f"--episodes {options.episodes}: must be at least 1; leave it out for the default")
    known = named_recordings(options.recorded, decisions=options.decisions)
    for width in options.width or []:
        if width not in (widths := {one.width for one in known}):
            has = ", ".join(map(str, sorted(widths, key=lambda one: one or 0)))
            raise ValueError(f"--width {width}: {options.recorded} has the widths {has}; name some, or leave it out")
    chosen = [one for one in known if options.width is None or one.width in options.width]
    for (env, learner, width, _), runs in recordings.groups(chosen).items():
        possible = [run for run in runs if run.inexpressible is None]
        if options.decisions or not possible:
            # Of two runs with the same trainings the first counts: that of a schedule, and not one that explores.
            runs = [*without_growth(runs, [one for one in known if one.env == env]), *runs]
            episodes = options.episodes or decision_fidelity.EPISODES
            _validate_decisions(f"{env}, {learner} {width}, v1", runs, episodes, console)
            continue
        compared = fidelity.held_out(possible, options.episodes or fidelity.EPISODES)
        _name_left_out(runs, console)
        table = Table("schedule, held out", "runs", "CER, real", "CER, surrogate", box=None)
        table.title = f"{env}, {learner} {width}, v0"
        for one in sorted(compared, key=lambda one: one.real):
            table.add_row(escape(schedule_name(one.schedule)), str(one.runs), f"{one.real:.2f}", f"{one.surrogate:.2f}")
        print_uncut(console, table)
        rank = fidelity.rank_correlation(compared)
        console.print(f"rank correlation of {len(compared)} schedules: {number_text(rank)}\n", highlight=False)
    return 0


def _validate_decisions(title: str, runs: list[Recording], episodes: int, console: Console) -> None:
    compared = decision_fidelity.held_out(runs, episodes)
    table = Table("schedule, held out", "runs", "CER, real", "±", "CER, surrogate", "±", box=None, title=title)
    ranked = [one for one in compared if len(one.real) > 1]
    for one in sorted(ranked, key=lambda one: float(one.real.mean())):
        numbers = (one.real.mean(), one.real.std(ddof=1), one.simulated.mean(), one.simulated.std(ddof=1))
        table.add_row(escape(schedule_name(one.schedule)), str(len(one.real)), *(f"{number:.2f}" for number in numbers))
    if ranked:
        print_uncut(console, table)
    else:
        console.print(title, highlight=False)
    found = decision_fidelity.fidelity(compared)
    runs_of_all = sum(len(one.real) for one in compared)
    inside = f"{found.coverage:.1%} of them in the 90 % band"
    of_runs = f"rank correlation of {runs_of_all} runs: {number_text(found.run_ranks)}; {inside}"
    if not found.schedules:
        console.print(f"no schedule has two runs; {of_runs}\n", highlight=False)
        return
    parts = (
        f"rank correlation of {found.schedules} schedules: {number_text(found.ranks)}, of {found.near} near the best: "
        f"{number_text(found.near_ranks)}",
        f"estimates for other runs, real ones, of as many seeds: {number_text(found.real_ranks)} and "
        f"{number_text(found.real_near_ranks)}",
        f"quotient of the CER: {found.level:.3f}, of the spread: {number_text(found.spread, '.2f')}",
        of_runs,
        f"correlation of two schedules over seeds: {number_text(found.luck, '.2f')}",
        "±: standard deviation",
    )
    console.print("; ".join(parts) + "\n", highlight=False)


def _name_left_out(runs: Sequence[Recording], console: Console) -> None:
    """Name the runs that no action of Wait-v0 expresses."""
    left_out = [f"{one.schedule}, seed {one.seed}: {why}" for one in runs if (why := one.inexpressible)]
    if left_out:
        more = [f"… and {len(left_out) - _SHOWN} more"] * (len(left_out) > _SHOWN)
        say(console, "\n".join([f"{len(left_out)} of {len(runs)} runs are left out:", *left_out[:_SHOWN], *more]))


def export(options: argparse.Namespace, console: Console) -> int:
    """Write recorded runs as a Minari data set."""
    known = named_recordings(options.recorded)
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
