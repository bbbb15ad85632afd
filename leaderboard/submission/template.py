"""Write the template of a submission, for ``alma-leaderboard init``. The template passes the check and runs."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from leaderboard.errors import SubmissionError

FILES = ("agent.py", "submission.toml")


def init(folder: Path) -> list[Path]:
    """Write the template into a new or empty folder, and return the paths of its files; else raise SubmissionError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SubmissionError(f"{folder}: exists, and nothing is overwritten; choose a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    templates = resources.files("leaderboard.submission") / "templates"
    for name in FILES:
        (folder / name).write_bytes((templates / name).read_bytes())
    return [folder / name for name in FILES]
