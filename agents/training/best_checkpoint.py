"""The best epoch of a stage, kept without waiting for the device (ALMA paper, first version, section 5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.training.settings import StageSettings
from alma_env.metering.function_cost import count_once


@count_once
def _keep_better(score: Tensor, loss: Tensor, min_delta: float, live: list[Tensor], kept: list[Tensor]) -> None:
    """Copy `live` to `kept` where the score is better. Both lists are: epoch, criterion, weights and buffers."""
    live[1].copy_(score)
    better = (score < kept[1] - min_delta) & loss.isfinite()
    for new, old in zip(live, kept, strict=True):
        torch.where(better, new, old, out=old)
    live[0].add_(1)


class BestEpoch:
    """The weights and buffers of the best epoch so far, selected on the device."""

    def __init__(self, body: nn.Module, settings: StageSettings) -> None:
        self._settings = settings
        self._weights = [tensor.detach() for tensor in (*body.parameters(), *body.buffers())]
        self._kept = [tensor.clone() for tensor in self._weights]
        self._live: list[Tensor] = []  # empty until the first offer, which has the dtype of the criterion

    def offer(self, loss: Tensor, error: Tensor) -> None:
        """Keep the current weights if this validation loss () or error () is better than the best."""
        score = loss if self._settings.select == "val_loss" else error
        if not self._live:
            first = 0 if self._settings.keep_initial else 1  # number of the first epoch that is offered
            self._live = [torch.full_like(score, first, dtype=torch.int64), score.clone(), *self._weights]
            self._kept = [torch.zeros_like(self._live[0]), torch.full_like(score, torch.inf), *self._kept]
        _keep_better(score, loss, self._settings.min_delta, self._live, self._kept)

    @property
    def epoch(self) -> Tensor:
        """Number of the best epoch so far, int64; 0 if there is none."""
        return self._kept[0]

    @property
    def criterion(self) -> Tensor:
        """Loss or error of the best epoch so far; infinite if there is none."""
        return self._kept[1]

    def restore(self) -> None:
        """Copy the kept weights and buffers back into the network."""
        for live, kept in zip(self._weights, self._kept[2:], strict=True):
            live.copy_(kept)
