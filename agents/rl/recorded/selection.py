"""Which recorded runs a surrogate is fitted to: those of the package or of a file, by stream, learner and width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.rl.recorded.recording import Recording
from agents.rl.recorded.recordings import groups, load
from agents.rl.registration import DECISIONS, OF_RECORDED_RUNS, SHIPPED, shipped_streams
from alma_env.errors import did_you_mean

SINGLE = "sm"  # the learner from which the others grow


def shipped_file(stream: str, *, decisions: bool = False) -> Path:
    """Return the file of recorded runs that comes with the package.

    Args:
        stream: id of the stream's environment.
        decisions: the runs for the second surrogate, which replay parts of the data and restart, if there are any.

    Raises:
        ValueError: no runs of this stream come with the package.
    """
    name = stream.removesuffix("-ALMA-v0")
    if decisions and (file := SHIPPED / f"{name}{DECISIONS}.npz").is_file():
        return file
    if not (file := SHIPPED / f"{name}.npz").is_file():
        raise ValueError(
            f"stream={stream!r}: no recorded runs come with the package (only of {', '.join(shipped_streams())}"
            f"{did_you_mean(stream, shipped_streams())}); record runs with `alma surrogate record`, write a file with "
            "`alma surrogate fit RUNS --out FILE.npz`, and give it: on the command line in the place of the id, in "
            "Python as recorded=FILE"
        )
    return file


def shipped_runs(stream: str, *, decisions: bool = False) -> list[Recording]:
    """Return the recorded runs that come with the package, see `shipped_file`."""
    return load(shipped_file(stream, decisions=decisions))


def named_file(given: str) -> Path | None:
    """Return the file of recorded runs that an argument names; None if the argument is the id of a stream."""
    file = Path(given)
    return file if file.is_file() or file.suffix == ".npz" else None


def named_recordings(given: str, *, decisions: bool = False) -> list[Recording]:
    """Return the recorded runs of a file, or the package's runs of a stream."""
    return shipped_runs(given, decisions=decisions) if (file := named_file(given)) is None else load(file)


def stream_of(recorded: str | Path | None) -> str:
    """Return the id of the stream of a file of recorded runs.

    Raises:
        ValueError: there is no file, it cannot be read, or its runs are not of one stream.
    """
    if recorded is None:
        raise ValueError(
            f"recorded=None: {OF_RECORDED_RUNS} is for recorded runs of your own; give recorded=FILE, written by "
            "`alma surrogate fit RUNS --out FILE.npz`"
        )
    streams = sorted({one.env for one in load(Path(recorded))})
    if len(streams) != 1:
        raise ValueError(
            f"recorded={str(recorded)!r}: runs on {', '.join(streams) or 'no stream'}; write the runs of one stream to "
            "a file with `alma surrogate fit RUNS --out FILE.npz`"
        )
    return streams[0]


def recorded_groups(
    stream: str,
    learner: str,
    width: int | Sequence[int] | None,
    recorded: str | Path | None,
    *,
    decisions: bool = False,
    repeated: bool = False,
) -> list[list[Recording]]:
    """Return the recorded runs of one learner on a stream, one list per width; see `curves_for` and `shipped_runs`.

    With ``decisions``, the runs of a learner that grows are followed by those of the single model from which it grows:
    for a fit, which counts a run once, those that repeat none of them, and all of them if ``repeated``.
    """
    if recorded is None:
        file, all_runs = "the package", shipped_runs(stream, decisions=decisions)
    else:
        file, all_runs = Path(recorded).name, load(Path(recorded))
    runs_of_stream = [one for one in all_runs if one.env == stream]
    found = groups(one for one in runs_of_stream if one.learner == learner)
    if not runs_of_stream:
        streams = sorted({one.env for one in all_runs})
        raise ValueError(
            f"stream={stream!r}: no runs in {file}, which has runs on {', '.join(streams) or 'no stream'}"
            f"{did_you_mean(stream, streams)}; name one of these streams, or give a file with recorded runs of yours"
        )
    if not found:
        known = "; ".join(sorted({f"{one.env}: {one.learner}" for one in all_runs}))
        raise ValueError(
            f"stream={stream!r}, learner={learner!r}: no runs in {file}, which has {known or 'none'}; name one of "
            "these learners, or record such runs, and write them to a file with alma surrogate fit RUNS --out FILE.npz"
        )
    by_width = sorted(found, key=lambda key: (key[2] or 0, key[3]))  # an agent of the user may have no width
    known_widths = [key[2] for key in by_width]
    widths = known_widths if width is None else np.atleast_1d(width).tolist()
    for wanted in widths:
        if known_widths.count(wanted) != 1:
            what = "runs with several settings" if wanted in known_widths else "no runs"
            raise ValueError(
                f"learner={learner!r}, width={wanted!r}: {what} in {file} (its widths are {known_widths}); "
                "record such runs, and write them to a file with alma surrogate fit RUNS --out FILE.npz"
            )
    if not widths:
        raise ValueError(f"width={width!r}: must be at least one width; leave it out for all of {file}, {known_widths}")
    singles = runs_of_stream if decisions else []
    chosen = []
    for runs in (found[key] for key in by_width if key[2] in widths):
        trained = set() if repeated else {one.identity for one in runs}
        chosen.append([*runs, *(one for one in without_growth(runs, singles) if one.identity not in trained)])
    return chosen


def recorded_widths(stream: str, recorded: Path | None) -> dict[str, set[int | None]]:
    """Return the ids of the learners that have recorded runs on a stream, with all decisions, and their widths."""
    widths: dict[str, set[int | None]] = {}
    for one in load(recorded) if recorded else shipped_runs(stream, decisions=True):
        if one.env == stream:
            widths.setdefault(one.learner, set()).add(one.width)
    return widths


def without_growth(runs: Sequence[Recording], recorded: Sequence[Recording]) -> list[Recording]:
    """Return the recorded runs of the single model from which a learner grows, as runs of this learner.

    They are its runs without growth, up to rounding. Some may have the trainings of an exploring run of the learner;
    without them, a schedule would lack a seed.

    Args:
        runs: of the learner, with one width; if it never grows in them, none is returned, and none that they have
            under this name.
        recorded: runs of the same stream.
    """
    if not any(one.column("grow").any() for one in runs):
        return []
    first = runs[0]
    own = {(one.schedule, one.seed) for one in runs}
    return [
        replace(one, learner=first.learner, settings=first.settings, schedule=f"{one.schedule}, growth never")
        for one in recorded
        if one.learner == SINGLE
        and _start_of(one) == _start_of(first)
        and (f"{one.schedule}, growth never", one.seed) not in own
    ]


def _start_of(run: Recording) -> tuple[Any, ...]:
    """Return what the runs of a learner without growth share with those of the single model."""
    agent = run.run_config.agent
    return run.width, run.parameters, run.run_config.protocol, agent.stage, bool(agent.record.get("from_scratch"))
