"""The options of the subcommands that describe ``alma`` and start something new."""

from __future__ import annotations

from typing import Any

from agents.cli.subcommands import add_command, add_json


def add_listings(commands: Any) -> None:
    """Add ``alma envs`` and ``alma agents``."""
    add_json(add_command(commands, "envs", "listing:envs", "list the environments"))
    summary = "list the agents, and explain their hyper-parameters"
    agents = add_command(commands, "agents", "listing:agents", summary)
    agents.add_argument("agent", nargs="?", help="id of one agent; default: all")
    add_json(agents)
