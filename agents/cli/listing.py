"""``alma envs`` and ``alma agents``: the environments, and the agents with their hyper-parameters."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.catalogue import backbones
from agents.catalogue.methods import METHODS, TEXT_METHODS
from agents.catalogue.recipes import recipe_for
from agents.training.settings import StageSettings
from alma_env.data.datasets import TEXT
from alma_env.registration import ARRAYS_ID, PROTOCOLS, TEXT_ID


def envs(options: argparse.Namespace, console: Console) -> int:
    """Print the environments."""
    table = Table(title="Environments", title_justify="left")
    for column in ("id", "data", "mega-batches B", "recipe", "waits compared"):
        table.add_column(column)
    for id, protocol in PROTOCOLS.items():
        table.add_row(id, protocol["data"], str(protocol["ticks"]), *_recipe(protocol["data"]))
    table.add_row(TEXT_ID, "text files, or the package's own text", "4", *_recipe(TEXT))
    table.add_row(ARRAYS_ID, "your own arrays (Python only)", "ticks=…", "mlp-32", "1, 5")
    table.caption = (
        "X-ALMA-v0 has a decision environment X-ALMA-Wait-v0, and except for text its surrogate "
        "X-ALMA-Wait-Surrogate-v0."
    )
    table.caption_justify = "left"
    console.print(table)
    return 0


def _recipe(data: str) -> tuple[str, str]:
    recipe = recipe_for(data)
    return f"{recipe.backbone}-{recipe.width}", ", ".join(map(str, recipe.waits))


def agents(options: argparse.Namespace, console: Console) -> int:
    """Print the agents."""
    for title, methods in (("Agents", METHODS), ("Agents on text", TEXT_METHODS)):
        table = Table(title=title, title_justify="left", show_lines=True)
        for column in ("id", "method", "hyper-parameters of this agent (default)"):
            table.add_column(column)
        for id, method in methods.items():
            table.add_row(id, escape(method.title), escape(_defaults(method.keywords)))
        console.print(table)
    names = ", ".join(field.name for field in dataclasses.fields(StageSettings))
    text = {name: parameter.default for name, parameter in backbones.own_keywords("switch").items()}
    console.print(
        f"Hyper-parameters of every agent: width, wait, replay, growth, seed, engine, device; of a stage: {names}; "
        f"of the network on text: {_defaults(text)}.",
        markup=False,
        highlight=False,
    )
    return 0


def _defaults(keywords: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in keywords.items())
