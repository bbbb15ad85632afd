"""The best epoch of a stage, kept without waiting for the device (ALMA paper, first version, section 5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.networks.stacked import in_groups
from agents.training.settings import StageSettings
from alma_env.metering.function_cost import count_once


@count_once
def _keep_better(score: Tensor, loss: Tensor, min_delta: float, live: list[Tensor], kept: list[Tensor]) -> None:
    """Copy `live` to `kept` where the score is better. Both lists are: epoch, criterion, weights and buffers."""
    live[1].copy_(score)
    better = (score < kept[1] - min_delta) & loss.isfinite()  # () or (members,)
    for new, old in zip(live, kept, strict=True):
        torch.where(better.view(better.shape + (1,) * (old.dim() - better.dim())), new, old, out=old)
    live[0].add_(1)


class BestEpoch:
    """The weights and buffers of the best epoch so far, selected on the device.

    In a stacked body, each member, or each mixture of members, has its own best epoch.
    """

    def __init__(self, body: nn.Module, settings: StageSettings, members: int | None) -> None:
        self._settings = settings
        self._weights = [tensor.detach() for tensor in (*body.parameters(), *body.buffers())]
        if members is not None and len(self._weights[0]) != members:
            self._weights = [in_groups(tensor, members) for tensor in self._weights]
        device, shape = self._weights[0].device, () if members is None else (members,)
        first = 0 if settings.keep_initial else 1  # number of the first epoch that is offered
        self.epoch = torch.zeros(shape, dtype=torch.int64, device=device)
        self.criterion = torch.full(shape, torch.inf, device=device)
        self._live = [torch.full_like(self.epoch, first), self.criterion.clone(), *self._weights]
        self._kept = [self.epoch, self.criterion, *(tensor.clone() for tensor in self._weights)]

    def offer(self, loss: Tensor, error: Tensor) -> None:
        """Keep the current weights if this validation loss or error, () or (members,), is better than the best."""
        score = loss if self._settings.select == "val_loss" else error
        _keep_better(score, loss, self._settings.min_delta, self._live, self._kept)

    def restore(self) -> None:
        """Copy the kept weights and buffers back into the network."""
        for live, kept in zip(self._weights, self._kept[2:], strict=True):
            live.copy_(kept)
