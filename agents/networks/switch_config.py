"""The configuration of a Switch Transformer: its size, its experts, and how it routes, trains, starts and grows."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from agents.networks.switch_size import SwitchSize

Init = Literal["gpt", "switch"]


@dataclass(frozen=True)
class SwitchConfig:
    """What determines a Switch Transformer before training, except its generator.

    Attributes:
        vocabulary: V, number of tokens.
        size: size of the network; `SIZES` has those of the paper.
        experts: initial number of experts in each Switch layer.
        capacity_factor: in training, an expert takes at most ceil(N / E · capacity_factor) tokens of a micro-batch.
            Dividing a batch into micro-batches therefore changes the result. At evaluation there is no limit.
        jitter: ε; in training, the router's input is multiplied by U(1 − ε, 1 + ε).
        dropout: of embeddings and residual branches.
        expert_dropout: of an expert's hidden units; None uses `dropout`.
        init: of the weights. ``gpt`` is N(0, 0.02²), divided by √(2 layers) for weights into the residual stream.
            ``switch`` is normal of variance 0.1 / fan-in, truncated at two standard deviations. Biases are 0.
        checkpointing: recompute each block in the backward pass instead of storing its activations.
        copy_noise: standard deviation of the Gaussian noise on a copied row of the router, in units of that of the row.

    Raises:
        ValueError: a number is out of its range, or the initialisation is unknown.
    """

    vocabulary: int
    size: SwitchSize
    experts: int
    _: KW_ONLY
    capacity_factor: float = 1.0
    jitter: float = 0.0
    dropout: float = 0.0
    expert_dropout: float | None = None
    init: Init = "gpt"
    checkpointing: bool = False
    copy_noise: float = 0.0

    def __post_init__(self) -> None:
        for name, number in (("vocabulary", self.vocabulary), ("experts", self.experts)):
            if number < 1:
                raise ValueError(f"{name}={number}: must be at least 1; use {name}=1")
        rates = {"jitter": self.jitter, "dropout": self.dropout, "expert_dropout": self.hidden_dropout}
        for name, rate in rates.items():
            if not 0 <= rate < 1:
                raise ValueError(f"{name}={rate}: must be at least 0 and below 1; use {name}=0 to turn it off")
        if not 0 < self.capacity_factor < math.inf:
            raise ValueError(
                f"capacity_factor={self.capacity_factor}: must be above 0 and finite; use "
                f"capacity_factor={self.experts} to drop no token"
            )
        if not 0 <= self.copy_noise < math.inf:
            raise ValueError(
                f"copy_noise={self.copy_noise}: must be at least 0 and finite; use copy_noise=0 for an exact copy"
            )
        if self.init not in get_args(Init):
            raise ValueError(f"init={self.init!r}: must be one of {', '.join(get_args(Init))}")

    @property
    def hidden_dropout(self) -> float:
        """Dropout of an expert's hidden units."""
        return self.dropout if self.expert_dropout is None else self.expert_dropout
