"""The initial weights of a Switch Transformer, drawn from a generator that the caller passes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from agents.networks.switch_config import SwitchConfig


def undrawn_linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer with uninitialised weights; nn.Linear would draw them from the global generator."""
    device = torch.get_default_device()  # also the device of `with torch.device("meta"):`
    layer: nn.Linear = skip_init(nn.Linear, inputs, outputs, device=device)  # type: ignore[no-untyped-call]
    return layer


@torch.no_grad()
def draw_weights(name: str, parameter: Tensor, config: SwitchConfig, generator: torch.Generator) -> None:
    """Draw the initial weights of the parameter with this name in place; see `SwitchConfig.init`."""
    if name.endswith("bias"):
        parameter.zero_()
    elif config.init == "switch":
        std = math.sqrt(0.1 / parameter.shape[-1])
        nn.init.trunc_normal_(parameter, 0, std, -2 * std, 2 * std, generator=generator)
    else:
        to_residual = name.endswith(("output.weight", "outer.weight", "outer_weight"))
        std = 0.02 / math.sqrt(2 * config.size.layers) if to_residual else 0.02
        nn.init.normal_(parameter, 0, std, generator=generator)
