"""The growth of a Switch layer: an expert is one row of each parameter of the layer, and growth appends a row.

ALMA paper, section 4, gMoE on text.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_weights import draw_weights


def append_copy(layer: nn.Module, expert: int, noise: float, generator: torch.Generator) -> None:
    """Append a copy of an expert and of its row of the router; `noise` is `SwitchConfig.copy_noise`.

    No token changes its expert: a copy has the logit of its original, and the first of equal experts is chosen. A copy
    gets no token until the balance loss or the noise changes its row. The function still changes: p_i becomes
    p_i / (1 + p_copied).
    """
    rows = {name: stack.detach()[expert : expert + 1] for name, stack in layer.named_parameters(recurse=False)}
    if noise:
        row = rows["router"]
        draws = torch.randn(row.shape, generator=generator).to(row)
        rows["router"] = row + noise * row.std(1, keepdim=True) * draws
    _append(layer, rows)


def append_untrained(layer: nn.Module, config: SwitchConfig, generator: torch.Generator) -> None:
    """Append an expert with initial weights from the generator."""
    rows = {name: torch.empty_like(stack[:1]) for name, stack in layer.named_parameters(recurse=False)}
    for name, row in rows.items():
        draw_weights(name, row, config, generator)
    _append(layer, rows)


def _append(layer: nn.Module, rows: dict[str, Tensor]) -> None:
    for name, stack in list(layer.named_parameters(recurse=False)):
        grown = torch.cat([stack.detach(), rows[name].detach()])
        setattr(layer, name, nn.Parameter(grown, requires_grad=stack.requires_grad))
