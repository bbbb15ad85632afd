"""Write the template of a submission, for ``alma-leaderboard init``. The template passes the check and runs."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from leaderboard.errors import SubmissionError

FILES = ("agent.py", "submission.toml")


def init(folder: Path) -> list[Path]:
    """Write the template into a new or empty folder, and return the paths of its files.

    Raises:
        SubmissionError: the path is a file, or a folder that is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SubmissionError(f"{folder}: exists, and nothing is overwritten; choose a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in FILES:
        content = (resources.files("leaderboard.submission") / "templates" / name).read_text(encoding="utf-8")
        (folder / name).write_text(content, encoding="utf-8")
        written.append(folder / name)
    return written
