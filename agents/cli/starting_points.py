"""``alma new``: commented, tested starting points for a learner, a policy or a submission of your own."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
from importlib import resources
from pathlib import Path
from string import Template

from rich.console import Console

from agents.sweeps.progress import say
from alma_env import entry_points
from alma_env.errors import MissingPackageError, how_to_install
from alma_env.files import replace_file


def new(options: argparse.Namespace, console: Console) -> int:
    """Write the files of a starting point; nothing that exists is replaced."""
    if options.what == "submission":
        return _submission(options.path or Path("my_submission"))
    file: Path = options.path or Path(f"my_{options.what}.py")
    named = file.stem.isidentifier() and not keyword.iskeyword(file.stem) and file.stem != "__main__"
    if file.suffix != ".py" or not named:
        raise ValueError(f"{file}: must be the name of a Python module, such as my_{options.what}.py")
    hidden = importlib.util.find_spec(file.stem)
    if hidden is not None and hidden.origin is not None and not file.exists():
        raise ValueError(
            f"{file}: Python files in its folder could no longer import the package {file.stem} ({hidden.origin}); "
            f"choose another name, such as my_{options.what}.py"
        )
    test = file.with_name(f"test_{file.name}")
    for path in (file, test):
        if path.exists():
            raise ValueError(f"{path}: exists already; choose another name")
    file.parent.mkdir(parents=True, exist_ok=True)
    for path, template in ((file, f"{options.what}.py.in"), (test, f"test_{options.what}.py.in")):
        text = resources.files("agents.cli").joinpath("templates", template).read_text(encoding="utf-8")
        replace_file(path, Template(text).substitute(file=file.name, module=file.stem))
    say(console, f"{file}: alma run Digits-ALMA-v0 --agent {file}:make_agent", f"{test}: pytest {test}")
    return 0


def _submission(folder: Path) -> int:
    """Let ``alma-leaderboard init`` write the folder: that package stands above this one, which does not import it."""
    for command in entry_points.of_group(entry_points.COMMANDS):
        if command.name == "alma-leaderboard":
            status: int = entry_points.load(command)(["init", str(folder)])
            return status
    raise MissingPackageError(f"the command alma-leaderboard is missing; {how_to_install('web')}")
