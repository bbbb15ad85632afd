"""A Switch layer: a router sends each token to one of several feed-forward networks, the experts.

Fedus et al., "Switch Transformers", section 2. Shapes: n sequences of T tokens, N = n T tokens of the micro-batch,
width d, E experts.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.networks.growing_layer import missing_splits, require_leaf
from agents.networks.switch_config import SwitchConfig
from agents.networks.switch_growth import append_copy, append_untrained
from alma_env.metering.function_cost import cost_varies_with


class Routes(NamedTuple):
    """The routes of a Switch layer: the balance loss (), and each token's expert before dropping (n, T), int64."""

    balance: Tensor
    experts: Tensor


class SwitchLayer(nn.Module):
    """A layer that sends each token to one of E feed-forward networks, the experts (Fedus et al., section 2).

    p = softmax(W_r x);   i = argmax p (tie: the lowest);   y = p_i · FFN_i(x)

    In training, an expert takes tokens up to its capacity, in their order over the whole micro-batch. The other tokens
    are dropped: y = 0. An expert computes one matrix product per linear layer over exactly its tokens, without padding.
    A single expert drops no tokens and has p = 1: it equals the plain feed-forward network.

    Attributes:
        router: W_r (E, d).
        inner_weight, inner_bias, outer_weight, outer_bias: of the experts, (E, 4 d, d), (E, 4 d), (E, d, 4 d), (E, d).
        splits: the expert that each growth step copied. The copies follow the initial experts.
    """

    def __init__(self, config: SwitchConfig) -> None:
        super().__init__()
        experts, width, hidden = config.experts, config.size.width, config.size.ffn
        self.config = config
        self.expert_dropout = nn.Dropout(config.hidden_dropout)
        self.router = nn.Parameter(torch.empty(experts, width))
        self.inner_weight = nn.Parameter(torch.empty(experts, hidden, width))
        self.inner_bias = nn.Parameter(torch.empty(experts, hidden))
        self.outer_weight = nn.Parameter(torch.empty(experts, width, hidden))
        self.outer_bias = nn.Parameter(torch.empty(experts, width))
        self.splits: tuple[int, ...] = ()

    @property
    def experts(self) -> int:
        """Number of experts E."""
        return len(self.router)

    @property
    def leaves(self) -> int:
        """Number of experts E, which are the leaves of a `GrowingLayer`."""
        return self.experts

    def capacity(self, tokens: int) -> int:
        """Return the capacity of an expert for a micro-batch of N tokens in training: ceil(N / E · capacity_factor)."""
        if self.experts == 1:
            return tokens
        # Exact in decimals: as floats, 100 / 10 · 1.1 is above 11.
        return math.ceil(Fraction(str(self.config.capacity_factor)) * tokens / self.experts)

    def forward(self, x: Tensor) -> tuple[Tensor, Routes]:
        """Return the output (n, T, d), and the routes."""
        tokens = x.flatten(0, 1)  # (N, d)
        probabilities = self.probabilities(tokens)  # (N, E)
        share, chosen = probabilities.max(1)  # (N,) each; ties: the first
        if self.splits:
            chosen = self._first_equal()[chosen]
            share = probabilities.gather(1, chosen.unsqueeze(1)).squeeze(1)
        routed = chosen.unsqueeze(1) == torch.arange(self.experts, device=x.device)  # (N, E)
        fraction = routed.to(probabilities.dtype).mean(0)  # f (E,), which has no gradient
        balance = self.experts * (fraction * probabilities.mean(0)).sum()
        output = self._dispatch(tokens, chosen, routed.sum(0))  # (N, d)
        output = share.to(output.dtype).unsqueeze(1) * output
        return output.view(x.shape), Routes(balance, chosen.view(x.shape[:2]))

    def _first_equal(self) -> Tensor:
        """Return, for each expert, the first one with an equal row of the router (E,). Rounding can differ by row."""
        rows = self.router.detach()
        return (rows.unsqueeze(1) == rows).all(-1).int().argmax(1)

    def probabilities(self, tokens: Tensor) -> Tensor:
        """Return p (N, E) of tokens (N, d), at least in float32: bfloat16 has too few digits to compare experts."""
        precision = torch.promote_types(tokens.dtype, torch.float32)
        tokens = tokens.to(precision)
        if self.training and (jitter := self.config.jitter):
            tokens = tokens * torch.empty_like(tokens).uniform_(1 - jitter, 1 + jitter)
        with torch.autocast(tokens.device.type, enabled=False):
            return F.linear(tokens, self.router.to(precision)).softmax(1)

    def _dispatch(self, tokens: Tensor, chosen: Tensor, sizes: Tensor) -> Tensor:
        """Return FFN_i of each token (N, d), 0 if it is dropped. `sizes` (E,) are the numbers of tokens per expert."""
        order = chosen.argsort(stable=True)  # by expert, then in the order of the tokens
        queues = torch.split(order, sizes.tolist())
        if self.training and (capacity := self.capacity(len(tokens))) < len(tokens):
            queues = tuple(queue[:capacity] for queue in queues)
            order = torch.cat(queues)
            cost_varies_with(len(order))  # dropped tokens cost nothing
        # The gradient of one unbind is one stack. Indexing expert by expert would allocate a whole stack per expert.
        stacks = (self.inner_weight, self.inner_bias, self.outer_weight, self.outer_bias)
        outputs = []
        for queue, inner_weight, inner_bias, outer_weight, outer_bias in zip(
            queues, *(stack.unbind() for stack in stacks), strict=True
        ):
            hidden = F.gelu(F.linear(tokens.index_select(0, queue), inner_weight, inner_bias))
            outputs.append(F.linear(self.expert_dropout(hidden), outer_weight, outer_bias))
        kept = torch.cat(outputs)
        return kept.new_zeros(tokens.shape).index_copy(0, order, kept)

    def split(self, leaf: int, generator: torch.Generator) -> None:
        """Append a copy of expert `leaf`, see `switch_growth.append_copy`. Raise ValueError if there is none."""
        require_leaf(self, leaf)
        append_copy(self, leaf, self.config.copy_noise, generator)
        self.splits += (leaf,)

    def regrow(self, splits: tuple[int, ...], generator: torch.Generator) -> None:
        """Add untrained experts until the layer has these splits. Raise ValueError if it already has other splits."""
        for leaf in missing_splits(self, splits):
            append_untrained(self, self.config, generator)
            self.splits += (leaf,)
