"""Which recorded runs a surrogate is fitted to: those that come with the package, or a file of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from agents.waiting.curve import Curve, fit
from agents.waiting.recordings import groups, load


def curves_for(
    stream: str,
    learner: str,
    width: int | Sequence[int] | None,
    recorded: str | Path | None,
    reward_on: str = "test",
) -> list[Curve]:
    """The curves of one learner on a stream, fitted to recorded runs: one for each width.

    Args:
        stream: id of the stream's environment.
        learner: id of the learner.
        width: of its network, or several; None: all that were recorded.
        recorded: file of recorded runs; None: what is shipped with the package.
        reward_on: which error, see `agents.waiting.curve.fit`.

    Raises:
        ValueError: no such runs were recorded, or runs of one width that differ in more than schedule and seed.
    """
    file = Path(recorded) if recorded is not None else shipped(stream)
    found = groups(made for made in load(file) if made.env == stream and made.learner == learner)
    widths = [width] if isinstance(width, int) else list(width) if width is not None else None
    there = sorted(key[2] for key in found)
    for wanted in there if widths is None else widths:
        if there.count(wanted) != 1:
            what = "runs with several settings" if wanted in there else "no runs"
            raise ValueError(
                f"learner={learner!r}, width={wanted}: {what} in {file.name} (it has width {there or 'none'}); record "
                "runs of it, and fit them into a file of their own: alma surrogate fit RUNS --out FILE.npz"
            )
    if not there:
        raise ValueError(
            f"stream={stream!r}, learner={learner!r}: no runs in {file.name}; record some, and fit them into a file of "
            "their own: alma surrogate fit RUNS --out FILE.npz"
        )
    return [fit(runs, reward_on) for key, runs in sorted(found.items()) if widths is None or key[2] in widths]


def shipped(stream: str) -> Path:
    """The file of recorded runs that comes with the package.

    Raises:
        ValueError: there is none for this stream.
    """
    folder = Path(str(resources.files("agents.waiting") / "recorded"))
    file = folder / f"{stream.removesuffix('-ALMA-v0')}.npz"
    if not file.is_file():
        names = ", ".join(sorted(f"{path.stem}-ALMA-v0" for path in folder.glob("*.npz")))
        raise ValueError(
            f"stream={stream!r}: no recorded runs of it are shipped (only of {names}); give recorded=FILE, made by "
            "`alma surrogate fit RUNS --out FILE.npz`"
        )
    return file
