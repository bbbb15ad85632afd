"""``alma show``, ``alma table`` and ``alma pack``: commands that read finished runs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.analysis import measures, tables, tables_text
from agents.analysis.labels import labels_of, natural_key
from agents.cli import json_output
from agents.cli.console import draw_curves
from agents.policies.validation import key_values
from agents.reproduction.outcome import recorded_files
from agents.runs import archive, load
from agents.runs.load import FinishedRun
from agents.sweeps.progress import say
from alma_env import Ledger
from alma_env.files import replace_file


def show(options: argparse.Namespace, console: Console) -> int:
    """Print a table and draw the errors of the finished runs below a folder."""
    found, left_out = load.find(options.folder)
    say(json_output.messages(console, as_json=options.json), *left_out)
    labelled = {measure: _labelled(found, measure) for measure in (measures.ERROR_RATE, measures.PERPLEXITY)}
    if options.json:
        listed = [one for of_measure in labelled.values() for one in of_measure]
        listed.sort(key=lambda one: (one[1].run_config.env, natural_key(one[0]), one[1].seed))
        json_output.write([_summary(label, run) for label, run in listed])
        return 0
    if len(found) == 1 and not left_out:
        console.print_json(json.dumps(found[0].config))
    for measure, measured in labelled.items():  # error rates and perplexities have no common table
        if measured:
            streams = ", ".join(sorted({run.run_config.env for _, run in measured}))
            groups: dict[str, dict[int, Ledger]] = {}
            for label, run in measured:
                if run.seed in groups.setdefault(label, {}):
                    say(console, f"{run.folder}: {label}, seed {run.seed} with another computation; counted once")
                groups[label].setdefault(run.seed, run.ledger)
            ledgers = {label: list(groups[label].values()) for label in sorted(groups, key=natural_key)}
            console.print(measures.table(ledgers, title=streams, measure=measure))
            draw_curves(console, ledgers, picture_folder(options.folder), streams, measure)
    return 0


def _labelled(runs: Sequence[FinishedRun], measure: measures.Measure) -> list[tuple[str, FinishedRun]]:
    """The runs with a measure, each with the name of its line in the table."""
    measured = [run for run in runs if measures.measure_of(run.run_config.protocol) == measure]
    return list(zip(labels_of([run.run_config for run in measured]), measured, strict=True))


def _summary(label: str, run: FinishedRun) -> dict[str, Any]:
    """The result of a run and its configuration, for other programs."""
    score = dataclasses.asdict(run.ledger.score())
    return {"folder": run.folder, "label": label, "seed": run.seed, "score": score, "config": run.config}


def picture_folder(path: Path) -> Path:
    """Return the folder for a picture of the runs in a folder or packed file."""
    return path.parent if path.is_file() else path


def table(options: argparse.Namespace, console: Console) -> int:
    """Compare finished runs in a table that can be published."""
    said = json_output.messages(console, as_json=options.format == "json" and options.out is None)
    comparisons = tables.compare(chosen_runs(options, said), options.by, options.against)
    text = tables_text.joined(comparisons, options.format)
    say(said, *dict.fromkeys(note for comparison in comparisons for note in comparison.notes))
    if options.out is None:
        say(console, text.rstrip("\n"))
        return 0
    ending = tables_text.ENDINGS[options.format]
    if options.out.is_dir():
        raise ValueError(f"--out {options.out}: it is a folder, and must be a file; choose another name")
    file = options.out if options.out.suffix == ending else options.out.with_name(options.out.name + ending)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, text)
    say(console, f"{file}: {sum(len(comparison.lines) for comparison in comparisons)} lines")
    return 0


def pack(options: argparse.Namespace, console: Console) -> int:
    """Write finished runs into one small file."""
    archive.require_name(options.out)  # first, because reading the runs may take minutes
    out = options.out.resolve()
    replaced = out.exists() and any(out.is_relative_to(path.resolve()) for path in options.paths)
    runs, left_out = load.find(*options.paths, strict=replaced)  # runs that cannot be read would be lost
    if not runs:
        raise ValueError(f"{' '.join(map(str, options.paths))}: no finished run; finish one first")
    load.pack(runs, options.out)
    size = options.out.stat().st_size
    say(console, *left_out, f"{options.out}: {len(runs)} runs, {size / 1024:,.0f} KiB")
    return 0


def chosen_runs(options: argparse.Namespace, console: Console) -> list[FinishedRun]:
    """The finished runs that ``PATH``, ``--recorded`` and ``--where`` choose; print each run that is left out.

    Raises:
        ValueError: no path is given, or there is no such run.
    """
    paths = [*options.paths, *(recorded_files() if options.recorded else ())]
    if not paths:
        raise ValueError("no PATH: give folders of runs or packed files, or --recorded for the runs of the package")
    runs, left_out = load.find(*paths)
    say(console, *left_out)
    given = {key: _several(value) for key, value in key_values(options.where, "--where", "width=4,16").items()}
    where = {key: value if isinstance(value, tuple | list) else (value,) for key, value in given.items()}
    for key, accepted in where.items():
        if runs:
            _require_value(runs, key, accepted)
    kept = [run for run in runs if all(run.run_config.get(key, _MISSING) in where[key] for key in where)]
    if not kept:
        what = f"none of {len(runs)} finished runs has all of {' '.join(options.where)}" if runs else "no finished run"
        raise ValueError(f"{' '.join(map(str, paths))}: {what}; finish one first, or choose other runs")
    return kept


def _require_value(runs: Sequence[FinishedRun], key: str, accepted: Sequence[Any]) -> None:
    """Raise ValueError if no run has one of the accepted values of a key, for each of these values."""
    given = f"--where {key}={','.join(map(str, accepted))}"
    found = [run.run_config.get(key) for run in runs if run.run_config.get(key, _MISSING) is not _MISSING]
    if not found:
        raise ValueError(
            f"{given}: no run has such a value; the keys are {', '.join(_KEYS)}, and the dotted names of a "
            "config.json, such as agent.stage.epochs"
        )
    for value in accepted:
        if value in found:
            continue
        values = sorted({str(value) for value in found}, key=natural_key)
        this = "this value" if len(accepted) == 1 else f"the value {value}"
        raise ValueError(
            f"{given}: none of {len(runs)} finished runs has {this}; choose among {', '.join(values[:_SHOWN])}"
            f"{', …' * (len(values) > _SHOWN)}"
        )


def _several(value: Any) -> Any:
    """A tuple for text such as ``sm,ens``, which is no Python literal."""
    return tuple(value.split(",")) if isinstance(value, str) and "," in value else value


_KEYS = ("env", "agent", "width", "wait", "replay", "seed")
_MISSING = object()
_SHOWN = 12  # values in a message
