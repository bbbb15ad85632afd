"""The engines that compute a stage, by name, and the choice between them."""

from __future__ import annotations

import os
import shutil
import sys

import torch
from torch import nn

from agents.training import distributed
from agents.training.compiled.engine import compiled_engine, supports
from agents.training.native.engine import native_engine
from agents.training.native.library import library
from agents.training.native.supported import supports as native_supports
from agents.training.settings import EngineName, StageSettings
from agents.training.stage import Engine, plain_engine

ENGINES: dict[EngineName, Engine] = {
    "plain": plain_engine,
    "compiled": compiled_engine,
    "native": native_engine,
}

# Compiling one network takes 20 to 40 s on a 2.5 GHz Cascade Lake core with an empty disk cache (5 s with a full one),
# and saves 1.2 to 2 ms per step. On a Zen 5 core it takes 3 to 15 s and saves 0.4 ms. Both break even below this.
COMPILE_FROM_STEPS = 40_000


def choose_engine(
    engine: str, body: nn.Module, settings: StageSettings, *, full_steps: int, device: torch.device | str = "cpu"
) -> EngineName:
    """Return the engine of a run of about `full_steps` mini-batch steps; `auto` compiles if that saves time.

    The result depends on the arguments and on whether there is a C++ compiler, but not on what is in the compiler's
    cache: a run that continues must choose the same engine again.

    Raises:
        ValueError: the engine does not exist, or the requested engine cannot compute the stage.
    """
    one_process = distributed.ranks() == 1 and torch.device(device).type == "cpu"
    possible = one_process and supports(body, settings) and has_compiler()
    if engine == "auto":
        return "compiled" if possible and full_steps >= COMPILE_FROM_STEPS else "plain"
    if engine == "compiled":
        if not possible:
            raise ValueError(
                "engine='compiled': needs an MLP in fp32 without augmentation, one process on the CPU, and a C++ "
                "compiler; use engine='auto' or 'plain'"
            )
        return "compiled"
    if engine == "native":
        if not one_process or not native_supports(body, settings) or library() is None:
            raise ValueError(
                "engine='native': needs an MLP or a VGG19 in fp32 (an MLP without augmentation), one process on the "
                "CPU, and a C++ compiler; use engine='auto' or 'plain'"
            )
        return "native"
    if engine == "plain":
        return "plain"
    raise ValueError(f"engine={engine!r}: must be one of auto, plain, compiled, native")


def has_compiler() -> bool:
    """Return whether there is a C++ compiler, which the compiled engine needs."""
    default = "clang++" if sys.platform == "darwin" else "g++"
    return shutil.which(os.environ.get("CXX", default)) is not None
