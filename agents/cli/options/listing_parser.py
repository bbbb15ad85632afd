"""The options of the subcommands that describe ``alma`` and start something new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.cli.options.subcommands import add_command, add_json

SHELLS = ("bash", "zsh", "tcsh")


def add_listings(commands: Any) -> None:
    """Add ``alma envs`` and ``alma agents``."""
    add_json(add_command(commands, "envs", "runs.listing:envs", "list the environments"))
    summary = "list the agents, and explain their hyper-parameters"
    agents = add_command(commands, "agents", "runs.listing:agents", summary)
    agents.add_argument("agent", nargs="?", help="id of one agent; default: all")
    add_json(agents)


def add_beginnings(commands: Any) -> None:
    """Add ``alma new`` and ``alma completion``."""
    summary = "write a starting point for a learner, a policy or a submission of your own, with its tests"
    add = add_command(commands, "new", "starting_points:new", summary).add_argument
    add("what", choices=("agent", "policy", "submission"), help="what to start")
    add(
        "path", nargs="?", type=Path, help="file to write, default my_agent.py or my_policy.py; of a submission: folder"
    )
    summary = "print a script that completes the words of alma in your shell"
    completion = add_command(commands, "completion", "completion:completion", summary)
    completion.add_argument("shell", choices=SHELLS, help="bash: alma completion bash > ~/.alma && source ~/.alma")
