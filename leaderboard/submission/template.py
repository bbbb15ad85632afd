"""``alma-leaderboard init``: a new submission that works as it is."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from leaderboard.errors import SubmissionError

FILES = ("agent.py", "submission.toml")


def init(folder: Path) -> list[Path]:
    """Write the template into a folder that has nothing in it yet, and return the files.

    Raises:
        SubmissionError: there is something at the path already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SubmissionError(f"{folder}: there is something already, and nothing is overwritten; choose a new name")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in FILES:
        content = (resources.files("leaderboard") / "templates" / name).read_text(encoding="utf-8")
        (folder / name).write_text(content, encoding="utf-8")
        written.append(folder / name)
    return written
