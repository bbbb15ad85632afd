"""What is asked of a predictor, and how its answers become the error of a tick.

Of each answer no more is kept than the error needs, so that a language model's logits, which would fill a memory, live
for one batch only. What is kept of an ensemble's members can be combined as their answers would be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from alma_env.ensemble import Ensemble
from alma_env.errors import PredictorError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Task(Protocol):
    """A kind of question.

    Attributes:
        guess: error of the uniform guess, which answers at tick 0 where no predictor does.
        shape: the logits' shape in words.
    """

    @property
    def guess(self) -> float: ...  # noqa: D102

    @property
    def shape(self) -> str: ...  # noqa: D102

    def logits_shape(self, batch: Tensor) -> tuple[int, ...]:
        """Shape that the logits of a batch of inputs must have."""

    def keep(self, logits: Tensor, y: NDArray[Any]) -> Tensor:
        """What is kept of the logits of a batch, first dimension n; a new tensor."""

    def keeps_enough_for(self, ensemble: Ensemble) -> bool:
        """Whether the ensemble's answer can be told from what is kept of its members'."""

    def part(self, kept: Tensor, ensemble: Ensemble) -> Tensor:
        """What a member of which this was kept then contributes to its ensemble."""

    def error(self, kept: Tensor, y: NDArray[Any]) -> float:
        """The error of the tick, from what was kept of all test examples.

        Raises:
            PredictorError: the answers have no finite error.
        """


@dataclass(frozen=True)
class Classification:
    """One of so many classes for each example; the error is the fraction of wrong answers."""

    classes: int

    @property
    def guess(self) -> float:
        """1 − 1/C."""
        return 1 - 1 / self.classes

    @property
    def shape(self) -> str:
        """For messages."""
        return "(batch, classes)"

    def logits_shape(self, batch: Tensor) -> tuple[int, ...]:
        """(n, classes)."""
        return len(batch), self.classes

    def keep(self, logits: Tensor, y: NDArray[Any]) -> Tensor:
        """The logits (n, classes)."""
        return logits.clone()

    def keeps_enough_for(self, ensemble: Ensemble) -> bool:
        """All logits are kept."""
        return True

    def part(self, kept: Tensor, ensemble: Ensemble) -> Tensor:
        """The ensemble knows."""
        return ensemble.part(kept)

    def error(self, kept: Tensor, y: NDArray[Any]) -> float:
        """Fraction of examples whose highest logit is not the label's (ties: the lowest class index)."""
        return int(np.count_nonzero(kept.argmax(dim=1).cpu().numpy() != y)) / len(y)


@dataclass(frozen=True)
class LanguageModelling:
    """The next token at each place of a sequence; the error is the perplexity per token (METHODS E.4, F.2)."""

    vocabulary: int

    @property
    def guess(self) -> float:
        """Perplexity of the uniform distribution: the size of the vocabulary."""
        return float(self.vocabulary)

    @property
    def shape(self) -> str:
        """For messages."""
        return "(batch, tokens, vocabulary)"

    def logits_shape(self, batch: Tensor) -> tuple[int, ...]:
        """(n, T, vocabulary)."""
        return (*batch.shape, self.vocabulary)

    def keep(self, logits: Tensor, y: NDArray[Any]) -> Tensor:
        """Log-probability of each token that did come next: float32 (n, T)."""
        targets = torch.from_numpy(np.asarray(y, dtype=np.int64)).to(logits.device)
        # Sequence by sequence: one softmax over the vocabulary is as large as the batch's logits.
        pairs = zip(logits, targets, strict=True)
        return torch.stack([-F.cross_entropy(row.float(), target, reduction="none") for row, target in pairs])

    def keeps_enough_for(self, ensemble: Ensemble) -> bool:
        """An average of probabilities needs the target's alone; one of logits needs them all."""
        return ensemble.space == "prob"

    def part(self, kept: Tensor, ensemble: Ensemble) -> Tensor:
        """Log-probabilities, as they are."""
        return kept

    def error(self, kept: Tensor, y: NDArray[Any]) -> float:
        """exp of the mean negative log-likelihood over all tokens."""
        # In parts: in double precision all of it would be twice as large again.
        mean = -sum(part.double().sum().item() for part in torch.split(kept, 1024)) / kept.numel()
        try:
            perplexity = math.exp(mean)
        except OverflowError:
            perplexity = math.inf
        if not math.isfinite(perplexity):
            raise PredictorError(
                f"perplexity {perplexity}: the predictor gives next to no probability to a token that occurs (mean "
                f"negative log-likelihood {mean:.4g} nats); deploy another one, or None to keep the one before"
            )
        return perplexity
