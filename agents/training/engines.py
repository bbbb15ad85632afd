"""The engines that compute a stage, by name, and the choice between them."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from agents.training import distributed
from agents.training.native.engine import native_engine
from agents.training.native.library import library
from agents.training.native.supported import supports
from agents.training.settings import EngineName, StageSettings
from agents.training.stage import Engine, plain_engine


def choose_engine(
    engine: str, body: nn.Module, settings: StageSettings, *, device: torch.device | str = "cpu"
) -> EngineName:
    """Return the name of the engine of a run; `auto` is the native engine wherever it can compute the stages.

    The result depends on the arguments and on whether there is a C++ compiler: a run that continues must choose the
    same engine again.

    Raises:
        ValueError: the engine does not exist, or the requested engine cannot compute the stage.
    """
    if engine not in ("auto", "plain", "native"):
        raise ValueError(f"engine={engine!r}: must be one of auto, plain, native")
    if engine == "plain":
        return "plain"
    one_process = distributed.ranks() == 1 and torch.device(device).type == "cpu"
    if one_process and supports(body, settings) and library() is not None:
        return "native"
    if engine == "native":
        raise ValueError(
            "engine='native': needs an MLP without augmentation or a VGG19, of experts only with soft gates; fp32 with "
            "SGD or AdaDelta, without updates, accumulation and clip; one process on the CPU; and a C++ compiler; use "
            "engine='auto' or 'plain'"
        )
    return "plain"


def engine_named(name: EngineName) -> Engine:
    """Return an engine; the plain one divides each stage among the ranks of this run."""
    if name == "native":
        return native_engine
    return plain_engine if distributed.ranks() == 1 else partial(plain_engine, processes=distributed.Ranks())
