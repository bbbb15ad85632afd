"""``alma envs`` and ``alma agents``: the environments, and the agents with their hyper-parameters."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.catalogue import hyperparameters
from agents.catalogue.hyperparameters import HyperParameter
from agents.catalogue.methods import METHODS, TEXT_METHODS, method_for
from agents.catalogue.recipes import recipe_for
from agents.cli import json_output
from agents.cli.console import print_uncut
from agents.rl.registration import OF_RECORDED_RUNS, shipped_streams
from alma_env.data.datasets import TEXT
from alma_env.registration import ARRAYS_ID, PROTOCOLS, TEXT_ID, TEXT_TICKS


def envs(options: argparse.Namespace, console: Console) -> int:
    """Print the environments."""
    streams = _streams()
    if options.json:
        json_output.write(streams)
        return 0
    table = Table(title="Environments", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", no_wrap=True)
    for column in ("data", "B", "recipe", "waits compared"):
        table.add_column(column, overflow="fold")
    for stream in streams:
        recipe, waits = f"{stream['backbone']}-{stream['width']}", ", ".join(map(str, stream["waits"]))
        table.add_row(stream["id"], stream["data"], str(stream["ticks"] or "any"), recipe, waits)
    table.caption = (
        "B: mega-batches. X-ALMA-v0 has a decision environment X-ALMA-Wait-v0 (v1: all decisions, at prices). "
        f"{', '.join(shipped_streams())} also have surrogates X-ALMA-Wait-Surrogate-v0 and v1, which come with the "
        f"package. {OF_RECORDED_RUNS}-v0 and v1 are surrogates of runs of your own, on any stream but text: they need "
        "recorded=FILE, which `alma surrogate fit` writes. `alma envs --json` has every id in full."
    )
    table.caption_justify = "left"
    print_uncut(console, table)
    return 0


def _streams() -> list[dict[str, Any]]:
    """Return each stream: id, data, number of mega-batches, recipe, and the ids of its decision environments."""
    described = {id: (protocol["data"], protocol["data"], protocol["ticks"]) for id, protocol in PROTOCOLS.items()}
    described[TEXT_ID] = (TEXT, "text files, or the package's own text", TEXT_TICKS)
    described[ARRAYS_ID] = ("Arrays", "your own arrays, files or data sets", None)
    streams = []
    for id, (data, text, ticks) in described.items():
        recipe = recipe_for(data)
        beginnings = (id.removesuffix("v0") + "Wait-", *[OF_RECORDED_RUNS] * (id != TEXT_ID))
        decisions = [other for other in gymnasium.registry if other.startswith(beginnings)]
        streams.append(
            {
                "id": id,
                "data": text,
                "ticks": ticks,
                "backbone": recipe.backbone,
                "width": recipe.width,
                "waits": list(recipe.waits),
                "decision_environments": decisions,
                "surrogate_in_package": id in shipped_streams(),
            }
        )
    return streams


def agents(options: argparse.Namespace, console: Console) -> int:
    """Print the agents, or one agent, with the meaning of every hyper-parameter."""
    if options.agent is not None:
        method_for(options.agent, "mlp")  # raises for an unknown id
    kinds = {
        "images": {id: method for id, method in METHODS.items() if options.agent in (None, id)},
        "text": {id: method for id, method in TEXT_METHODS.items() if options.agent in (None, id)},
    }
    common = {
        "of every agent": hyperparameters.of_every_agent(),
        "of every stage; the recipe of the data set has other defaults": hyperparameters.of_a_stage(),
        "of the network, on text": hyperparameters.of_the_network_on_text(),
    }
    if options.json:
        methods = {
            kind: {id: {"title": one.title, "own": hyperparameters.of_method(one)} for id, one in of_kind.items()}
            for kind, of_kind in kinds.items()
        }
        names = ("every agent", "stage", "network on text")
        json_output.write({"agents": methods, "common": dict(zip(names, common.values(), strict=True))})
        return 0
    for kind, of_kind in kinds.items():
        for id, method in of_kind.items():
            if kind == "text" and method == METHODS[id]:
                continue  # the same as on images
            console.print(f"[bold]{id}[/]{' on text' if kind == 'text' else ''}: {escape(method.title)}")
            _print_parameters(console, hyperparameters.of_method(method))
    for title, parameters in common.items():
        console.print(f"[bold]Hyper-parameters {title}[/]")
        _print_parameters(console, parameters)
    absent = ", ".join(id for id in METHODS if id not in TEXT_METHODS)
    console.print(f"Not on text: {absent}. Give a hyper-parameter as --set name=value.", highlight=False)
    return 0


def _print_parameters(console: Console, parameters: Sequence[HyperParameter]) -> None:
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for parameter in parameters:
        meaning = parameter.meaning.replace("``", "").replace("`", "")
        table.add_row(f"  {parameter.name}={parameter.default}", escape(meaning))
    console.print(table)
    console.print()
