"""The engines that compute a stage, by name, and the choice between them."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from agents.training import distributed
from agents.training.graphs import graphs_engine, supports_graphs
from agents.training.native.engine import native_engine
from agents.training.native.library import library
from agents.training.native.supported import supports
from agents.training.settings import ENGINES, EngineName, StageSettings
from agents.training.stage import Engine, plain_engine


def choose_engine(
    engine: str, body: nn.Module, settings: StageSettings, *, device: torch.device | str = "cpu"
) -> EngineName:
    """Return the name of the engine of a run; `auto` is the fastest that can compute the stages on this device.

    The result depends on the arguments and on whether there is a C++ compiler: a run that continues must choose the
    same engine again.

    Raises:
        ValueError: the engine does not exist, or the requested engine cannot compute the stage.
    """
    if engine not in ("auto", *ENGINES):
        raise ValueError(f"engine={engine!r}: must be one of auto, {', '.join(ENGINES)}")
    if engine == "plain":
        return "plain"
    kind = torch.device(device).type if distributed.ranks() == 1 else "several processes"
    if engine != "graphs" and kind == "cpu" and supports(body, settings) and library() is not None:
        return "native"
    if engine != "native" and kind == "cuda" and supports_graphs(body, settings):
        return "graphs"
    if engine == "native":
        raise ValueError(
            "engine='native': needs an MLP without augmentation or a VGG19, of experts only with soft gates, and "
            "without hooks, pruning, parametrizations, or attributes and functions of your own; fp32 with SGD or "
            "AdaDelta, without updates, accumulation and clip; one process on the CPU; and a C++ compiler; use "
            "engine='auto' or 'plain'"
        )
    if engine == "graphs":
        raise ValueError(
            "engine='graphs': needs one process on a GPU, an MLP or a VGG19, of experts only with soft gates, and "
            "without hooks, pruning, parametrizations, or attributes and functions of your own; and no updates, "
            "accumulation and clip; use engine='auto' or 'plain'"
        )
    return "plain"


def engine_named(name: EngineName) -> Engine:
    """Return an engine; the plain one divides each stage among the ranks of this run."""
    if name == "native":
        return native_engine
    if name == "graphs":
        return graphs_engine
    return plain_engine if distributed.ranks() == 1 else partial(plain_engine, processes=distributed.Ranks())
