"""Tasks: the shape of a predictor's logits, and the error of a tick.

Of each batch of logits, a task keeps only what the error needs: all logits of a language model would not fit into
memory. The kept parts of an ensemble's members can be combined into the kept part of the ensemble.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from alma_env.errors import DivergedError
from alma_env.scoring.ensemble import Ensemble

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Classification:
    """One of C classes for each example; the error is the fraction of wrong answers."""

    classes: int
    shape: ClassVar[str] = "(batch, classes)"  # of the logits, for messages

    @property
    def guess(self) -> float:
        """Error of the uniform guess, the answer at tick 0 without a predictor: 1 − 1/C."""
        return 1 - 1 / self.classes

    def logits_shape(self, batch: Tensor | NDArray[Any]) -> tuple[int, ...]:
        """Return the shape that the logits of a batch of inputs must have: (n, C)."""
        return len(batch), self.classes

    def keep(self, logits: Tensor, y: NDArray[Any]) -> Tensor:
        """Return the kept part of a batch's logits, as a new tensor: the logits (n, C)."""
        return logits.clone()

    def keeps_enough_for(self, ensemble: Ensemble) -> bool:
        """Return whether the kept parts of the members determine the kept part of the ensemble: always."""
        return True

    def part(self, kept: Tensor, ensemble: Ensemble) -> Tensor:
        """Return the contribution of a member, whose kept part is `kept`, to its ensemble."""
        return ensemble.part(kept)

    def error(self, kept: Tensor, y: NDArray[Any]) -> float:
        """Return the fraction of examples whose highest logit is not the label's (ties: the lowest class index)."""
        highest = kept.amax(dim=1, keepdim=True)  # faster than argmax, which is needed only for ties and NaN
        if _count(kept < highest) == kept.numel() - len(kept):
            labels = torch.tensor(y, device=kept.device)
            return _count(kept.gather(1, labels[:, None]) < highest) / len(y)
        return int(np.count_nonzero(kept.argmax(dim=1).cpu().numpy() != y)) / len(y)


@dataclass(frozen=True)
class LanguageModelling:
    """The next token at each position of a sequence; its error is the perplexity (ALMA paper, tables 1 and 2)."""

    vocabulary: int
    shape: ClassVar[str] = "(batch, tokens, vocabulary)"  # of the logits, for messages

    @property
    def guess(self) -> float:
        """Perplexity of the uniform distribution: the size of the vocabulary."""
        return float(self.vocabulary)

    def logits_shape(self, batch: Tensor | NDArray[Any]) -> tuple[int, ...]:
        """(n, T, vocabulary)."""
        return (*batch.shape, self.vocabulary)

    def keep(self, logits: Tensor, y: NDArray[Any]) -> Tensor:
        """Return the log-probability of each true next token: float32 (n, T)."""
        targets = torch.from_numpy(np.asarray(y, dtype=np.int64)).to(logits.device)
        # Sequence by sequence: a softmax of the whole batch would be as large as its logits.
        pairs = zip(logits, targets, strict=True)
        return torch.stack([-F.cross_entropy(row.float(), target, reduction="none") for row, target in pairs])

    def keeps_enough_for(self, ensemble: Ensemble) -> bool:
        """True for averaged probabilities, which need those of the targets only; averaged logits need all logits."""
        return ensemble.space == "prob"

    def part(self, kept: Tensor, ensemble: Ensemble) -> Tensor:
        """The kept log-probabilities."""
        return kept

    def error(self, kept: Tensor, y: NDArray[Any]) -> float:
        """Return exp of the mean negative log-likelihood over all tokens; DivergedError if it is not finite."""
        # In chunks: all tokens in double precision would need twice the memory.
        mean = -sum(part.double().sum().item() for part in torch.split(kept, 1024)) / kept.numel()
        try:
            perplexity = math.exp(mean)
        except OverflowError:
            perplexity = math.inf
        if not math.isfinite(perplexity):
            raise DivergedError(
                f"perplexity {perplexity}: must be finite, but the mean negative log-likelihood is {mean:.4g} nats"
            )
        return perplexity


def _count(mask: Tensor) -> int:
    return int(np.count_nonzero(mask.cpu().numpy()))  # PyTorch's takes three times as long on the CPU


Task = Classification | LanguageModelling
